"""The report of `evaltap doctor` about the spools in front of a broker."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.recorder.delivery.spool.spool import Spool, new_spool
from evaltap.recorder.diagnostics import Diagnostic, log_diagnostic, log_diagnostics
from evaltap.schemas.log.folders import spool_folder
from evaltap.schemas.log.local import open_log, quarantine
from support.builders.cases import make_case, make_records, write_log
from support.builders.topics import location

LOG = "kafka://127.0.0.1:9/cases"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALTAP_SPOOL_DIR", str(tmp_path / "spool"))
    return spool_folder(location(LOG))


@pytest.fixture
def living(folder: Path) -> Iterator[Spool]:
    """The spool of a process that lives: three records, two of them acknowledged."""
    spool = new_spool(folder)
    write_log(spool.path, make_records([make_case(f"s-{n}") for n in range(3)]))
    with closing(sqlite3.connect(spool.path)) as log, log:
        log.execute("INSERT INTO cursors VALUES ('kafka', 3, 0)")
    yield spool
    spool.release()


def seen() -> Diagnostic:
    return log_diagnostic(LOG, 1 << 30)


def test_nothing_waits_where_nothing_was_spooled() -> None:
    assert (seen().found, seen().verdict) == ("0 records waiting for the broker", "ok")


def test_what_a_living_process_has_not_sent_is_counted(living: Spool) -> None:
    assert (seen().found, seen().verdict) == ("1 records waiting for the broker", "ok")


def test_what_ended_processes_left_is_told_apart(folder: Path, living: Spool) -> None:
    left = new_spool(folder)
    write_log(left.path, make_records([make_case("a"), make_case("b")]))
    left.release()

    assert seen().found == "3 records waiting for the broker, 2 of them from ended processes"
    assert seen().verdict == "note"


def test_what_the_broker_never_took_is_a_problem_with_a_remedy(living: Spool) -> None:
    write_log(living.rejected_path, make_records([make_case("big")]))

    assert seen().found.endswith("the broker refused 1 more")
    assert seen().remedy == f"land them with evaltap consume --log {living.rejected_path}"


def test_a_spool_that_cannot_be_read_is_a_problem(living: Spool) -> None:
    with closing(sqlite3.connect(living.path)) as log:
        log.execute("PRAGMA user_version = 99")

    assert seen().verdict == "problem"
    assert "format 99" in seen().found


def test_the_doctor_shows_it_also_while_the_broker_is_away(
    living: Spool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVALTAP_LOG", LOG)

    monkeypatch.setenv("EVALTAP_KAFKA_BOOTSTRAP_TIMEOUT_MS", "300")

    assert main(["doctor", "--log", LOG]) == 1

    said = capsys.readouterr().out
    assert f"spool for {LOG}: 1 records waiting for the broker" in said
    assert "PROBLEM topics: kafka://127.0.0.1:9/cases: no broker answers" in said


def test_a_spool_that_was_set_aside_as_damaged_is_a_problem_with_a_remedy(folder: Path) -> None:
    left = new_spool(folder)
    write_log(left.path, make_records([make_case("a")]))
    aside = quarantine(left.path)
    left.release()

    assert seen().verdict == "problem"
    assert seen().found.endswith("1 spools were damaged and set aside")
    assert f"evaltap consume --log {aside}," in seen().remedy


def test_a_spool_whose_header_is_still_in_its_journal_can_be_set_aside(folder: Path) -> None:
    spool = new_spool(folder)
    log = open_log(spool.path, mode="append")  # open, so that nothing is checkpointed
    log.append(make_records([make_case("a")]))

    assert spool.path.read_bytes()[68:72] == bytes(4)
    assert quarantine(spool.path) is not None

    log.close()
    spool.release()


def leave(folder: Path, count: int) -> None:
    """Leave a spool behind, as a process does that ends while the broker is away."""
    left = new_spool(folder)
    write_log(left.path, make_records([make_case(f"s-{n}") for n in range(count)]))
    left.release()


def test_what_waits_for_other_brokers_is_told_with_their_log(folder: Path, living: Spool) -> None:
    elsewhere = "kafka://10.0.0.1:9092/cases"
    leave(spool_folder(location(elsewhere)), 2)

    own, other = log_diagnostics(LOG, 1 << 30)

    assert own.found == "1 records waiting for the broker", "those of others are not among them"
    assert other.found == f"2 unsent records that ended processes left for {elsewhere}"
    assert other.verdict == "problem"
    assert other.remedy.startswith(f"record to {elsewhere} once")
    assert f"to {folder} if they are for {LOG}" in other.remedy


def test_what_an_older_version_left_in_the_folder_of_the_topic_is_told(folder: Path) -> None:
    leave(folder.parent, 3)

    _, other = log_diagnostics(LOG, 1 << 30)

    assert other.about == f"spools in {folder.parent}"
    assert other.found.startswith("3 unsent records that ended processes left by an older evaltap")
    assert f"move {folder.parent}/*.log.db* to {folder}" in other.remedy


def test_what_the_broker_never_took_of_an_older_version_is_told_too(folder: Path) -> None:
    rejected = folder.parent / "1-a.log.db.rejected"
    write_log(rejected, make_records([make_case("big")]))

    _, other = log_diagnostics(LOG, 1 << 30)

    assert other.found.startswith("0 unsent records")
    assert other.found.endswith("the broker refused 1 more")
    assert other.remedy.endswith(f"land those with evaltap consume --log {rejected}")


def test_a_cluster_is_the_same_in_whatever_order_its_brokers_are_named() -> None:
    folders = {
        spool_folder(location(f"kafka://{brokers}/cases"))
        for brokers in ("a:9092,b:9092", "B:9092,a:9092", "a:9092", "a:9093")
    }

    assert len(folders) == 3
