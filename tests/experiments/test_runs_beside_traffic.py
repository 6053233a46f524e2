"""Runs of an agent on cases in the store of its traffic: nothing that describes traffic counts them."""

import json
from contextlib import chdir
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.monitoring.turns import counting_of, read_turns
from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import cases, overview
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from evaltap.schemas.formats.monitor import Watch
from support.builders.cases import write_log
from support.builders.commands import Evaltap
from support.worlds.once import made_once
from support.worlds.running_agents import case, write_set
from support.worlds.shop import Asked, records

RUN = ("run", "math.evalset.json", "--agent", "agents:answer", "--metrics", "metrics.json",
       "--db", "x.duckdb")  # fmt: skip
LEFT_OUT = "2 turns of `evaltap run` and `evaltap replay` left out"


@made_once
def two_runs(folder: Path) -> Path:
    write_set(folder, [case("sum", "add 2 3"), case("product", "mul 6 7")])
    with chdir(folder):
        assert main(RUN) == 0
    return folder / "x.duckdb"


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evaltap:
    """Two runs have landed, of a turn each."""
    two_runs(tmp_path)
    capsys.readouterr()
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


@pytest.mark.slow
def test_a_weighted_report_says_once_where_they_count(evaltap: Evaltap, tmp_path: Path) -> None:
    half = Asked("Where is A-1?", source={"inclusionProbability": 0.5})
    write_log(tmp_path / "log.db", records([half]))
    rule = {"id": "polite", "type": "contains", "values": ["please"]}
    metric = {
        "metricName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [rule]}},
    }
    (tmp_path / "live.json").write_text(json.dumps([metric]))
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "live.json",
            "--until-idle")  # fmt: skip

    _, shown, _ = evaltap("report", "x.duckdb", "--json")

    noted = [one for one in json.loads(shown)["notes"] if "of `evaltap run`" in one]
    assert len(noted) == 1
    assert "are among these cases, not in the rates; --where" in noted[0]


def on_page(**given: str) -> PageRequest:
    return PageRequest(given, Person("ann", "admin"), Path("x.duckdb"))


@pytest.mark.slow
def test_the_page_counts_them_only_without_traffic(evaltap: Evaltap, tmp_path: Path) -> None:
    def shown() -> tuple[overview.Overview, int]:
        with Store("x.duckdb") as store:
            Summaries(store).refresh()
            with Readers(store).reading() as reader:
                page = overview.read(reader, on_page())
                return page, sum(sum(one.rate.counts.values()) for one in page.metrics)

    alone, verdicts_alone = shown()
    land_traffic(evaltap, tmp_path)  # without a score
    beside, verdicts_beside = shown()

    assert (alone.turns, verdicts_alone, alone.left_out) == (2, 4, "")
    assert (beside.turns, verdicts_beside) == (1, 0)
    assert beside.delivery is not None
    assert beside.delivery.unscored == 1
    assert LEFT_OUT in beside.left_out


@pytest.mark.slow
@pytest.mark.parametrize("summarised", [True, False])
def test_lists_of_cases_leave_them_out_unless_the_filter_names_them(
    evaltap: Evaltap, tmp_path: Path, summarised: bool
) -> None:
    land_traffic(evaltap, tmp_path)

    with Store("x.duckdb") as store:
        if summarised:
            Summaries(store).refresh()
        with Readers(store).reading() as reader:
            pages = [cases.read(reader, on_page(q=q)) for q in ("", "environment:experiment")]
    _, _, said = evaltap("cases", "x.duckdb")
    listed = [
        json.loads(evaltap("cases", "x.duckdb", *chosen, "--json")[1])
        for chosen in ((), ("set:math*",), ("--where", "environment = 'experiment'"))
    ]

    assert [page.matched for page in pages] == [1, 2]
    assert LEFT_OUT in pages[0].left_out
    assert not pages[1].left_out
    assert [len(found) for found in listed] == [1, 2, 2]
    assert LEFT_OUT in said
