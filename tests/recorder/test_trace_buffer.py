"""Gathering spans by trace: when a trace is complete, what is late, and the limits."""

import gc
from dataclasses import replace

import pytest

from evaltap.recorder.memory import MAX_PACKED_BYTES
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.buffer import MAX_SPANS_REREAD_AT_ONCE, TraceBuffer, TraceLimits

S = 1_000_000_000


def span(number: int, parent: int | None = None, trace: str = "ab" * 16, size: int = 0) -> Span:
    return Span(
        trace,
        f"{number:016x}",
        "span",
        number,
        number + 1,
        parent_id=f"{parent:016x}" if parent is not None else None,
        attributes={"gen_ai.x": "x" * size},
    )


def names(buffer: TraceBuffer, now: int) -> list[tuple[int, str]]:
    return [(len(trace.spans), trace.reason) for trace in buffer.due(now * S)]


def test_a_trace_is_due_when_its_root_has_ended_and_a_quiet_period_passed() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    buffer.add(span(2, parent=1))
    buffer.add(span(1))

    assert names(buffer, 10) == []
    assert names(buffer, 11) == []
    assert names(buffer, 12) == [(2, "root_span_ended")]
    assert names(buffer, 13) == []


def test_whatever_comes_begins_the_quiet_period_anew() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    buffer.add(span(1))
    assert names(buffer, 10) == []
    buffer.add(LogRecord("ab" * 16, span(1).span_id, 1, "gen_ai.choice"))

    assert names(buffer, 12) == []
    assert names(buffer, 14) == [(1, "root_span_ended")]


def test_children_wait_for_their_root_up_to_the_idle_time() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, idle_seconds=60))
    buffer.add(span(2, parent=1))

    assert names(buffer, 10) == []
    assert names(buffer, 69) == []
    assert names(buffer, 70) == [(1, "idle_timeout")]
    assert buffer.counters.traces_timed_out == 1


def seen(buffer: TraceBuffer, root: Span, *children: Span) -> None:
    """Have a root seen from beginning to end, with its children in between."""
    buffer.begin(root)
    for child in children:
        buffer.add(child)
    buffer.add(root)


def test_a_trace_that_was_seen_whole_is_due_at_once() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(1), span(3, parent=2), span(2, parent=1))

    assert names(buffer, 10) == [(3, "root_span_ended")]
    assert names(buffer, 13) == []


def test_a_local_root_with_a_remote_parent_completes_its_trace() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(2, parent=1), span(3, parent=2))

    assert names(buffer, 10) == [(2, "root_span_ended")]


def test_a_trace_waits_for_all_its_local_roots() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    for number in (1, 2):
        buffer.begin(span(number))
    buffer.add(span(1))

    assert names(buffer, 10) == []
    assert names(buffer, 20) == []
    buffer.add(span(2))
    assert names(buffer, 21) == [(2, "root_span_ended")]


def test_a_root_that_begins_before_the_trace_was_read_is_waited_for() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(1))
    buffer.begin(span(2))

    assert names(buffer, 10) == []
    buffer.add(span(2))
    assert names(buffer, 11) == [(2, "root_span_ended")]


def test_a_parent_that_must_be_open_still_is_waited_for() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(1), span(3, parent=2))

    assert names(buffer, 10) == []
    buffer.add(span(2, parent=1))
    assert names(buffer, 11) == [(3, "root_span_ended")]


def test_a_parent_that_never_comes_is_waited_for_no_longer_than_the_quiet_period() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(1), span(3, parent=2))

    assert names(buffer, 10) == []
    assert names(buffer, 12) == [(2, "root_span_ended")]


def test_a_log_record_tells_that_its_span_is_open() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    log = LogRecord("ab" * 16, span(2).span_id, 1, "gen_ai.choice")
    buffer.begin(span(1))
    buffer.add(log)
    buffer.add(span(1))

    assert names(buffer, 10) == []
    buffer.add(span(2, parent=1))
    assert names(buffer, 11) == [(2, "root_span_ended")]


@pytest.mark.parametrize(
    "late", [span(2, parent=1), span(1), LogRecord("ab" * 16, span(1).span_id, 1, "gen_ai.choice")]
)
def test_what_comes_after_a_whole_trace_was_read_has_to_be_quiet_first(
    late: Span | LogRecord,
) -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(1))
    held = len(buffer.due(10 * S)[0].spans)
    buffer.add(late)

    assert names(buffer, 11) == []
    assert names(buffer, 12) == []
    (trace,) = buffer.due(13 * S)
    assert len(trace.spans) + len(trace.logs) == held + 1


def test_another_root_of_a_trace_that_was_read_is_due_at_once() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    seen(buffer, span(2, parent=1), span(3, parent=2))
    assert names(buffer, 10) == [(2, "root_span_ended")]
    seen(buffer, span(4, parent=1), span(5, parent=4))

    assert names(buffer, 11) == [(4, "root_span_ended")]


def test_a_large_trace_is_not_read_again_for_each_of_its_roots() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    children = [span(number, parent=2) for number in range(10, 10 + MAX_SPANS_REREAD_AT_ONCE)]
    seen(buffer, span(2, parent=1), *children)
    assert names(buffer, 10) == [(1 + len(children), "root_span_ended")]
    seen(buffer, span(4, parent=1))

    assert names(buffer, 11) == []
    assert names(buffer, 13) == [(2 + len(children), "root_span_ended")]


def test_a_trace_whose_beginning_nobody_told_has_to_be_quiet() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    buffer.add(span(2, parent=1))
    buffer.add(span(1))

    assert names(buffer, 10) == []
    assert names(buffer, 12) == [(2, "root_span_ended")]


def test_a_late_span_opens_its_trace_again_with_what_it_held() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, revise_seconds=60))
    buffer.add(span(1))
    names(buffer, 10)
    names(buffer, 12)
    buffer.add(span(2, parent=1))
    names(buffer, 20)

    assert names(buffer, 22) == [(2, "root_span_ended")]


@pytest.mark.slow
def test_a_trace_that_was_read_costs_the_garbage_collector_nothing() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, revise_seconds=60))
    for number in range(1_000):
        seen(buffer, span(1, trace=f"{number:032x}"), span(2, parent=1, trace=f"{number:032x}"))
    held = buffer.held_bytes
    buffer.due(10 * S)
    gc.collect()
    unread = len(gc.get_objects())

    names(buffer, 11)
    gc.collect()

    assert len(gc.get_objects()) < unread - 5_000
    assert buffer.held_bytes == held


class OwnText(str):
    """A type that nobody else can find."""

    __slots__ = ()
    __qualname__ = "nowhere"


@pytest.mark.parametrize("text", [OwnText("x"), "x" * 2 * MAX_PACKED_BYTES, "x"])
def test_a_trace_that_was_read_is_kept_whole_and_once_whatever_it_holds(text: str) -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, revise_seconds=60))
    first = replace(span(1), attributes={"gen_ai.x": text, "nested": [[], {"a": None}]})
    seen(buffer, first)
    for late in (2, 3):
        for now in range(late * 10, late * 10 + 4):
            names(buffer, now)
        buffer.add(span(late, parent=1))

    names(buffer, 40)
    (trace,) = buffer.due(42 * S)

    assert trace.spans == [first, span(2, parent=1), span(3, parent=1)]
    names(buffer, 200)
    assert buffer.held_bytes == 0


def test_a_trace_read_long_ago_is_forgotten() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, revise_seconds=60))
    buffer.add(span(1))
    names(buffer, 10)
    names(buffer, 12)

    assert buffer.held_bytes > 0
    names(buffer, 70)
    assert buffer.held_bytes == 0


def test_beyond_the_limit_the_trace_idle_for_longest_is_read_as_it_is() -> None:
    buffer = TraceBuffer(TraceLimits(max_traces=2))
    for number in range(3):
        buffer.add(span(2, parent=1, trace=f"{number + 1:032x}"))

    (evicted,) = buffer.due(10 * S)

    assert (evicted.trace_id, evicted.reason) == (f"{1:032x}", "evicted")
    assert len(buffer) == 2


def test_bytes_held_stay_below_their_limit_after_each_round() -> None:
    buffer = TraceBuffer(TraceLimits(max_bytes=100_000))
    for number in range(300):
        buffer.add(span(2, parent=1, trace=f"{number + 1:032x}", size=1_000))
        buffer.due(number * S)
        assert buffer.held_bytes <= 100_000


def test_spans_beyond_the_limit_of_their_trace_are_counted_and_dropped() -> None:
    buffer = TraceBuffer(TraceLimits(max_spans=3))
    for number in range(5):
        buffer.add(span(number + 2, parent=1))

    (trace,) = buffer.drain()
    assert (len(trace.spans), trace.dropped) == (3, 2)


def test_a_root_beyond_the_limit_still_completes_its_trace() -> None:
    buffer = TraceBuffer(TraceLimits(max_spans=3, quiet_seconds=2))
    for number in range(5):
        buffer.add(span(number + 2, parent=1))
    buffer.add(span(1))

    assert names(buffer, 10) == []
    assert names(buffer, 12) == [(4, "root_span_ended")]


def test_draining_returns_complete_and_incomplete_traces_by_their_reasons() -> None:
    buffer = TraceBuffer()
    buffer.add(span(1))
    buffer.add(span(2, parent=1, trace="cd" * 16))

    assert sorted(trace.reason for trace in buffer.drain()) == ["root_span_ended", "shutdown"]
    assert len(buffer) == 0


def test_a_clock_that_is_put_back_delays_nothing_by_more_than_the_quiet_period() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, revise_seconds=10))
    for number, seconds in enumerate((10_000, 10_001)):
        buffer.add(span(1, trace=f"{number:032x}"))
        assert names(buffer, seconds) == []

    assert names(buffer, 5_000) == []
    assert names(buffer, 5_002) == [(1, "root_span_ended")] * 2
    assert names(buffer, 5_012) == []
    assert buffer.held_bytes == 0
