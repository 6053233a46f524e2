"""Pacing: the background thread yields, unless that would lose data."""

import threading
import time
from collections.abc import Sequence

import pytest

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.delivery.event_queue import ITEM_BYTES, EventQueue
from evaltap.recorder.observation import Observation
from evaltap.recorder.pacing import DEFAULT_PACE, Pacer, set_pace, yield_to_agent
from evaltap.recorder.traces.source import TraceSource


def rests(pace: Pacer, steps: int) -> float:
    """Return the seconds slept over steps that each use up a slice."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        until = time.perf_counter() + DEFAULT_PACE.slice_seconds
        while time.perf_counter() < until:
            pass
        pace.step()
    return (time.perf_counter() - wall) - (time.thread_time() - cpu)


def test_a_used_up_slice_is_followed_by_a_rest_unless_there_is_pressure() -> None:
    assert rests(Pacer(lambda: DEFAULT_PACE.rest_seconds), 100) >= 100 * DEFAULT_PACE.rest_seconds

    asked = iter(range(1_000))
    rests(Pacer(lambda: next(asked) * 0), 100)

    assert next(asked) == 100


def test_rests_are_long_only_while_another_thread_computes() -> None:
    long_rests: list[float] = []

    def wait(seconds: float) -> None:
        long_rests.append(seconds)
        time.sleep(seconds)

    pace = Pacer(lambda: 0.01, wait)
    computing = threading.Event()

    def compute() -> None:
        while not computing.is_set():
            pass

    agent = threading.Thread(target=compute)
    agent.start()
    rests(pace, 10)
    while_computing = len(long_rests)
    computing.set()
    agent.join()
    rests(pace, 1_000)

    assert while_computing > 0
    assert len(long_rests) - while_computing < 1_000
    assert set(long_rests) <= {0.001, 0.002, 0.004, 0.008, 0.01}


class Held:
    """A source that has nothing to say, and is stuck at an item until it is let go."""

    def __init__(self) -> None:
        self.stuck, self.let_go = threading.Event(), threading.Event()

    def process(self, item: object) -> list[Observation]:
        self.stuck.set()
        self.let_go.wait()
        return []

    def tick(self, now_ns: int) -> list[Observation]:
        return []

    def close(self) -> list[Observation]:
        return []

    def abandon(self, items: Sequence[object]) -> int:
        return len(items)


def test_there_is_leisure_only_for_a_burst_of_raw_items() -> None:
    recorder = Recorder(sink=MemorySink())
    source = Held()
    recorder.register(source)
    recorder.submit(source, "item")
    source.stuck.wait()
    worker = recorder._pipeline._worker
    assert worker is not None

    assert worker._longest_rest() < DEFAULT_PACE.long_rest_seconds
    for _ in range(DEFAULT_PACE.burst_messages + 1):
        recorder.submit(source, "item")
    assert worker._longest_rest() == DEFAULT_PACE.long_rest_seconds
    with recorder.turn(session_id="s-1", user="Hi"):
        assert worker._longest_rest() < DEFAULT_PACE.long_rest_seconds

    source.let_go.set()
    recorder.close()


def test_a_thread_without_a_pace_does_not_rest() -> None:
    yield_to_agent()

    set_pace(Pacer(lambda: float(pytest.fail("asked before the slice was over"))))
    try:
        yield_to_agent()
    finally:
        set_pace(None)


def test_items_are_bounded_by_bytes_and_make_room_when_taken() -> None:
    events = EventQueue(max_events=100, max_bytes=4 * ITEM_BYTES, refuse=lambda reason: None)
    source = TraceSource()

    taken = [events.submit(source, n) for n in range(5)]

    assert taken == [True] * 4 + [False]
    assert events.nearly_full
    assert events.get(0) is not None
    assert not events.nearly_full
    assert events.submit(source, 5)
