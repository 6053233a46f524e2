"""How often `evaltap run --until` decides wrongly, and how soon it decides.

Sets of cases with known pass rates are run round by round, and the decision is asked for after every round.
Beside it: the same with Wilson's interval, which holds for one look only.

    python docs/benchmarks/early_stop.py [--sets 2000] [--seed 2026] [--plot docs/assets/early-stop.svg]
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import numpy as np
from plots import Axis, Dots, draw

from evaltap.evaluator.analysis.stats.rate import wilson_of
from evaltap.experiments.early_stop import Decision, Until

UNTIL: Final = Until(0.9, 0.95)
ROUNDS: Final = 100
SETTINGS: Final[dict[str, list[float]]] = {
    "20 cases, all 89.9 %": [0.899] * 20,
    "20 cases, 17 always, 3 rarely (89.8 %)": [1.0] * 17 + [0.32] * 3,
    "5 cases, all 89.9 %": [0.899] * 5,
    "20 cases, all 90 %": [0.9] * 20,
    "20 cases, all 95 %": [0.95] * 20,
    "20 cases, 18 always, 2 at 90 % (99 %)": [1.0] * 18 + [0.9] * 2,
    "20 cases, all 80 %": [0.8] * 20,
    "20 cases, 14 always, 6 rarely (76 %)": [1.0] * 14 + [0.2] * 6,
    "50 cases, all 93 %": [0.93] * 50,
}


class Found(NamedTuple):
    """What became of the sets of a setting."""

    wrong: float
    decided: float
    rounds: float | None
    """Half of the decided sets needed no more."""


def wilson(passed: int, units: int) -> Decision:
    """Decide by an interval that holds for one look, at every look."""
    low, high = wilson_of(passed / units, units)
    return "reached" if low >= UNTIL.target else "missed" if high < UNTIL.target else "open"


def simulate(
    rates: Sequence[float], decide: Callable[[int, int], Decision], sets: int, seed: int
) -> Found:
    """Run sets of cases with these pass rates until they are decided, or for ROUNDS rounds."""
    truth = sum(rates) / len(rates) >= UNTIL.target
    wrong, rounds, decide = 0, [], cache(decide)
    drawn = np.random.default_rng(seed)
    alike = Counter(rates).items()
    passes = sum(drawn.binomial(count, rate, (sets, ROUNDS)) for rate, count in alike)
    for totals in np.cumsum(passes, axis=1).tolist():
        for number, passed in enumerate(totals, 1):
            decision = decide(passed, number * len(rates))
            if decision != "open":
                rounds.append(number)
                wrong += (decision == "reached") != truth
                break
    return Found(wrong / sets, len(rounds) / sets, median(rounds) if rounds else None)


def main() -> None:
    """Print a table in Markdown, and draw how often the decision is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--plot", type=Path, help="also draw it, as SVG")
    options = parser.parse_args()
    found = {
        name: [
            simulate(rates, decide, options.sets, options.seed) for decide in (UNTIL.decide, wilson)
        ]
        for name, rates in SETTINGS.items()
    }
    print(
        "| cases and their pass rate | wrong | decided | median rounds | wrong, by Wilson at each look |"
    )
    print("|---|---:|---:|---:|---:|")
    for name, (ours, naive) in found.items():
        rounds = "-" if ours.rounds is None else f"{ours.rounds:.0f}"
        print(f"| {name} | {ours.wrong:.1%} | {ours.decided:.0%} | {rounds} | {naive.wrong:.1%} |")
    if options.plot:
        series = [
            Dots("--until", "main", [100 * ours.wrong for ours, _ in found.values()]),
            Dots(
                "Wilson at each look", "naive", [100 * naive.wrong for _, naive in found.values()]
            ),
        ]
        axis = Axis("wrong decisions", 0, 60, (0, 5, 20, 40, 60))
        title = "How often a target of 90 % is decided wrongly"
        draw(options.plot, title, list(found), series, axis, (5, 5))


if __name__ == "__main__":
    main()
