"""How often `evaltap compare` calls a regression, over pairs of runs, and of weeks, whose truth is known.

Runs are drawn (gate_simulation.py) and compared by `analysis.stats`, many times for each scenario.
Beside it: "any drop", "a drop of more than 5 points", and the likelihood ratio test that exchanges
trials, too, but knows how many cases fall and how far, though not which.  Neither calls a regression what did
not lower the pass rate as a whole.

    python docs/benchmarks/compare.py [--rounds 2000] [--seed 2026] [--plot docs/assets/comparisons.svg]
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from plots import Axis, Dots, draw

from support.proofs.estimate_coverage import SETTINGS
from support.proofs.gate_simulation import SCENARIOS, Found, simulate, simulate_traffic


def main() -> None:
    """Print a table of runs, with a bar for how often a regression is called, and one of traffic."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--plot", type=Path, help="also draw the first table, as SVG")
    options = parser.parse_args()
    print(
        "| what happened | true drop | any drop | more than 5 points | informed test | `evaltap compare` | |"
        " interval covers |\n|---|---:|---:|---:|---:|---:|---|---:|"
    )
    runs: dict[str, Found] = {}
    for name, scenario in SCENARIOS.items():
        runs[name] = found = simulate(
            scenario, options.rounds, seed=options.seed, ideal=bool(scenario.fallen)
        )
        cells = (
            name,
            f"{100 * scenario.drop:.1f}",
            f"{found.any_drop:.0%}",
            f"{found.five_points:.0%}",
            f"{found.ideal:.0%}" if scenario.fallen else "2 %",
            f"**{found.product:.1%}**",
            "█" * round(20 * found.product) or "▏",
            f"{found.covered:.1%}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    if options.plot:
        _draw(options.plot, runs)
    print(
        "\n| traffic | called worse, nothing changed | a fall of 5 points found | interval covers |\n"
        "|---|---:|---:|---:|"
    )
    for name, setting in SETTINGS.items():
        week = simulate_traffic(setting, options.rounds, seed=options.seed)
        print(
            f"| {name}, {setting.rate:.0%} pass, {setting.turns:,} turns | **{week.unchanged:.1%}** |"
            f" {week.fallen:.0%} | {week.covered:.1%} |",
            flush=True,
        )


def _draw(path: Path, runs: Mapping[str, Found]) -> None:
    informed = [
        100 * found.ideal if SCENARIOS[name].fallen else None for name, found in runs.items()
    ]
    series = [
        Dots("evaltap compare", "main", [100 * one.product for one in runs.values()]),
        Dots("informed test", "other", informed),
        Dots("any drop", "naive", [100 * one.any_drop for one in runs.values()]),
    ]
    axis = Axis("called a regression", 0, 100, (0, 20, 40, 60, 80, 100))
    draw(
        path,
        "How often a pair of runs is called a regression; level: 2 %",
        list(runs),
        series,
        axis,
        (2, 2),
    )


if __name__ == "__main__":
    main()
