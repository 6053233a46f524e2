"""The references of landed cases are stored, so that every reader sees what was expected."""

import json
import re
from contextlib import chdir
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from support.builders.cases import (
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)
from support.builders.commands import Evaltap
from support.worlds.once import made_once


def refund(amount: int) -> dict[str, object]:
    return make_turn(tools=[make_tool("refund", arguments={"amount": amount})])


def golden(amount: int, path: str = "golden.jsonl", name: str = "s-1") -> None:
    case = {"evalId": name, "conversation": [refund(amount)]}
    Path(path).write_text(json.dumps(case) + "\n")


@made_once
def scored_store(folder: Path) -> Path:
    with chdir(folder):
        write_log(Path("log.db"), make_records([make_case("s-1", [refund(100)])]))
        Path("m.json").write_text(json.dumps([TRAJECTORY]))
        golden(10)
        code = main(
            ["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--references",
             "golden.jsonl", "--until-idle"]
        )  # fmt: skip
        assert code == 1
        Path("golden.jsonl").unlink()
    return folder / "x.duckdb"


@pytest.fixture(autouse=True)
def _scored(evaltap: Evaltap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that refunds 100, scored against a reference that refunds 10, whose file is gone."""
    scored_store(tmp_path)
    capsys.readouterr()


def calls_in_report(evaltap: Evaltap, *options: str) -> list[str]:
    evaltap("report", "x.duckdb", "--out", "r.html", *options)
    return re.findall(r'<li class="step (\w+)"', Path("r.html").read_text())


@pytest.mark.slow
def test_a_report_shows_the_expected_calls_without_the_file(evaltap: Evaltap) -> None:
    assert calls_in_report(evaltap) == ["changed"]


def test_show_prints_what_was_expected(evaltap: Evaltap) -> None:
    _, shown, _ = evaltap("show", "x.duckdb", "s-1")

    assert 'refund({"amount":100})' in shown
    assert re.search(r'expected\s+.*refund\(\{"amount":10\}\)', shown, re.DOTALL)


def test_show_says_of_what_nothing_was_expected(evaltap: Evaltap) -> None:
    golden(100)
    (case,) = [json.loads(line) for line in Path("golden.jsonl").read_text().splitlines()]
    case["conversation"][0] = {"capture": {"tools": "missing"}}
    Path("golden.jsonl").write_text(json.dumps(case))
    evaltap("score", "x.duckdb", "--metrics", "m.json", "--references", "golden.jsonl")

    _, shown, _ = evaltap("show", "x.duckdb", "s-1")

    assert re.search(r"expected\s+capture\s+tools is missing", shown)


@pytest.mark.slow
def test_each_run_is_shown_with_the_references_it_used(evaltap: Evaltap) -> None:
    golden(100)
    evaltap("score", "x.duckdb", "--metrics", "m.json", "--references", "golden.jsonl")
    with Store("x.duckdb") as store:
        runs = [run for (run,) in store.rows("SELECT run_id FROM runs ORDER BY started_at")]

    assert [calls_in_report(evaltap, "--run", run) for run in runs] == [["changed"], ["same"]]


def test_references_given_to_the_report_come_first(evaltap: Evaltap) -> None:
    golden(100)

    assert calls_in_report(evaltap, "--references", "golden.jsonl") == ["same"]


def test_references_are_kept_once_however_often_they_are_used(evaltap: Evaltap) -> None:
    golden(10)
    evaltap("score", "x.duckdb", "--metrics", "m.json", "--references", "golden.jsonl", "--retry")

    with Store("x.duckdb") as store:
        assert store.rows("SELECT eval_id, join_by FROM reference_cases") == [("s-1", "auto")]


def test_a_case_joined_by_the_users_words_shows_its_reference(evaltap: Evaltap) -> None:
    golden(7, name="g-1")
    evaltap("score", "x.duckdb", "--metrics", "m.json", "--references", "golden.jsonl")
    Path("golden.jsonl").unlink()

    _, shown, _ = evaltap("show", "x.duckdb", "s-1")

    assert '{"amount":7}' in shown


def test_the_words_of_a_references_user_are_not_kept(evaltap: Evaltap) -> None:
    turn = refund(10) | {"userContent": {"role": "user", "content": "I am ada@example.com"}}
    Path("golden.jsonl").write_text(json.dumps({"evalId": "s-1", "conversation": [turn]}) + "\n")
    evaltap("score", "x.duckdb", "--metrics", "m.json", "--references", "golden.jsonl")

    with Store("x.duckdb") as store:
        kept = str(store.rows("FROM reference_cases"))
    assert "ada@example" not in kept
    assert "amount" in kept


@pytest.mark.slow
def test_erase_takes_the_references_of_a_person(evaltap: Evaltap) -> None:
    code, _, _ = evaltap("store", "erase", "--subject", "s-1", "--db", "x.duckdb")

    assert code == 0
    with Store("x.duckdb") as store:
        assert store.rows("FROM reference_cases") == []


def test_prune_takes_references_that_no_run_names(evaltap: Evaltap) -> None:
    with Store("x.duckdb") as store:
        store.execute("DELETE FROM run_metrics")

    _, out, _ = evaltap("store", "prune", "x.duckdb", "--older-than", "90d", "--json")

    assert json.loads(out)["rows"] == {"reference_cases": 1}
