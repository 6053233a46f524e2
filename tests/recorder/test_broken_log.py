"""A log or spool that the disk has damaged is set aside, and recording continues with a new one."""

import logging
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from evaltap.recorder import Recorder
from evaltap.recorder.delivery.sinks.local_log import LocalLogSink
from evaltap.recorder.delivery.spool.forwarder import Forwarder
from evaltap.recorder.delivery.spool.spool import SpoolReader, damaged_spools, new_spool
from evaltap.recorder.faults import SinkError
from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records, write_log

RECORDS = make_records([make_case(f"s-{n}") for n in range(200)])
PAGE = 4096


def break_pages(path: Path) -> None:
    """Overwrite all but the first page with what no page looks like."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"\xee" * (size - PAGE))


def break_one_page(path: Path) -> None:
    """Overwrite a page in the middle with what no page looks like."""
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(pages // 2 * PAGE)
        file.write(b"\xee" * PAGE)


def append_somehow(sink: LocalLogSink) -> int:
    """Append as the outlet does, again while it is not taken; return the number of refusals."""
    for refused in range(5):
        try:
            sink.append(RECORDS[:1])
        except SinkError:
            continue
        return refused
    raise AssertionError("never taken")


def test_a_log_that_was_broken_before_the_process_began_is_set_aside(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.db", RECORDS)
    break_pages(path)
    broken = path.read_bytes()
    sink = LocalLogSink(path, min_free_bytes=0)

    refused = append_somehow(sink)

    assert refused == 1
    log = open_log(path, mode="read")
    assert [record for _, record in log.read(0, 10)] == RECORDS[:1]
    log.close()
    (aside,) = tmp_path.glob("log.db.bad-*")
    assert aside.read_bytes() == broken
    sink.close()


def test_a_log_that_breaks_under_a_process_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    sink = LocalLogSink(path, min_free_bytes=0)
    sink.append(RECORDS)
    sink.close()
    sink.append(RECORDS[:1])
    sink.close()
    break_pages(path)

    refused = append_somehow(sink)

    assert refused == 1
    assert list(tmp_path.glob("log.db.bad-*"))
    sink.close()


@pytest.mark.parametrize("content", [b"my notes\n" * 1000, b"SQLite format 3\0" + b"\xee" * 9000])
def test_a_file_that_does_not_say_it_is_a_log_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(content)
    sink = LocalLogSink(path, min_free_bytes=0)

    with pytest.raises(SinkError):
        sink.append(RECORDS[:1])

    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_the_agents_log_names_the_file_that_cannot_be_written_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "notes.txt").write_text("Not a log.")

    with caplog.at_level(logging.WARNING, logger="evaltap.recorder"):
        recorder = Recorder(str(tmp_path / "notes.txt"))
        with recorder.turn(user="Hi") as turn:
            turn.respond("Hello.")
        recorder.close(0.2)

    (warning,) = [one.getMessage() for one in caplog.records]
    assert f"{tmp_path / 'notes.txt'} is not an evaltap log (not a SQLite file)" in warning


def test_the_forwarder_goes_on_with_the_new_spool(tmp_path: Path) -> None:
    spool = new_spool(tmp_path)
    sink = LocalLogSink(spool.path, min_free_bytes=0)
    sink.append(RECORDS)
    sink.close()
    sent: list[WireRecord] = []
    with SpoolReader(spool, threading.Lock()) as reader:
        reader.sent(reader.next()[0][0])
        break_pages(spool.path)
        append_somehow(sink)

        # SQLite may have kept some of the broken file in memory: that is sent too.
        while window := reader.next():
            sent += [record for _, record in window]
            with suppress(sqlite3.DatabaseError):
                reader.sent(window[-1][0])

    assert sent[-1] == RECORDS[0]
    assert all(record in RECORDS for record in sent)
    assert list(tmp_path.glob("*.bad-*"))
    sink.close()
    spool.release()


def test_the_records_before_a_broken_page_are_read_before_the_error(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.db", RECORDS)
    break_one_page(path)

    with closing(open_log(path, mode="read")) as log:
        before = log.read(0, 1_000)
        with pytest.raises(sqlite3.DatabaseError):
            log.read(before[-1][0] + 1, 1_000)

    assert 0 < len(before) < len(RECORDS)
    assert [record for _, record in before] == RECORDS[: len(before)]


class Taken:
    """A broker that takes everything, and remembers it."""

    def __init__(self) -> None:
        self.records: list[WireRecord] = []

    def connect(self) -> "Taken":
        return self

    def send(self, record: WireRecord) -> "Taken":
        self.records.append(record)
        return self

    def wait(self, timeout_seconds: float) -> bool:
        return True

    def close(self) -> None:
        """Have nothing to close."""


@pytest.mark.parametrize("left_behind", [True, False])
def test_one_broken_page_of_a_spool_costs_the_turns_on_it_and_no_others(
    tmp_path: Path, left_behind: bool
) -> None:
    broken = new_spool(tmp_path)
    write_log(broken.path, RECORDS)
    break_one_page(broken.path)
    taken = Taken()
    if left_behind:
        broken.release()
    own = new_spool(tmp_path) if left_behind else broken
    write_log(own.path, RECORDS[:1])
    forwarder = Forwarder(taken.connect, own)
    forwarder.added(1 if left_behind else len(RECORDS) + 1)
    forwarder.start()

    assert forwarder.drained(30), "nobody waits for what cannot be read"
    unread = forwarder.waiting
    forwarder.stop()

    missing = [number for number, record in enumerate(RECORDS) if record not in taken.records]
    assert 0 < len(missing) < 20
    assert missing == list(range(missing[0], missing[-1] + 1)), "they lay on one page"
    assert unread == (0 if left_behind else len(missing)), "they still count as waiting"
    assert list(tmp_path.glob("*.log.db")) == []
    (aside,) = damaged_spools(tmp_path)
    assert aside.name.startswith(f"{broken.path.name}.bad-")
    with closing(open_log(aside, mode="read")) as log:
        kept = [record for _, record in log.read(0, 1_000)]
    assert kept == RECORDS[: missing[0]], "nothing was deleted from it"


def test_a_damaged_spool_is_set_aside_while_its_process_goes_on(tmp_path: Path) -> None:
    spool = new_spool(tmp_path)
    sink = LocalLogSink(spool.path, min_free_bytes=0)
    write_log(spool.path, RECORDS)
    break_one_page(spool.path)
    sent: list[WireRecord] = []

    with SpoolReader(spool, threading.Lock()) as reader:
        while window := reader.next():
            sent += [record for _, record in window]
            reader.sent(window[-1][0])
        sink.append(RECORDS[:1])
        (last,) = reader.next()

    assert last[1] == RECORDS[0]
    assert len(RECORDS) - 20 < len(sent) < len(RECORDS)
    assert len(damaged_spools(tmp_path)) == 1
    sink.close()
    spool.release()
