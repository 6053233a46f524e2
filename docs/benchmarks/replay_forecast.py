"""How often the figures of `evaltap replay` hold the truth, and how often its verdict is wrong.

Five agents are changed in four ways, and recorded traffic of each is replayed (replay_simulation.py).
The new agent forks by chance, or depending on how it would have done, which nobody can know.

    python docs/benchmarks/replay_forecast.py [--rounds 200] [--seed 2026] [--jobs 2]
        [--plot docs/assets/replay.svg]
    python docs/benchmarks/replay_forecast.py --quick
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from plots import Axis, Dots, draw

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from evaltap.evaluator.analysis.forecast.model import ReplayedTurn
from support.proofs.replay_simulation import (
    AGENTS,
    CHANGES,
    FORKS,
    Agent,
    Change,
    Design,
    Forks,
    Tally,
)

FEW: Final = FORKS[0]
SMALL: Final = tuple(replace(one, sessions=one.sessions // 6) for one in AGENTS)
DESIGNS: Final = (
    ("150 drawn of 320 and 450", AGENTS[:2], FEW, Design(sample=150), None),
    ("three runs", AGENTS[2:], FEW, Design(runs=3), None),
    ("15 to 70 sessions", SMALL, FEW, Design(), None),
    ("deterministic agent", AGENTS[:4], FEW, Design(deterministic=True), None),
    ("flaw: weights left out", AGENTS, FEW, Design(), "unweighted"),
    ("flaw: turns as sessions", AGENTS[2:4], FEW, Design(), "turns"),
)
"""How a replay is done, and what is done wrong."""


def spoiled(flaw: str | None, place: int, row: ReplayedTurn) -> ReplayedTurn:
    """Return a turn as it is to somebody who makes a mistake."""
    if flaw == "unweighted":
        return replace(row, weight=1.0, replayed=row.replayed and 1.0)
    if flaw == "turns":
        return replace(row, session=f"{row.session}-{place}")
    return row


def tally(
    setting: tuple[Agent, Change, Forks, Design, str | None], *, rounds: int, seed: int
) -> Tally:
    """Return the forecasts of a setting."""
    agent, change, forks, design, flaw = setting
    return Tally(
        agent, change, forks, rounds=rounds, seed=seed, design=design, spoil=partial(spoiled, flaw)
    )


class Row:
    """The tallies of several settings as figures."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self.tallies = tallies

    def mean(self, name: str) -> float | None:
        """Return how often an interval holds, over all settings; None if it is withheld."""
        found = [value for one in self.tallies if (value := one.held[name]) is not None]
        return sum(found) / len(found) if found else None

    def held(self, name: str) -> str:
        """Return the same in per cent, with the worst setting."""
        found = [value for one in self.tallies if (value := one.held[name]) is not None]
        return f"{100 * sum(found) / len(found):.1f}, {100 * min(found):.1f}" if found else "-"

    def share(self, of: Callable[[Tally], float]) -> float:
        """Return a mean in per cent."""
        return 100 * sum(map(of, self.tallies)) / len(self.tallies)

    def worst(self, of: Callable[[Tally], float]) -> float:
        """Return a maximum in per cent."""
        return 100 * max(map(of, self.tallies))

    @property
    def bias(self) -> str:
        """The mean error of the estimate in points, and the worst."""
        found = [100 * one.bias for one in self.tallies if one.bias is not None]
        return (
            f"{sum(found) / len(found):+.1f}, {max(found, key=abs):+.1f}" if found else "withheld"
        )


def by_forks(pool: Executor, rounds: int, seed: int, changes: Sequence[Change]) -> Iterator[Row]:
    """Print a row for each kind of forks."""
    print(
        "| forks by | not faithful | estimate holds | its difference | bias, points | withheld |"
        " bounds hold | bounds of the difference | decided | wrong | wrong at the margin |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for forks in FORKS:
        settings = [
            (agent, change, forks, Design(), None) for agent in AGENTS for change in changes
        ]
        row = Row([*pool.map(partial(tally, rounds=rounds, seed=seed), settings)])
        cells = (
            forks.name,
            f"{row.share(lambda one: one.forked):.0f}",
            row.held("estimate"),
            row.held("difference"),
            row.bias,
            f"{row.share(lambda one: one.withheld):.0f}",
            row.held("bounds"),
            row.held("difference_bounds"),
            f"{row.share(lambda one: one.decided):.0f}",
            f"{row.share(lambda one: one.wrong):.1f}, {row.worst(lambda one: one.wrong):.1f}",
            f"{row.share(at_truth):.1f}, {row.worst(at_truth):.1f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)
        yield row


def at_truth(one: Tally) -> float:
    """Return how often the more frequent verdict is given, of the two that are wrong beside the truth."""
    return max(one.at_truth.values())


def by_design(pool: Executor, rounds: int, seed: int, changes: Sequence[Change]) -> None:
    """Print a row for each way to replay, and for each mistake."""
    print(
        "\n| replay | estimate holds | its difference | this traffic | bounds hold |"
        " wrong at the margin |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name, agents, forks, design, flaw in DESIGNS:
        settings = [(agent, change, forks, design, flaw) for agent in agents for change in changes]
        row = Row([*pool.map(partial(tally, rounds=rounds, seed=seed), settings)])
        names = ("estimate", "difference", "traffic", "bounds")
        wrong = f"{row.share(at_truth):.1f}, {row.worst(at_truth):.1f}"
        print(f"| {name} | {' | '.join(map(row.held, names))} | {wrong} |", flush=True)


def main() -> None:
    """Print tables in Markdown, and draw how often the figures hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two changes, 1 round")
    parser.add_argument("--plot", type=Path, help="also draw it, as SVG")
    options = parser.parse_args()
    rounds, changes = (1, CHANGES[1:3]) if options.quick else (options.rounds, CHANGES)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        rows = [*by_forks(pool, rounds, options.seed, changes)]
        by_design(pool, rounds, options.seed, changes[::2])
    if options.plot:
        series = [
            Dots(title, look, [None if (at := row.mean(name)) is None else 100 * at for row in rows])
            for title, look, name in (
                ("bounds", "main", "bounds"),
                ("estimate", "other", "estimate"),
                ("faithful turns alone", "naive", "faithful"),
            )
        ]  # fmt: skip
        axis = Axis("intervals that hold the truth", 0, 100, (0, 25, 50, 75, 95))
        names = [one.name for one in FORKS]
        draw(options.plot, "How often the figures of a replay hold", names, series, axis, (95, 100))


if __name__ == "__main__":
    main()
