"""Turns close to the maximum size of a record are landed, scored and summarised like any other."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.curation.curate import Means, curate
from evaltap.evaluator.curation.recipe import BUILT_IN
from evaltap.evaluator.ingest.landing.cases import landed_cases
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import LANDING_MEMORY, Store
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)

TURNS, TURN_BYTES = 160, 450_000
LARGE_SESSIONS, LITTLE_MEMORY = 400, 100
"""Sessions of 225 KB, and megabytes of memory for DuckDB."""


def write_cases(
    log: Path, count: int, at_a_time: int, case_of: Callable[[int], dict[str, Any]]
) -> None:
    """Append the cases of the numbers 0 to `count`, so few at a time that they fit into memory."""
    for first in range(0, count, at_a_time):
        cases = [case_of(number) for number in range(first, first + at_a_time)]
        write_log(log, make_records(cases, first_seq=first + 1))


def large_case(number: int) -> dict[str, Any]:
    """Return a case that does not shrink much when it is compressed, and whose reference differs."""
    text = random.Random(number).randbytes(TURN_BYTES // 4).hex()
    asked = make_turn("t", userContent={"role": "user", "content": f"Where is order {number}?"})
    actual = asked | {"tools": [make_tool(result={"text": text})]}
    expected = asked | {"tools": [make_tool(result={"text": "other"})]}
    return make_case(f"large-{number}", [actual]) | {"conversation": [expected]}


@pytest.mark.slow
@pytest.mark.parametrize("read_back", [False, True], ids=["from memory", "read back"])
def test_large_turns_are_landed_and_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_back: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.db"
    write_cases(log, TURNS, 20, large_case)
    Path("m.json").write_text(json.dumps([TRAJECTORY, RESPONSE]))
    Path("r.jsonl").write_text(json.dumps(make_case("nobody")) + "\n")
    references = ["--references", "r.jsonl"] if read_back else []

    consume = ["consume", "--log", str(log), "--db", "x.duckdb", "--metrics", "m.json"]
    main([*consume, *references, "--until-idle"])

    with Store("x.duckdb") as store:
        assert store.rows("SELECT count(*) FROM turns") == [(TURNS,)]
        assert store.rows("SELECT count(*) FROM scores") == [(2 * TURNS,)]


@pytest.mark.slow
def test_thousands_of_turns_that_do_not_fit_into_memory_together_are_landed_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.db"
    consume = ["consume", "--log", str(log), "--db", "x.duckdb", "--until-idle"]
    write_cases(log, 2_400, 200, lambda n: make_case(f"s-{n}", [long_turn(n)]))
    assert main(consume) == 0
    # Few and small, but stored next to large ones.
    write_log(log, make_records([make_case(f"small-{n}") for n in range(10)], first_seq=2_401))
    assert main(consume) == 0

    with Store("x.duckdb") as store:
        assert store.rows("SELECT count(*) FROM turns") == [(2_410,)]


def long_turn(number: int) -> dict[str, Any]:
    text = random.Random(number).randbytes(22_000).hex()
    return make_turn("t") | {"tools": [make_tool(result={"text": text})]}


@pytest.mark.slow
def test_reasons_that_do_not_fit_into_memory_together_are_summed_up_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [make_case(f"s-{number}") for number in range(300)]
    write_log(tmp_path / "log.db", make_records(cases))
    Path("m.json").write_text(json.dumps([RESPONSE]))
    consume = ["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json"]
    code = main([*consume, "--until-idle"])
    with Store("x.duckdb") as store:
        store.execute("UPDATE scores SET reason = repeat(md5(eval_id), 10_000)")

    assert main([*consume, "--until-idle", "--report", "report.json"]) == code

    assert len(json.loads(Path("report.json").read_text())["cases"]) == 300


@pytest.mark.slow
def test_bad_records_that_come_again_are_known_among_letters_that_do_not_fit_into_memory(
    tmp_path: Path,
) -> None:
    log = Partition("topic")

    def junk(offset: int, seed: int) -> SourceBatch:
        value = random.Random(seed).randbytes(1_000_000)
        return SourceBatch((SourceRecord(log, offset, WireRecord(b"k", value)),), {})

    with Store(tmp_path / "x.duckdb") as store:
        lander = Lander(store)
        for offset in range(100):
            lander.land(junk(offset, offset))

    with Store(tmp_path / "x.duckdb") as store, store.limited_memory(LANDING_MEMORY):
        lander = Lander(store)
        same, other = lander.land(junk(7, 7)), lander.land(junk(7, 700))

    assert (same.duplicates, same.dead_letters) == (1, 0)
    assert (other.duplicates, other.dead_letters) == (0, 1)


@pytest.mark.slow
def test_sessions_whose_input_is_large_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    consume = ["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"]
    write_cases(Path("log.db"), 300, 20, lambda n: session(n, "t-1"))
    assert main(consume) == 0
    write_log(
        Path("log.db"), make_records([session(n, "t-2") for n in range(0, 300, 15)], first_seq=301)
    )
    assert main(consume) == 0

    with Store("x.duckdb") as store:
        assert store.rows("SELECT count(*), max(turn_count) FROM latest_cases") == [(300, 2)]


def session(number: int, turn: str) -> dict[str, Any]:
    """Return a turn of a session that was given much to know."""
    state = {"text": random.Random(number).randbytes(150_000).hex()}
    given = {"appName": "app", "userId": "u", "state": state}
    return make_case(f"s-{number}", [make_turn(turn)]) | {"sessionInput": given}


@pytest.mark.slow
def test_large_turns_that_do_not_fit_into_memory_together_are_scored_reported_curated_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.db"
    write_cases(log, LARGE_SESSIONS, 100, large_case)
    assert main(["consume", "--log", str(log), "--db", "x.duckdb", "--until-idle"]) == 0
    metric = EvalMetric.model_validate(TRAJECTORY)

    with Store("x.duckdb") as store:
        store.limit_memory(LITTLE_MEMORY)
        _, scored = PendingScorer(store, CaseScorer([metric])).score("landed", "x.duckdb")
        report = read_report(store)
        sessions = sum(1 for _ in landed_cases(store))
        curated = curate(store, BUILT_IN["representative"].everything(), Means())

    assert (scored, sessions, len(curated.cases)) == (LARGE_SESSIONS,) * 3
    assert all(case.evidence for case in report.cases)
