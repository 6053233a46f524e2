"""How often `evaltap monitor` alarms in months in which nothing changed, and how soon it finds a rise.

Months are drawn (watch_simulation.py) and watched by `analysis.stats.detector`.  Beside it:
an alarm on every day that is five points worse than usual, and the test that knows how far the share rises.
Then come months whose nights, office hours or weekends differ, and rises that last, whose alarms must not
resolve before they end.  Then slices are broken (planted_changes.py): is the broken one named first?
Last come months of latencies (latency_simulation.py) under both streams of `slow_rate`, under its first
one alone, and under a watch on their mean.

    python docs/benchmarks/monitor.py [--rounds 500] [--seed 2026] [--plot docs/assets/watches.svg]
    python docs/benchmarks/monitor.py --latencies
    python docs/benchmarks/monitor.py --means
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from plots import Axis, Dots, draw

from support.proofs.latency_simulation import LatencyMonth, simulate_latencies, simulate_means
from support.proofs.planted_changes import PLANTED, named_first
from support.proofs.watch_simulation import FoundMonths, Month, simulate_months, simulate_rises

CHANCE = 0.05
QUIET = (
    Month(50), Month(200), Month(500), Month(200, day_spread=0.01), Month(500, day_spread=0.02),
    Month(200, rate=0.2, day_spread=0.02), Month(200, rate=0.005),
)  # fmt: skip
NIGHT, OFFICE = (0, 6), (8, 17)
REPEATING = {
    "20 % from 0 to 6 h, else 3 %": Month(200, rate=0.03, hours=NIGHT, hours_rate=0.2),
    "the same, few": Month(20, rate=0.03, hours=NIGHT, hours_rate=0.2),
    "12 % from 0 to 6 h, else 4 %": Month(200, rate=0.04, hours=NIGHT, hours_rate=0.12),
    "the same, many": Month(500, rate=0.04, hours=NIGHT, hours_rate=0.12),
    "slower by night: 73 % above the median, else 43 %": Month(
        200, rate=0.43, hours=NIGHT, hours_rate=0.73
    ),
    "15 % from 8 to 17 h, else 5 %": Month(500, hours=OFFICE, hours_rate=0.15),
    "15 % from 0 to 9 h, else 5 %": Month(500, hours=(0, 9), hours_rate=0.15),
    "weekends 12 %, else 5 %": Month(200, weekend_rate=0.12),
    "weekends 20 %, else 5 %": Month(200, weekend_rate=0.2),
    "the same weekends, few": Month(20, weekend_rate=0.2),
}
LASTING = (
    Month(20, later=0.2), Month(50, later=0.2), Month(100, later=0.15), Month(200, later=0.2),
    Month(200, later=0.1),
)  # fmt: skip
CHANGED = (
    Month(500, later=0.1), Month(200, later=0.1), Month(50, later=0.1), Month(50, later=0.2),
    Month(200, day_spread=0.01, later=0.15), Month(100, later=0.15),
)  # fmt: skip
LATENCIES = (
    LatencyMonth(50), LatencyMonth(200), LatencyMonth(200, day_spread=0.05),
    LatencyMonth(50, 0.3), LatencyMonth(200, 0.3), LatencyMonth(500, 0.3),
    LatencyMonth(200, 0.3, day_spread=0.05),
)  # fmt: skip
MEANS = {
    "nothing": (
        LatencyMonth(50), LatencyMonth(200), LatencyMonth(200, day_spread=0.1),
        LatencyMonth(200, night=1.0), LatencyMonth(50, spread=1.2), LatencyMonth(200, spread=1.2),
    ),
    "all turns 30 % more": (
        LatencyMonth(50, 0.3), LatencyMonth(200, 0.3), LatencyMonth(200, 0.3, day_spread=0.05),
        LatencyMonth(200, 0.3, spread=1.2),
    ),
    "all turns twice as much": (LatencyMonth(50, 1.0), LatencyMonth(50, 1.0, spread=1.2)),
    "2 % of the turns 20 times as much": (LatencyMonth(200, tail=0.02),),
}  # fmt: skip


def main() -> None:
    """Print seven tables in Markdown, and draw the first two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--plot", type=Path, help="also draw it, as SVG; a second file has -delays")
    parser.add_argument("--latencies", action="store_true", help="only the table of latencies")
    parser.add_argument("--means", action="store_true", help="only the table of means")
    options = parser.parse_args()
    if not options.latencies and not options.means:
        _rates(options)
        print()
    if not options.means:
        _latencies(options)
    if not options.latencies:
        _means(options)


def _rates(options: argparse.Namespace) -> None:
    print(
        "| sessions a day | bad turns | days differ by | months with an alarm | alarm at 5 points |\n"
        "|---:|---:|---:|---:|---:|"
    )
    quiet = [_simulated(month, options) for month in QUIET]
    for month, found in zip(QUIET, quiet, strict=True):
        print(f"| {_of(month)} | **{found.alarms:.1%}** | {found.naive:.0%} |", flush=True)
    print(
        "\n| sessions a day | bad turns | days differ by | then | found within 20 days | after days |"
        " informed test finds | after days |\n|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    changed = [_simulated(month, options) for month in CHANGED]
    for month, found in zip(CHANGED, changed, strict=True):
        print(
            f"| {_of(month)} | {month.later:.0%} | {found.alarms:.0%} | {found.delay:.1f} |"
            f" {found.informed:.0%} | {found.informed_delay:.1f} |",
            flush=True,
        )
    print("\n| what repeats | sessions a day | months with an alarm |\n|---|---:|---:|")
    for name, month in REPEATING.items():
        found = _simulated(month, options)
        print(f"| {name} | {month.sessions} | {found.alarms:.1%} |", flush=True)
    print(
        "\n| sessions a day | bad turns | for 20 days | alarms | resolved before the end | days after it |\n"
        "|---:|---:|---:|---:|---:|---:|"
    )
    for month in LASTING:
        rises = simulate_rises(month, min(options.rounds, 200), chance=CHANCE, seed=options.seed)
        print(
            f"| {month.sessions} | {month.rate:.0%} | {month.later:.0%} | {rises.alarms} |"
            f" {rises.resolved} | {rises.days:.1f} |",
            flush=True,
        )
    print("\n| what breaks | named first |\n|---|---:|")
    for planted in PLANTED:
        source, rounds = random.Random(options.seed), min(options.rounds, 200)
        named = sum(named_first(source, planted) == planted for _ in range(rounds))
        print(f"| {planted} | {named / rounds:.1%} |", flush=True)
    if options.plot:
        _draw_quiet(options.plot, quiet)
        _draw_delays(options.plot.with_stem(f"{options.plot.stem}-delays"), changed)


def _latencies(options: argparse.Namespace) -> None:
    print(
        "| sessions a day | days differ by | all turns slower by | months with an alarm | after days |"
        " 95th percentile alone | after days |\n|---:|---:|---:|---:|---:|---:|---:|"
    )
    for month in LATENCIES:
        found = simulate_latencies(month, options.rounds, chance=CHANCE, seed=options.seed)
        shares = [f"{one:.1%}" for one in (found.alarms, found.tail_alarms)]
        delays = [f"{one:.1f}" if month.slower else "" for one in (found.delay, found.tail_delay)]
        print(
            f"| {month.sessions} | {month.day_spread:.0%} | {month.slower:.0%} | {shares[0]} | {delays[0]} |"
            f" {shares[1]} | {delays[1]} |",
            flush=True,
        )


def _means(options: argparse.Namespace) -> None:
    print(
        "\n| what changes | sessions a day | sigma | days differ by | nights |"
        " months with an alarm | after days |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for name, months in MEANS.items():
        for month in months:
            alarms, delay = simulate_means(month, options.rounds, chance=CHANCE, seed=options.seed)
            days = "" if name == "nothing" else f"{delay:.1f}"
            print(
                f"| {name} | {month.sessions} | {month.spread} | {month.day_spread:.0%} |"
                f" +{month.night:.0%} | {alarms:.1%} | {days} |",
                flush=True,
            )


def _simulated(month: Month, options: argparse.Namespace) -> FoundMonths:
    return simulate_months(month, options.rounds, chance=CHANCE, seed=options.seed)


def _of(month: Month) -> str:
    return f"{month.sessions} | {month.rate:.1%} | {100 * month.day_spread:.0f} points"


def _draw_quiet(path: Path, found: Sequence[FoundMonths]) -> None:
    rows = [
        f"{one.sessions} a day, {one.rate:.1%} bad, ±{100 * one.day_spread:.0f} points"
        for one in QUIET
    ]
    series = [
        Dots("evaltap monitor", "main", [100 * one.alarms for one in found]),
        Dots("alarm at 5 points", "naive", [100 * one.naive for one in found]),
    ]
    axis = Axis("months with an alarm", 0, 80, (0, 5, 20, 40, 60, 80))
    draw(path, "Months in which nothing changed; promised: 5 %", rows, series, axis, (5, 5))


def _draw_delays(path: Path, found: Sequence[FoundMonths]) -> None:
    rows = [f"{one.sessions} a day, {one.rate:.0%} to {one.later:.0%} bad" for one in CHANGED]
    series = [
        Dots("evaltap monitor", "main", [one.delay for one in found]),
        Dots("informed test", "other", [one.informed_delay for one in found]),
    ]
    draw(path, "Days until a rise is found (median)", rows, series,
         Axis("days", 0, 10, (0, 2, 4, 6, 8, 10), ""))  # fmt: skip


if __name__ == "__main__":
    main()
