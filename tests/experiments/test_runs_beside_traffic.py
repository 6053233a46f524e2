"""Runs of an agent on cases in the store of its traffic: nothing that describes traffic counts them."""

import json
from pathlib import Path

import pytest

from evaltap.evaluator.monitoring.turns import counting_of, read_turns
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.monitor import Watch
from support.builders.cases import write_log
from support.builders.commands import Evaltap
from support.worlds.running_agents import case, write_set
from support.worlds.shop import Asked, records

RUN = ("run", "math.evalset.json", "--agent", "agents:answer", "--metrics", "metrics.json",
       "--db", "x.duckdb")  # fmt: skip
LEFT_OUT = "2 turns of `evaltap run` and `evaltap replay` left out"


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path) -> Evaltap:
    """Two runs have landed, of a turn each."""
    write_set(tmp_path, [case("sum", "add 2 3"), case("product", "mul 6 7")])
    assert evaltap(*RUN)[0] == 0
    return evaltap


def land_traffic(evaltap: Evaltap, tmp_path: Path) -> None:
    """Land a turn of traffic."""
    write_log(tmp_path / "log.db", records([Asked("Where is A-1?")]))
    assert evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")[0] == 0


def turns_of(evaltap: Evaltap, *command: str) -> tuple[float, str]:
    """Return how many turns a command looks at, and what it says besides."""
    _, out, said = evaltap(*command, "--json")
    found = json.loads(out)
    if command[0] == "curate":
        return found["window"], said
    if command[1] == "duplicates":
        return sum(len(one["members"]) for one in found["groups"]), said
    return sum(one["turns"] for one in found if one.get("by", "tools") == "tools"), said


@pytest.mark.slow
def test_they_are_warned_of(evaltap: Evaltap, tmp_path: Path) -> None:
    _, _, alone = evaltap(*RUN)
    land_traffic(evaltap, tmp_path)
    _, _, beside = evaltap(*RUN, "--dry-run")

    assert "holds traffic" not in alone
    assert "x.duckdb: holds traffic, too" in beside


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("estimate", "x.duckdb", "--signal", "error_rate"),
        ("curate", "x.duckdb", "--out", "new.evalset.json"),
        ("set", "coverage", "x.duckdb"),
        ("set", "duplicates", "x.duckdb"),
    ],
)
def test_they_are_left_out_and_said_to_be(
    evaltap: Evaltap, tmp_path: Path, command: tuple[str, ...]
) -> None:
    alone, nothing = turns_of(evaltap, *command)
    land_traffic(evaltap, tmp_path)
    beside, said = turns_of(evaltap, *command)

    assert (alone, beside) == (2, 1)
    assert "left out" not in nothing
    assert LEFT_OUT in said


@pytest.mark.slow
def test_they_are_looked_at_if_the_environment_is_named(evaltap: Evaltap, tmp_path: Path) -> None:
    land_traffic(evaltap, tmp_path)
    estimate = ("estimate", "x.duckdb", "--signal", "error_rate")

    for more, turns in (
        (("--where", "environment = 'experiment'"), 2),
        (("--by", "environment"), 3),
    ):
        found, said = turns_of(evaltap, *estimate, *more)
        assert (found, "left out" in said) == (turns, False)


@pytest.mark.slow
def test_no_watch_sees_them(evaltap: Evaltap, tmp_path: Path) -> None:
    land_traffic(evaltap, tmp_path)
    watch = Watch.model_validate(
        {"name": "failing", "signal": "error_rate", "above": 0.1, "hours": 1}
    )

    with Store("x.duckdb") as store:
        counting = counting_of(store, watch)
        assert counting is not None
        assert len(read_turns(store, watch, counting)) == 1


@pytest.mark.slow
def test_periods_are_compared_without_them(evaltap: Evaltap, tmp_path: Path) -> None:
    land_traffic(evaltap, tmp_path)  # without a score

    for chosen, is_empty in (("2020-01-01/", True), ("environment=experiment", False)):
        _, _, said = evaltap("compare", f"x.duckdb@{chosen}", f"x.duckdb@{chosen}")
        assert ("contains no scored turns" in said) is is_empty


@pytest.mark.slow
def test_a_report_says_that_they_are_among_its_cases(evaltap: Evaltap, tmp_path: Path) -> None:
    _, alone, _ = evaltap("report", "x.duckdb")
    land_traffic(evaltap, tmp_path)
    _, both, _ = evaltap("report", "x.duckdb")
    _, runs, _ = evaltap("report", "x.duckdb", "--where", "environment = 'experiment'")

    among = "2 turns of `evaltap run` and `evaltap replay` are among these cases"
    assert [among in shown for shown in (alone, both, runs)] == [False, True, False]
