"""The forwarder over a real spool and an in-memory broker: what it sends, when it advances, what it
retains."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from evaltap.recorder.delivery.spool.forwarder import Forwarder, SpoolSender
from evaltap.recorder.delivery.spool.spool import (
    WINDOW_BYTES,
    WINDOW_RECORDS,
    Spool,
    SpoolReader,
    new_spool,
)
from evaltap.recorder.faults import RecordRefusedError
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records, make_turn
from support.builders.waiting import wait_for

pytestmark = pytest.mark.timeout(60)


class Topic:
    """A broker in memory; `mood` decides what it says to a record."""

    def __init__(self) -> None:
        self.taken: list[WireRecord] = []
        self.mood: Callable[[WireRecord], Exception | None] = lambda record: None
        self.connections = 0

    def connect(self) -> "Connection":
        self.connections += 1
        return Connection(self)

    @property
    def sessions(self) -> list[str]:
        return [(record.key or b"").decode() for record in self.taken]


class Connection:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def send(self, record: WireRecord) -> "Said":
        error = self._topic.mood(record)
        if error is None:
            self._topic.taken.append(record)
        return Said(error)

    def close(self) -> None:
        raise ConnectionError("a producer that cannot even close")


class Said:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def wait(self, timeout_seconds: float) -> bool:
        if self._error is not None:
            raise self._error
        return True


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = new_spool(tmp_path)
    yield spool
    spool.release()


@pytest.fixture
def reader(spool: Spool) -> Iterator[SpoolReader]:
    with SpoolReader(spool, threading.Lock()) as reader:
        yield reader


@pytest.fixture
def topic() -> Topic:
    return Topic()


def carrier(topic: Topic) -> SpoolSender:
    return SpoolSender(topic.connect, lambda: False)


def records(count: int, first: int = 0, answer: str = "done") -> list[WireRecord]:
    cases = [make_case(f"s-{n}", [make_turn(answer=answer)]) for n in range(first, first + count)]
    return make_records(cases, first_seq=first + 1)


def write(spool: Spool, some: Sequence[WireRecord]) -> None:
    with closing(open_log(spool.path, mode="append")) as log:
        log.append(some)


def forwarded(topic: Topic, spool: Spool, count: int) -> Forwarder:
    """Have a forwarder send what a spool of so many records holds, and what others left beside it."""
    forwarder = Forwarder(topic.connect, spool)
    forwarder.added(count)
    forwarder.start()
    assert forwarder.drained(30)
    forwarder.stop()
    return forwarder


def kept(spool: Spool) -> list[str]:
    with closing(open_log(spool.path, mode="read")) as log:
        return [(record.key or b"").decode() for _, record in log.read(0, 10_000)]


def test_a_window_is_bounded_in_records_and_in_bytes(spool: Spool, reader: SpoolReader) -> None:
    write(spool, records(WINDOW_RECORDS + 5))

    assert len(reader.next()) == WINDOW_RECORDS

    reader.sent(reader.next()[-1][0] + 5)
    write(spool, records(30, answer="x" * 900_000))
    window = reader.next()
    assert 1 < len(window) < 30
    assert sum(record.size for _, record in window) <= WINDOW_BYTES


def test_the_cursor_follows_the_acknowledgements_in_order_and_nothing_else(
    spool: Spool, reader: SpoolReader, topic: Topic
) -> None:
    write(spool, records(5))
    topic.mood = lambda record: TimeoutError() if record.key == b"s-2" else None

    result = carrier(topic).send(reader)

    assert (result.records, result.cases, type(result.error)) == (2, 2, TimeoutError)
    assert kept(spool) == ["s-2", "s-3", "s-4"], "what came after the trouble is sent again"

    topic.mood = lambda record: None
    assert carrier(topic).send(reader).records == 3
    assert topic.sessions == ["s-0", "s-1", "s-3", "s-4", "s-2", "s-3", "s-4"]
    assert kept(spool) == []


def test_what_the_broker_never_takes_is_set_aside_and_the_rest_goes_on(
    spool: Spool, reader: SpoolReader, topic: Topic
) -> None:
    write(spool, records(3))
    topic.mood = lambda record: RecordRefusedError() if record.key == b"s-1" else None

    sending = carrier(topic)
    result = sending.send(reader)
    sending.send(reader)

    assert (result.records, result.cases, result.refused_cases) == (2, 1, 1)
    assert topic.sessions[0] == "s-0"
    assert topic.sessions[-1] == "s-2"
    assert reader.is_empty()
    with closing(open_log(spool.rejected_path, mode="read")) as aside:
        assert [record.key for _, record in aside.read(0, 10)] == [b"s-1"]


def test_a_batch_that_is_refused_for_one_record_loses_only_that_one(
    spool: Spool, reader: SpoolReader, topic: Topic
) -> None:
    write(spool, records(4))
    dead: set[int] = set()

    def mood(record: WireRecord) -> Exception | None:
        # As with kafka-python: after a refusal its producer refuses whatever comes.
        if record.key == b"s-2":
            dead.add(topic.connections)
        return RecordRefusedError() if topic.connections in dead else None

    topic.mood = mood
    sending = carrier(topic)
    result = [sending.send(reader), sending.send(reader)]

    assert [(one.cases, one.refused_cases) for one in result] == [(2, 1), (1, 0)]
    assert topic.sessions == ["s-0", "s-1", "s-3"]
    with closing(open_log(spool.rejected_path, mode="read")) as aside:
        assert [record.key for _, record in aside.read(0, 10)] == [b"s-2"]


def test_a_disk_that_takes_no_cursor_does_not_have_records_sent_again(
    spool: Spool, reader: SpoolReader, topic: Topic
) -> None:
    write(spool, records(3))
    sending = carrier(topic)
    assert len(reader.next()) == 3

    with closing(sqlite3.connect(spool.path, isolation_level=None)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON cursors"
                      " BEGIN SELECT RAISE(FAIL, 'disk full'); END")  # fmt: skip
        with pytest.raises(sqlite3.Error, match="disk full"):
            sending.send(reader)
        other.execute("DROP TRIGGER full")
    write(spool, records(1, first=3))
    sending.send(reader)

    assert topic.sessions == ["s-0", "s-1", "s-2", "s-3"]
    assert kept(spool) == []


def test_a_spool_replaced_by_another_file_is_sent_to_its_end_and_so_is_the_new_one(
    spool: Spool, reader: SpoolReader, topic: Topic
) -> None:
    write(spool, records(WINDOW_RECORDS + 1))
    sending = carrier(topic)
    sending.send(reader)

    for ending in ("", "-wal", "-shm"):
        spool.path.with_name(spool.path.name + ending).unlink(missing_ok=True)
    write(spool, records(2, first=1_000))
    while sending.send(reader).records:
        pass

    assert len(topic.taken) == WINDOW_RECORDS + 3
    assert topic.sessions[-2:] == ["s-1000", "s-1001"]


def test_a_spool_that_cannot_be_opened_is_not_taken_for_empty(
    spool: Spool, reader: SpoolReader
) -> None:
    write(spool, records(1))
    with closing(sqlite3.connect(spool.path)) as other:
        other.execute("PRAGMA user_version = 99")

    with pytest.raises(InputError, match="format 99"):
        reader.is_empty()


def test_the_thread_empties_its_spool_and_removes_it(tmp_path: Path, topic: Topic) -> None:
    spool = new_spool(tmp_path)
    forwarder = Forwarder(topic.connect, spool)
    forwarder.start()
    write(spool, records(1_200))
    forwarder.added(1_200)

    assert forwarder.drained(30)
    assert forwarder.waiting == 0
    forwarder.stop()

    assert len(topic.taken) == 1_200
    assert list(tmp_path.iterdir()) == [], "neither the spool nor its lock is left"


def test_records_set_aside_still_count_as_waiting(tmp_path: Path, topic: Topic) -> None:
    topic.mood = lambda record: RecordRefusedError() if record.key == b"s-1" else None
    spool = new_spool(tmp_path)
    forwarder = Forwarder(topic.connect, spool)
    forwarder.start()
    write(spool, records(3))
    forwarder.added(3)

    assert forwarder.drained(30), "nobody waits for what will never be taken"

    assert forwarder.waiting == 1
    assert forwarder.refused == {spool.rejected_path: 1}
    forwarder.stop()


def test_what_is_refused_of_an_ended_process_is_told_with_its_own_file(
    tmp_path: Path, topic: Topic
) -> None:
    topic.mood = lambda record: RecordRefusedError() if record.key in (b"s-1", b"s-10") else None
    left, mine = new_spool(tmp_path), new_spool(tmp_path)
    write(left, records(3))
    left.release()
    write(mine, records(2, first=10))

    forwarder = forwarded(topic, mine, 2)

    assert forwarder.refused == {left.rejected_path: 1, mine.rejected_path: 1}


def test_whoever_waits_is_told_at_once_of_a_setting_that_no_waiting_mends(
    tmp_path: Path, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ConfigurationError("LINGER_MS is 'soon'")
    topic.mood = lambda record: wrong
    spool = new_spool(tmp_path)
    forwarder = Forwarder(topic.connect, spool)
    forwarder.start()
    write(spool, records(2))
    forwarder.added(2)

    assert not forwarder.drained(600), "waited for the broker instead of saying what is wrong"
    assert forwarder.fatal_error is wrong
    assert forwarder.unsent == 2
    wait_for(lambda: "LINGER_MS is 'soon'" in caplog.text)

    topic.mood = lambda record: None
    assert forwarder.drained(30), "mended, it goes on"
    assert forwarder.fatal_error is None
    forwarder.stop()


@pytest.mark.slow
def test_trouble_is_retried_sooner_while_somebody_waits(tmp_path: Path, topic: Topic) -> None:
    # After six failures in a row the pause is five seconds: fourteen more would take over a minute.
    failures = iter(range(20))
    topic.mood = lambda record: None if next(failures, None) is None else TimeoutError()
    spool = new_spool(tmp_path)
    forwarder = Forwarder(topic.connect, spool)
    forwarder.start()
    write(spool, records(1))
    forwarder.added(1)

    assert forwarder.drained(50)

    assert topic.connections == 21
    forwarder.stop()


def test_what_ended_processes_left_is_sent_first_and_a_damaged_spool_is_kept(
    tmp_path: Path, topic: Topic
) -> None:
    left = new_spool(tmp_path)
    write(left, records(3))
    left.release()
    newer = new_spool(tmp_path)
    write(newer, records(1))
    with closing(sqlite3.connect(newer.path)) as other:
        other.execute("PRAGMA user_version = 99")
    newer.release()
    mine = new_spool(tmp_path)
    write(mine, records(2, first=10))

    forwarded(topic, mine, 2)

    assert topic.sessions == ["s-0", "s-1", "s-2", "s-10", "s-11"]
    assert list(tmp_path.glob("*.log.db")) == [newer.path]


def test_a_living_process_keeps_its_spool_to_itself(tmp_path: Path, topic: Topic) -> None:
    theirs = new_spool(tmp_path)
    write(theirs, records(3))
    mine = new_spool(tmp_path)
    write(mine, records(1, first=10))

    forwarded(topic, mine, 1)

    assert topic.sessions == ["s-10"]
    assert kept(theirs) == ["s-0", "s-1", "s-2"]
    theirs.release()


def test_two_forwarders_adopt_an_orphan_once(tmp_path: Path) -> None:
    for number in range(10):
        left = new_spool(tmp_path)
        write(left, records(20, first=number * 20))
        left.release()
    topics = [Topic(), Topic()]
    forwarders = [Forwarder(topic.connect, new_spool(tmp_path)) for topic in topics]

    for forwarder in forwarders:
        forwarder.start()
    wait_for(lambda: sum(len(topic.taken) for topic in topics) >= 200)
    for forwarder in forwarders:
        forwarder.stop()

    assert sorted(topics[0].sessions + topics[1].sessions) == sorted(f"s-{n}" for n in range(200))


@pytest.mark.slow
def test_a_child_forked_at_any_moment_can_use_its_own_spool(tmp_path: Path) -> None:
    spool, topic = new_spool(tmp_path), Topic()
    forwarder = Forwarder(topic.connect, spool)
    forwarder.start()
    children = []
    for number in range(30):
        write(spool, records(200, first=number * 200))
        forwarder.added(200)
        child = os.fork()
        if child == 0:
            fresh = new_spool(tmp_path)
            write(fresh, records(1))
            os._exit(0 if kept(fresh) == ["s-0"] else 1)
        children.append(child)

    ends = [_end_of(child) for child in children]

    assert set(ends) == {0}
    assert forwarder.drained(30)
    forwarder.stop()


def _end_of(child: int) -> int:
    """Return the exit code of a process, killing it when it hangs."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9
