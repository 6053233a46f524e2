"""How often `evaltap monitor` alarms in months in which nothing changed, and how soon it finds a rise.

Months are drawn (tests/watch_simulation.py) and watched by `evaltap.evaluator.stats.detector`.  Beside it:
an alarm on every day that is five points worse than usual.

    python docs/benchmarks/monitor.py [--rounds 500] [--seed 2026]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from watch_simulation import Month, simulate_months

CHANCE = 0.05
QUIET = (
    Month(50), Month(200), Month(500), Month(200, day_spread=0.01), Month(500, day_spread=0.02),
    Month(200, rate=0.2, day_spread=0.02), Month(200, rate=0.005),
)  # fmt: skip
CHANGED = (
    Month(500, later=0.1), Month(200, later=0.1), Month(50, later=0.1), Month(50, later=0.2),
    Month(200, day_spread=0.01, later=0.15), Month(100, later=0.15),
)  # fmt: skip


def main() -> None:
    """Print two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    print(
        "| sessions a day | bad turns | days differ by | months with an alarm | alarm at 5 points |\n"
        "|---:|---:|---:|---:|---:|"
    )
    for month in QUIET:
        found = simulate_months(month, options.rounds, chance=CHANCE, seed=options.seed)
        print(f"| {_of(month)} | **{found.alarms:.1%}** | {found.naive:.0%} |", flush=True)
    print(
        "\n| sessions a day | bad turns | days differ by | then | found within 20 days | after days |\n"
        "|---:|---:|---:|---:|---:|---:|"
    )
    for month in CHANGED:
        found = simulate_months(month, options.rounds, chance=CHANCE, seed=options.seed)
        then = f"{month.later:.0%}"
        print(f"| {_of(month)} | {then} | {found.alarms:.0%} | {found.delay:.1f} |", flush=True)


def _of(month: Month) -> str:
    return f"{month.sessions} | {month.rate:.1%} | {100 * month.day_spread:.0f} points"


if __name__ == "__main__":
    main()
