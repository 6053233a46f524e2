"""No threads, a log that hangs, more turns than can be written, another folder: no turn is lost uncounted."""

import _thread
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from attacks.programs import attack
from evaltap.cli.main import main
from evaltap.recorder import MemorySink, Recorder, threads
from evaltap.recorder.delivery.event_queue import Message
from evaltap.recorder.delivery.worker import Worker
from evaltap.schemas.wire.record import WireRecord
from support.builders.waiting import wait_for


def record(recorder: Recorder, turns: int, *, tools: int = 0) -> None:
    for number in range(turns):
        with recorder.turn(session_id=f"s-{number}", user="u") as turn:
            for _ in range(tools):
                turn.tool("t", {"n": number}, result=number)
            turn.respond("a")


def assert_accounted(recorder: Recorder, turns: int) -> None:
    counters = recorder.counters()
    assert counters.recorded == turns, counters
    assert counters.recorded == counters.delivered + sum(counters.dropped.values())


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_time_without_threads_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with monkeypatch.context() as bad:
        bad.setattr(threads, "start_new_thread", refuse)
        record(recorder, 100, tools=3)
    assert recorder.counters().faults == 1
    time.sleep(0.3)
    record(recorder, 1)

    assert recorder.close(20)
    assert_accounted(recorder, 101)
    assert len(sink.cases) == 101


def test_what_waits_for_a_thread_that_never_starts_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder(sink=MemorySink())
    monkeypatch.setattr(threads, "start_new_thread", refuse)
    record(recorder, 20)

    assert not recorder.close()
    assert recorder.counters().dropped == {"close_timeout": 20}
    assert_accounted(recorder, 20)


@pytest.mark.slow
def test_more_open_turns_than_wait_for_a_log_are_written_while_they_are_closed(
    tmp_path: Path,
) -> None:
    recorder = Recorder(tmp_path / "log.db", queue_max_events=100_000)
    turns = [recorder.turn(session_id=f"s-{n}", user="u") for n in range(8_000)]
    for turn in turns:
        turn.__enter__()

    assert recorder.close(60)
    assert recorder.counters().delivered == 8_000


BACKLOG = """
import sys
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1], close_timeout_seconds=2, queue_max_events=1_000_000)
for number in range(3000):
    with recorder.turn(session_id=f"s-{number}", user="write to bob@example.com " * 40) as turn:
        for _ in range(4):
            turn.tool("t", {"q": "call +49 170 1234567 " * 40}, result="x@example.org " * 300)
        turn.respond("a")
print(recorder.close(), recorder.counters().recorded, sum(recorder.counters().dropped.values()))
"""


@pytest.mark.slow
def test_what_does_not_fit_into_the_time_to_close_is_counted_and_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.db"
    closed, recorded, dropped = attack(BACKLOG, log).split()

    assert (closed, recorded) == ("False", "3000")
    assert int(dropped) > 0
    assert main(["doctor", "--log", str(log)]) == 1
    assert "recorded 3,000" in capsys.readouterr().out


@pytest.mark.slow
def test_turns_are_counted_also_when_both_threads_give_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose_rest, agents = Worker.lose_rest, threading.get_ident()

    def lose_slowly(worker: Worker, in_hand: Message | None = None) -> int:
        lost = lose_rest(worker, in_hand)
        if threading.get_ident() != agents:
            time.sleep(0.5)  # the agent's thread stops waiting meanwhile
        return lost

    monkeypatch.setattr(Worker, "lose_rest", lose_slowly)
    recorder = Recorder(sink=MemorySink())
    record(recorder, 1)
    assert recorder.flush(10)
    record(recorder, 5_000)

    assert not recorder.close(0)

    assert recorder.counters().dropped["close_timeout"] > 0
    assert_accounted(recorder, 5_001)


@pytest.mark.slow
def test_a_producer_that_was_killed_has_given_no_account(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.db"
    program = """
import os, sys
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1])
with recorder.turn(user="u") as turn:
    turn.respond("a")
recorder.flush(10)
os._exit(0)
"""
    attack(program, log)

    assert main(["doctor", "--log", str(log)]) == 1
    assert "ended without a closing manifest" in capsys.readouterr().out


def test_a_producer_that_still_has_the_log_open_may_give_one_yet(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "log.db")
    record(recorder, 1)
    assert recorder.flush(10)

    doctor = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"
    assert "no closing manifest yet" in attack(doctor, "doctor", "--log", tmp_path / "log.db")
    record(recorder, 1)
    assert recorder.close()


class Hanging(MemorySink):
    """Takes a batch when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.waits = False

    def append(self, records: Sequence[WireRecord]) -> None:
        self.waits = True
        self.released.wait(20)
        super().append(records)


def test_turns_before_a_log_that_hangs_are_counted() -> None:
    sink = Hanging()
    recorder = Recorder(sink=sink)
    record(recorder, 50)
    began = time.monotonic()

    assert not recorder.close(0.5)
    assert time.monotonic() - began < 5
    assert_accounted(recorder, 50)
    sink.released.set()
    assert recorder._pipeline._worker is not None
    recorder._pipeline._worker.thread.join(10)
    assert_accounted(recorder, 50)


class HangingAtTheEnd(MemorySink):
    """Ends when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def flush(self, timeout_seconds: float) -> bool:
        return self.released.wait(20)


@pytest.mark.slow
def test_turns_held_for_their_sessions_are_counted_once_when_a_log_hangs_at_its_end() -> None:
    sink = HangingAtTheEnd()
    rules = '[{"name": "errors", "keep": 1, "error": true}]'
    recorder = Recorder(sink=sink, sample_rate=0.5, sample_rules=rules)
    record(recorder, 2_000)
    wait_for(lambda: recorder.counters().waiting == 2_000)

    assert not recorder.close(0)

    assert recorder.counters().dropped["close_timeout"] > 0
    assert_accounted(recorder, 2_000)
    sink.released.set()


class Slow(MemorySink):
    """Takes a while for each batch."""

    seconds = 0.2

    def append(self, records: Sequence[WireRecord]) -> None:
        time.sleep(self.seconds)
        super().append(records)


@pytest.mark.slow
def test_closing_waits_as_long_as_turns_are_written() -> None:
    sink = Slow()
    sink.seconds = 0.5
    recorder = Recorder(sink=sink, close_timeout_seconds=4)
    record(recorder, 2_500)
    began = time.monotonic()

    assert recorder.close()
    assert time.monotonic() - began > 4
    assert_accounted(recorder, 2_500)
    assert len(sink.cases) == 2_500


@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.25, 0.35])
def test_what_is_written_while_time_runs_out_is_not_counted_as_lost(seconds: float) -> None:
    sink = Slow()
    recorder = Recorder(sink=sink)
    record(recorder, 700)

    assert not recorder.close(seconds)
    assert recorder.counters().recorded == 700
    assert recorder._pipeline._worker is not None
    assert recorder._pipeline._worker.thread.join(20)
    counters = recorder.counters()
    assert_accounted(recorder, 700)
    assert counters.delivered == len(sink.cases)
    assert sum(sink.manifests[-1].drops.values()) == 700 - len(sink.cases)


def test_a_turn_that_is_half_in_the_queue_is_one() -> None:
    sink = Hanging()
    recorder = Recorder(sink=sink)
    record(recorder, 1)
    while not sink.waits:
        time.sleep(0.01)
    record(recorder, 200)
    with recorder.turn(session_id="last", user="u") as turn:
        turn.tool("t", {}, result=1)
        assert not recorder.close(0.2)
    assert recorder.counters().recorded == 202
    sink.released.set()


def test_a_log_that_somebody_locks_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    recorder = Recorder(log)
    record(recorder, 1)
    assert recorder.flush(10)
    other = sqlite3.connect(log, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    record(recorder, 200)

    assert not recorder.close(0.5)
    assert_accounted(recorder, 201)
    other.execute("ROLLBACK")
    other.close()


def test_an_agent_that_changes_its_folder_writes_one_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("start", "repo-a", "repo-b")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.chdir(folders[0])
    recorder = Recorder("agent.log.db")
    for folder in folders[1:]:
        monkeypatch.chdir(folder)
        record(recorder, 1)
        assert recorder.flush(10)
    recorder.close()

    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")) == [
        "start/agent.log.db",
        "start/agent.log.db.key",
    ]


def test_a_recorder_for_each_request_is_one_thread_and_one_file(tmp_path: Path) -> None:
    before = _thread._count()
    recorders = [Recorder(tmp_path / "log.db") for _ in range(100)]
    for recorder in recorders:
        record(recorder, 1)
    assert _thread._count() <= before + 1

    for recorder in recorders[:99]:
        assert recorder.close(20)
    record(recorders[99], 1)
    assert recorders[99].close(20)
    assert_accounted(recorders[0], 101)
    record(recorders[50], 1)
    assert recorders[0].counters().delivered == 101
