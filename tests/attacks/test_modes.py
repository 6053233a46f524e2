"""Permissions of the files that evaltap writes: only the owner can read them, whatever the umask."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.cases import write_json_lines
from evaltap.evaluator.pipeline.batch.crash_guard import CrashGuard
from evaltap.evaluator.scoring.results.parquet import read_results_from
from evaltap.evaluator.store.database import Store
from evaltap.schemas.log.folders import spool_folder
from evaltap.schemas.log.location import KafkaLocation, parse_log_location
from support.builders.cases import make_case, make_records, make_turn, write_log


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(folder)} {path.stat().st_mode & 0o777:o}"
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o077
    ]


@pytest.mark.slow
def test_nothing_that_the_commands_write_is_for_others(here: Path) -> None:
    work = here / "work"
    work.mkdir()
    case = make_case(turns=[make_turn()])
    case["conversation"] = [make_turn("e-1", "else")]
    (here / "c.jsonl").write_text(json.dumps(case) + "\n")
    (here / "c.csv").write_text("question,answer\na,b\n")
    text: dict[str, Any] = {"finalResponse": {"text": {}}}
    metric = {"metricName": "final_response_avg_score", "threshold": 1, "criterion": text}
    (here / "m.json").write_text(json.dumps([metric]))
    write_log(work / "log.db", make_records([case]))

    score = ["score", "c.jsonl", "--metrics", "m.json", "--result", "work/out"]
    reports = [
        part for kind in ("html", "md", "json", "xml") for part in ("--report", f"work/r.{kind}")
    ]
    assert main([*score, "--db", "work/x.duckdb", *reports]) == 1
    consume = ["consume", "--log", "work/log.db", "--db", "work/y.duckdb", "--metrics", "m.json"]
    assert main([*consume, "--until-idle"]) in (0, 1, 3)
    assert main(["set", "export", "work/y.duckdb", "--out", "work/e.evalset.json"]) == 0
    assert main(["set", "export", "work/y.duckdb", "--out", "work/e.jsonl"]) == 0
    assert main(["convert", "c.csv", "--out", "work/c.evalset.json"]) == 0
    assert main(["convert", "c.csv", "--out", "work/c.jsonl"]) == 0
    assert main(["store", "erase", "--subject", "user", "--db", "work/y.duckdb"]) == 0

    assert len([*work.rglob("*")]) > 10
    assert open_to_others(work) == []


def test_a_store_opened_from_python_is_private_with_its_log(here: Path) -> None:
    with Store(here / "x.duckdb") as store:
        with store.transaction():
            store.append("meta", [("a", "b")])

        assert (here / "x.duckdb.wal").exists()
        assert open_to_others(here) == []


def test_a_store_that_was_opened_to_others_on_purpose_stays_so(here: Path) -> None:
    Store(here / "x.duckdb").close()
    (here / "x.duckdb").chmod(0o640)

    Store(here / "x.duckdb").close()

    assert (here / "x.duckdb").stat().st_mode & 0o777 == 0o640


def test_notes_parts_and_lists_are_private(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = CrashGuard(here / "x.duckdb")
    guard.died([("a", "b", "c")], alone=True)
    guard.done()
    guard.cleared([])
    assert (here / "x.duckdb.scoring").exists()
    with Store(here / "y.duckdb") as store:
        read_results_from(store, here / "results")
    write_json_lines(here / "c.jsonl", [make_case()])
    monkeypatch.setenv("EVALTAP_SPOOL_DIR", str(here / "spool"))
    location = parse_log_location("kafka://localhost:9092/topic")
    assert isinstance(location, KafkaLocation)
    spool_folder(location)

    assert open_to_others(here) == []


@pytest.mark.parametrize("path", ["e.jsonl", "e.evalset.json"])
def test_a_link_that_waits_beside_a_file_is_not_followed(here: Path, path: str) -> None:
    victim = here / "victim"
    victim.write_text("precious")
    (here / f"{path}.tmp").symlink_to(victim)
    (here / "c.csv").write_text("question,answer\na,b\n")

    assert main(["convert", "c.csv", "--out", path]) == 0

    assert victim.read_text() == "precious"
