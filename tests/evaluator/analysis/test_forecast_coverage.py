"""Forecasts of simulated replays: how often they hold the truth, and how often their verdict is wrong."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evaltap.evaluator.analysis.forecast.model import ReplayedTurn
from support.proofs.replay_simulation import AGENTS, CHANGES, FORKS, Forks, Tally
from support.worlds.traffic import binomial_bounds

ROUNDS = 12
SETTINGS = [(agent, change) for agent in AGENTS[1:4] for change in CHANGES[1:3]]
"""Agents with rates of 59 to 99 %, a little worse and with a tool that breaks."""


def tallies(
    forks: Forks,
    spoil: Callable[[int, ReplayedTurn], ReplayedTurn] | None = None,
    *,
    rounds: int = ROUNDS,
) -> list[Tally]:
    """Return the forecasts of all settings."""
    return [
        Tally(agent, change, forks, rounds=rounds, seed=3, spoil=spoil)
        for agent, change in SETTINGS
    ]


def held(found: list[Tally], name: str) -> float:
    """Return how often an interval holds the truth, over all settings."""
    shares = [share for one in found if (share := one.held[name]) is not None]
    return sum(shares) / len(shares)


@pytest.mark.slow
@pytest.mark.parametrize("forks", FORKS, ids=lambda forks: forks.name.replace(" ", "_"))
def test_bounds_hold_the_truth_whatever_forks_depend_on(forks: Forks) -> None:
    found = tallies(forks)

    count = ROUNDS * len(SETTINGS)
    least, _ = binomial_bounds(count, 0.95)
    _, most = binomial_bounds(count, 0.025)
    assert held(found, "bounds") >= least
    assert held(found, "difference_bounds") >= least
    assert sum(one.wrong for one in found) / len(found) <= most
    if forks.is_told:
        low, _ = binomial_bounds(count, 0.93)
        _, high = binomial_bounds(count, 0.97)
        assert low <= held(found, "estimate") <= high
        assert held(found, "difference") >= low
    elif forks.renamed or forks.by_tool_and_class:
        assert all(one.withheld == 1 for one in found), "nothing speaks for what forks"


@pytest.mark.slow
def test_what_is_wrong_with_other_ways_shows_in_the_same_simulation() -> None:
    def unweighted(_: int, row: ReplayedTurn) -> ReplayedTurn:
        return replace(row, weight=1.0, replayed=1.0)

    depending = next(one for one in FORKS if one.where_it_fails > 0.1)

    assert held(tallies(FORKS[0], unweighted, rounds=2 * ROUNDS), "estimate") < 0.8, (
        "weights left out"
    )
    assert held(tallies(depending), "estimate") < 0.7, "forks that no cell knows of"


@pytest.mark.slow
def test_the_benchmark_prints_its_tables(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    plot = tmp_path / "replay.svg"
    command = [sys.executable, "docs/benchmarks/replay_forecast.py", "--quick", "--plot", str(plot)]

    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout

    assert all(f"| {forks.name} |" in said for forks in FORKS)
    assert "flaw: weights left out" in said
    assert plot.read_text().startswith("<svg")
