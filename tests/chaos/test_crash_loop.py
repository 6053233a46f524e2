"""A case that kills the scoring process is given up after a few restarts; the others are scored."""

import os
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos import victims
from chaos.evidence import read_store_file
from support.builders.cases import make_case, make_records, make_turn, write_log

MOST_RESTARTS = 3
CASES = 120
METRIC = {
    "metricName": "python_function",
    "threshold": 1,
    "criterion": {"function": {"path": "chaos.deadly_evaluator:not_deadly"}},
}


def write_input(folder: Path, deadly: set[int]) -> None:
    cases = [
        make_case(f"s-{n}", [make_turn("t", answer="abort here" if n in deadly else "fine")])
        for n in range(CASES)
    ]
    write_log(folder / "log.db", make_records(cases))
    (folder / "metrics.json").write_bytes(orjson.dumps([METRIC]))


def consume_to_the_end(folder: Path) -> int:
    """Start the consumer again each time it dies, as a supervisor does; return how often."""
    for restarts in range(20):
        process = victims.start(victims.consume, folder)
        process.join()
        if process.exitcode != -signal.SIGABRT:
            assert process.exitcode in (0, 1, 3), (folder / "said.txt").read_text()
            return restarts
    raise AssertionError("a crash loop")


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("deadly", [{60}, {CASES - 1}, {3, 110}])
def test_a_case_that_kills_its_process_is_given_up_and_the_others_are_scored(
    tmp_path: Path, deadly: set[int]
) -> None:
    write_input(tmp_path, deadly)

    restarts = consume_to_the_end(tmp_path)

    scores: list[dict[str, Any]] = read_store_file(tmp_path / "x.duckdb")["scores"]
    errors = {row["eval_id"]: row for row in scores if row["status"] == "error"}
    assert restarts <= MOST_RESTARTS * len(deadly)
    assert len(scores) == CASES
    assert set(errors) == {f"s-{n}" for n in deadly}
    assert all("the process died 2 times" in row["reason"] for row in errors.values())
    assert all(row["score"] is None for row in errors.values())
    assert not list(tmp_path.glob("*.scoring"))


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_kill_from_outside_makes_no_case_an_error(tmp_path: Path) -> None:
    write_input(tmp_path, set())
    note = tmp_path / "x.duckdb.scoring"
    victims.start(victims.consume, tmp_path).join()
    os.unlink(tmp_path / "x.duckdb")
    under_way = [["app", f"s-{n}", f"s-{n}"] for n in range(50)]
    note.write_bytes(orjson.dumps({"suspects": [], "under_way": under_way}))

    process = victims.start(victims.consume, tmp_path)
    process.join()

    scores = read_store_file(tmp_path / "x.duckdb")["scores"]
    assert {row["status"] for row in scores} == {"passed"}
    assert len(scores) == CASES
    assert not note.exists()
