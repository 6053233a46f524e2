"""Gathering spans by trace: when a trace is complete, what is late, and the limits."""

from evaltap.recorder.telemetry import LogRecord, Span
from evaltap.recorder.trace_buffer import TraceBuffer, TraceLimits

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


def test_a_local_root_with_a_remote_parent_completes_its_trace() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    root = span(2, parent=1)
    buffer.begin(root)
    buffer.add(root)

    assert names(buffer, 10) == []
    assert names(buffer, 12) == [(1, "root_span_ended")]


def test_a_trace_waits_for_all_its_local_roots() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2))
    for number in (1, 2):
        buffer.begin(span(number))
    buffer.add(span(1))

    assert names(buffer, 10) == []
    assert names(buffer, 20) == []
    buffer.add(span(2))
    assert names(buffer, 21) == []
    assert names(buffer, 23) == [(2, "root_span_ended")]


def test_a_late_span_opens_its_trace_again_with_what_it_held() -> None:
    buffer = TraceBuffer(TraceLimits(quiet_seconds=2, revise_seconds=60))
    buffer.add(span(1))
    names(buffer, 10)
    names(buffer, 12)
    buffer.add(span(2, parent=1))
    names(buffer, 20)

    assert names(buffer, 22) == [(2, "root_span_ended")]
    assert buffer.counters.traces_reopened == 1


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

    assert buffer.counters.spans_dropped == 2


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
