"""Sinks, redactors, disks and signals that fail in the worst way: every turn is written or counted."""

import signal
import threading
from asyncio import CancelledError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attacks.programs import attack
from evaltap.recorder import MemorySink, Recorder
from evaltap.schemas.wire.record import WireRecord

WORST: list[type[BaseException]] = [
    SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError, RecursionError,
]  # fmt: skip


def record(recorder: Recorder, turns: int) -> None:
    for number in range(turns):
        with recorder.turn(session_id=f"s-{number}", user="u") as turn:
            turn.respond("a")


class FailingOnce(MemorySink):
    """Raises with the first batch."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error: type[BaseException] | None = error

    def append(self, records: Sequence[WireRecord]) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        super().append(records)


@pytest.mark.parametrize("error", WORST)
def test_what_a_sink_raises_does_not_end_the_recorder(error: type[BaseException]) -> None:
    sink = FailingOnce(error)
    recorder = Recorder(sink=sink)
    record(recorder, 20)

    assert recorder.close(20)
    assert recorder.counters().delivered == len(sink.cases) == 20


@pytest.mark.parametrize("error", WORST)
def test_what_a_redactor_raises_costs_its_turn(error: type[BaseException]) -> None:
    def redact(case: Any) -> Any:
        raise error

    recorder = Recorder(sink=MemorySink(), redactor=redact)
    record(recorder, 20)

    assert recorder.close(20)
    assert recorder.counters().dropped == {"redaction_failed": 20}


def test_the_turn_in_a_redactor_that_hangs_is_counted() -> None:
    released = threading.Event()

    def redact(case: Any) -> Any:
        released.wait(20)

    recorder = Recorder(sink=MemorySink(), redactor=redact)
    record(recorder, 20)

    assert not recorder.close(0.5)
    assert recorder.counters().recorded == 20
    assert recorder.counters().dropped == {"close_timeout": 20}
    released.set()


def test_a_second_sigterm_does_not_end_a_process_that_writes(tmp_path: Path) -> None:
    program = """
import os, signal, sys, threading, time
from evaltap.recorder import MemorySink, Recorder
class Slow(MemorySink):
    def append(self, records):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        os.write(1, b"written")
recorder = Recorder(sink=Slow(), flush_interval_seconds=5)
with recorder.turn(user="u") as turn:
    turn.respond("a")
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(20)
"""
    assert attack(program, code=-signal.SIGTERM).startswith("written")


def test_a_process_without_free_files_records_once_it_has_some(tmp_path: Path) -> None:
    program = """
import resource, sys
from evaltap.recorder import Recorder
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    pass
def record(turns):
    for _ in range(turns):
        with recorder.turn(user="u") as turn:
            turn.respond("a")
recorder = Recorder(sys.argv[1])
record(50)
recorder.flush(0.3)
for file in held:
    file.close()
record(5)
print(recorder.close(20), recorder.counters().delivered)
"""
    assert attack(program, tmp_path / "log.db").split() == ["True", "55"]


@pytest.mark.slow
def test_a_full_disk_costs_held_turns_and_no_later_ones() -> None:
    program = """
import resource, signal
from evaltap.recorder import MemorySink, Recorder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, 1 << 40))
def record(turns):
    for number in range(turns):
        with recorder.turn(session_id=f"s-{number}", user="u" * 3000) as turn:
            turn.respond("a" * 3000)
    assert recorder.flush(30)
rules = '[{"name": "errors", "keep": 1, "error": true}]'
recorder = Recorder(sink=MemorySink(), sample_rate=0.5, sample_rules=rules)
limit(200_000)
record(1500)
limit(1 << 40)
record(500)
recorder.close(30)
counters = recorder.counters()
lost = counters.dropped["internal_error"]
assert counters.recorded == counters.delivered + sum(counters.dropped.values()) == 2000, counters
assert 0 < lost < 1500, counters
"""
    attack(program)
