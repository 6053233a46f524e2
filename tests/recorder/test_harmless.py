"""The agent is never disturbed: no exception, no waiting, no growth, under any circumstances."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.recorder import LocalLogSink, MemorySink, Recorder
from evaltap.recorder.payload import freeze, thaw
from evaltap.schemas.wire.record import DecodedCase, Manifest, WireRecord, decode_record


class Explosive:
    """Raises whenever anything is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("hostile attribute")

    def __repr__(self) -> str:
        raise RuntimeError("hostile repr")

    def __str__(self) -> str:
        raise RuntimeError("hostile str")


class Posing:
    """Pretends to be a model that can be dumped."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def model_dump(self, mode: str) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Endless(Posing):
    """Dumps to something that holds itself again."""

    def __init__(self) -> None:
        super().__init__({"again": self})


class BadError(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("hostile str")


def cycle() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    return loop


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Callable[[], Any]] = {
    "object": object,
    "explosive": Explosive,
    "explosive inside": lambda: {"a": [Explosive()]},
    "cycle": cycle,
    "deep": lambda: deep(3000),
    "nan": lambda: {"a": float("nan"), "b": [float("-inf")]},
    "bytes": lambda: b"\xff\xfe" * 10,
    "big int": lambda: 2**70,
    "huge int": lambda: 10**5000,
    "odd keys": lambda: {1: "a", None: "b", (1, 2): "c", b"x": "d", Explosive: 1},
    "big key": lambda: {2**70: 1},
    "surrogate": lambda: {"a": "\ud800", "\udfff": 1},
    "set": lambda: {1, "a", Decimal("1.5")},
    "decimal": lambda: Decimal("1.10"),
    "path": lambda: Path("a/b"),
    "class": lambda: Explosive,
    "function": lambda: print,
    "generator": lambda: (n for n in range(3)),
    "exception": lambda: BadError(),
    "dumps to itself": lambda: Posing(Posing("x")),
    "dump fails": lambda: Posing(ValueError("x")),
    "dumps to nan": lambda: Posing({"a": float("nan")}),
    "endless dump": lambda: Endless(),
    "huge": lambda: {"a": "x" * 5_000_000, "b": list(range(200_000))},
    "str subclass": lambda: type("S", (str,), {})("text"),
    "module": lambda: os,
    "lock": threading.Lock,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_objects_are_recorded_as_something_and_never_raise(name: str) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    thing = HOSTILE[name]()

    with recorder.turn(session_id=thing, user=thing, user_id=thing, agent=thing) as turn:
        turn.tool(thing, thing, id=thing, result=thing, duration_ms=thing, agent=thing)
        turn.tool("t", {"inner": thing}, error=thing).returned(thing)
        turn.model(thing, text=thing, input_tokens=thing, cost_usd=thing)
        turn.respond(thing)
    assert recorder.close(30)

    counters = recorder.counters()
    assert counters.recorded == 1
    assert counters.recorded == counters.delivered + sum(counters.dropped.values())
    if counters.delivered:
        assert orjson.dumps(sink.cases)


def test_frozen_values_are_json_and_faithful_where_json_can_be() -> None:
    value = {"a": [1, 2.5, "x", None, True], "b": {"ü": "\u2028"}, "c": (1, 2), 4: "four"}

    frozen, was_cut = freeze(value, 1000)

    assert thaw(frozen) == {
        "a": [1, 2.5, "x", None, True],
        "b": {"ü": "\u2028"},
        "c": [1, 2],
        "4": "four",
    }
    assert not was_cut


def test_a_number_that_json_has_not_is_not_taken_for_nothing() -> None:
    assert thaw(freeze({"a": float("nan"), "b": None}, 1000)[0]) == {"a": "nan", "b": None}


def test_an_observation_that_is_none_costs_nothing_but_a_count() -> None:
    recorder = Recorder(sink=MemorySink())

    for nonsense in (None, 7, "run", object(), Explosive()):
        recorder.observe(nonsense)  # type: ignore[arg-type]  # that is the point

    assert recorder.counters().faults > 0
    assert recorder.close()


def test_too_many_errors_of_its_own_switch_it_off_and_later_turns_are_counted() -> None:
    recorder = Recorder(sink=MemorySink(), max_internal_errors=5)

    for _ in range(20):
        recorder.observe(None)  # type: ignore[arg-type]  # that is the point
    with recorder.turn(session_id="s", user="u") as turn:
        turn.respond("a")
    recorder.close()

    assert recorder.counters().dropped == {"switched_off": 1}


class FailsAt(MemorySink):
    """A sink of which one call, counted over all methods, fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.calls = 0

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.number:
            raise RuntimeError("planted")

    def append(self, records: Sequence[WireRecord]) -> None:
        self._call()
        super().append(records)

    def flush(self, timeout_seconds: float) -> bool:
        self._call()
        return super().flush(timeout_seconds)

    def close(self) -> None:
        self._call()
        super().close()


def test_whichever_call_of_the_sink_fails_nothing_is_lost_or_doubled() -> None:
    number, failed = 0, True
    while failed:
        number += 1
        sink = FailsAt(number)
        recorder = Recorder(sink=sink, flush_interval_seconds=0)
        for n in range(5):
            with recorder.turn(session_id=f"s-{n}", user="u") as turn:
                turn.respond("a")
            recorder.flush(5)
        recorder.close(5)
        failed = sink.calls >= number

        counters = recorder.counters()
        assert [case["evalId"] for case in sink.cases] == [f"s-{n}" for n in range(5)], number
        assert (counters.recorded, counters.delivered) == (5, 5), number
    assert number > 7


class FailsInside:
    """A redactor of which one call fails."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0

    def __call__(self, case: dict[str, Any]) -> Any:
        from evaltap.recorder.privacy.redacted_values import RedactionReport

        self.calls += 1
        if self.calls == self.number:
            raise RuntimeError("planted")
        return case, RedactionReport()


@pytest.mark.parametrize("number", range(1, 6))
def test_whichever_call_of_the_redactor_fails_only_its_turn_is_dropped(number: int) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, redactor=FailsInside(number))

    for n in range(5):
        with recorder.turn(session_id=f"s-{n}", user="u") as turn:
            turn.respond("a")
    recorder.close()

    assert len(sink.cases) == 4
    assert recorder.counters().dropped == {"redaction_failed": 1}


def test_a_disk_without_room_costs_turns_only(tmp_path: Path) -> None:
    sink = LocalLogSink(tmp_path / "log.db", min_free_bytes=1 << 60)
    assert_log_unavailable_is_counted(Recorder(sink=sink))


def test_a_directory_that_vanishes_costs_turns_only(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    recorder = Recorder(folder / "log.db")
    folder.rmdir()
    assert_log_unavailable_is_counted(recorder)


def assert_log_unavailable_is_counted(recorder: Recorder) -> None:
    with recorder.turn(session_id="s", user="u") as turn:
        turn.respond("a")

    assert not recorder.close(0.3)
    assert recorder.counters().dropped == {"log_unavailable": 1}


def test_many_threads_lose_nothing() -> None:
    sink = MemorySink(limit=100_000)
    recorder = Recorder(sink=sink, queue_max_events=1_000_000, queue_max_bytes=1 << 30)

    def work(name: int) -> None:
        for n in range(100):
            with recorder.turn(session_id=f"{name}-{n}", user="u") as turn:
                turn.tool("t", {"n": n}, result=n)
                turn.respond("a")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.close(60)

    assert len({case["evalId"] for case in sink.cases}) == len(sink.cases) == 800
    assert recorder._pipeline._events._held_bytes == 0  # every byte that was accounted was released


def test_the_first_event_does_not_wait_until_the_background_thread_runs() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # the new thread runs only when this one waits for something
    try:
        with recorder.turn(session_id="a", user="u") as turn:
            turn.respond("a")
        assert recorder.counters().queued_events > 0
    finally:
        sys.setswitchinterval(interval)
    assert recorder.close(10)
    assert [case["evalId"] for case in sink.cases] == ["a"]


def test_a_background_thread_that_dies_is_replaced() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(session_id="a", user="u") as turn:
        turn.respond("a")
    recorder.flush(10)
    assert recorder._pipeline._worker is not None

    # The guard of the thread catches it, but cannot even name it.
    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
            raise Fatal

    class Fatal(BaseException, metaclass=Nameless):
        pass

    def raise_fatal(item: Any) -> Any:
        raise Fatal

    class Source:
        process = staticmethod(raise_fatal)

        def tick(self, now_ns: int) -> Any:
            return ()

        def close(self) -> Any:
            return ()

        def abandon(self, items: Any) -> int:
            return len(items)

    dead = recorder._pipeline._worker.thread
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        recorder.submit(Source(), "x")
        assert dead.join(10)
    finally:
        sys.unraisablehook = hook
    with recorder.turn(session_id="b", user="u") as turn:
        turn.respond("a")

    assert recorder.close(10)
    assert [case["evalId"] for case in sink.cases] == ["a", "b"]


PROGRAM = """
import os, signal, sys, threading, time
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1], queue_max_events=1_000_000)
def record(session):
    with recorder.turn(session_id=session, user="u") as turn:
        turn.tool("t", {"n": 1}, result=2)
        turn.respond("a")
"""


def run(body: str, log: Path, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + body, str(log)], timeout=60, capture_output=True, **options
    )


def sessions(log: Path) -> list[str]:
    source = LocalLogSource(log)
    decoded = [decode_record(item.record) for item in source.poll(10_000, 0).records]
    source.close()
    return [item.eval_id for item in decoded if isinstance(item, DecodedCase)]


def manifests(log: Path) -> list[Manifest]:
    source = LocalLogSource(log)
    decoded = [decode_record(item.record) for item in source.poll(10_000, 0).records]
    source.close()
    return [item for item in decoded if isinstance(item, Manifest)]


def test_recording_from_a_garbage_collection_and_a_signal_never_deadlocks(tmp_path: Path) -> None:
    body = """
import gc
counted = 0
def count_and_record():
    global counted
    counted += 1
    record('s')

class Recording:
    def __init__(self):
        self.loop = self
    def __del__(self):
        count_and_record()

gc.set_threshold(5)
signal.signal(signal.SIGALRM, lambda *_: count_and_record())
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for _ in range(300):
    Recording()
    count_and_record()
signal.setitimer(signal.ITIMER_REAL, 0)
gc.set_threshold(700)
gc.collect()
assert recorder.close(60), recorder.counters()
assert recorder.counters().delivered == counted >= 600, (counted, recorder.counters())
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr


ENDINGS = {
    "falling off the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an unhandled exception": ("raise ValueError('x')", 1),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", -signal.SIGTERM),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", -signal.SIGINT),
    "a SIGTERM handler of its own": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_however_the_process_ends_its_turns_are_on_the_log(tmp_path: Path, ending: str) -> None:
    code, status = ENDINGS[ending]
    body = f"""
for n in range(20): record(f's-{{n}}')
open_turn = recorder.turn(session_id='open', user='u')
open_turn.__enter__()
{code}
"""

    began = time.monotonic()
    done = run(body, tmp_path / "log.db")

    assert done.returncode == status, done.stderr
    assert time.monotonic() - began < 20
    assert sorted(sessions(tmp_path / "log.db")) == sorted([*(f"s-{n}" for n in range(20)), "open"])
    assert manifests(tmp_path / "log.db")[-1].closing


def test_a_forked_child_records_its_own_turns_under_its_own_name(tmp_path: Path) -> None:
    body = """
stop = threading.Event()
def hammer():
    n = 0
    while not stop.is_set():
        record(f'parent-thread-{n}'); n += 1
        time.sleep(0.0005)
thread = threading.Thread(target=hammer); thread.start()
open_turn = recorder.turn(session_id='parent-open', user='u')
open_turn.__enter__()
for number in range(20):
    pid = os.fork()
    if pid == 0:
        record(f'child-{number}')
        open_turn.respond('the child must not finish the turn of its parent')
        complete = recorder.close(10)
        counters = recorder.counters()
        os._exit(0 if complete and counters.delivered == 1 == counters.recorded else 9)
    assert os.waitpid(pid, 0)[1] == 0, number
    record(f'parent-{number}')
stop.set(); thread.join()
open_turn.respond('by the parent')
open_turn.__exit__(None, None, None)
assert recorder.close(10), recorder.counters()
print(recorder.counters().delivered)
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr
    seen = sessions(tmp_path / "log.db")
    assert len(seen) == len(set(seen)) == int(done.stdout) + 20
    assert {f"{who}-{n}" for who in ("child", "parent") for n in range(20)} <= set(seen)
    by_producer = {item.producer_id: item.highest_seq for item in manifests(tmp_path / "log.db")}
    assert len(by_producer) == 21
    assert sum(by_producer.values()) == len(seen)


@pytest.mark.slow
def test_a_directory_that_cannot_be_written_costs_turns_only(tmp_path: Path) -> None:
    # Not below tmp_path, which only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    body = f"""
# Root writes anywhere: give that up, once everything is loaded.
record('warm'); assert recorder.flush(10)
if os.geteuid() == 0:
    os.seteuid(65534)
other = Recorder({str(folder / "log.db")!r})
with other.turn(session_id='s', user='u') as turn:
    turn.respond('a')
assert not other.close(3)
assert other.counters().dropped == {{'log_unavailable': 1}}, other.counters()
os._exit(0)
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.mark.parametrize("late", [0, 2])
def test_the_end_of_the_process_says_how_many_turns_came_after_close(
    tmp_path: Path, late: int
) -> None:
    body = f"""
record('first')
recorder.close()
for number in range({late}):
    record(f'late-{{number}}')
"""
    done = run(body, tmp_path / "log.db")

    warned = b"lost 2 turns that came after the recorder of " in done.stderr
    assert (done.returncode, warned) == (0, late == 2)


def test_the_background_thread_imports_nothing(tmp_path: Path) -> None:
    """A process that is forked in the middle of an import keeps half of the module for ever."""
    body = """
before = set(sys.modules)
record('first')
assert recorder.flush(10)
print(sorted(set(sys.modules) - before))
"""
    done = run(body, tmp_path / "log.db")

    assert done.stdout.decode().strip() == "[]", done.stderr


def test_multiprocessing_workers_record(tmp_path: Path) -> None:
    body = """
import multiprocessing
def work(n):
    record(f'worker-{n}')
    return recorder.flush(10)
record('main')
with multiprocessing.get_context('fork').Pool(3) as pool:
    assert all(pool.map(work, range(30)))
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr
    assert sorted(sessions(tmp_path / "log.db")) == sorted(
        ["main", *(f"worker-{n}" for n in range(30))]
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_process_that_ends_at_once_loses_no_turn(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(f"""
import multiprocessing
from evaltap.recorder import Recorder
recorder = Recorder({str(tmp_path / "log.db")!r})
def work(session):
    with recorder.turn(session_id=session, user='u') as turn:
        turn.respond('a')
    recorder.turn(session_id='open', user='u').__enter__()
if __name__ == '__main__':
    work('main')
    child = multiprocessing.get_context({method!r}).Process(target=work, args=('child',))
    child.start(); child.join()
""")

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert sorted(sessions(tmp_path / "log.db")) == ["child", "main", "open", "open"]
    assert sum(one.closing for one in manifests(tmp_path / "log.db")) == 2


def test_importing_and_constructing_opens_no_file_socket_or_thread(tmp_path: Path) -> None:
    program = """
import sys
seen = []
def hook(event, arguments):
    if event in ('socket.__new__', 'sqlite3.connect', '_thread.start_new_thread', 'os.fork'):
        seen.append(event)
    if event == 'open' and isinstance(arguments[1], str) and set(arguments[1]) & set('wax+'):
        seen.append(arguments[0])
sys.addaudithook(hook)
import evaltap.recorder
from evaltap.recorder import MemorySink, Recorder, RecorderConfig
Recorder(sys.argv[1])
heavy = {'duckdb', 'kafka', 'grpc', 'pydantic', 'opentelemetry', 'starlette', 'openai', 'google'}
print(seen, heavy & {name.partition('.')[0] for name in sys.modules})
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tmp_path / "log.db")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == "[] set()"


def test_a_recorded_call_costs_the_agent_little(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "log.db", queue_max_events=1_000_000)
    result = {"rows": [{"id": n, "label": "row"} for n in range(20)]}
    spent = []

    for n in range(300):
        began = time.thread_time_ns()
        with recorder.turn(session_id=f"s-{n}", user="hello " * 60) as turn:
            for step in range(4):
                turn.tool("t", {"q": "item", "n": step}, id=str(step), result=result)
            turn.respond("ok " * 100)
        spent.append(time.thread_time_ns() - began)
    recorder.close(30)

    # 11 events; generous, since the machine may be busy: the benchmark has the figures.
    assert sorted(spent)[150] < 11 * 200_000
