"""The agent is never disturbed: no exception, no waiting, no growth, under any circumstances."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.recorder import LocalLogSink, MemorySink, Recorder
from evaltap.recorder.copying import freeze, thaw
from evaltap.recorder.foreign import view
from evaltap.schemas.wire.record import WireRecord


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


def test_a_thread_that_waits_for_its_turn_loses_nothing_of_what_it_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def view_later(value: object) -> object:
        time.sleep(0.003)  # as if other threads had the interpreter
        return view(value)

    monkeypatch.setattr("evaltap.recorder.copying.view", view_later)
    orders = [Decimal(number) for number in range(10)]
    frozen, was_cut = freeze(orders, 1000)
    assert (thaw(frozen), was_cut) == ([str(number) for number in range(10)], False)


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


@pytest.mark.slow
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
