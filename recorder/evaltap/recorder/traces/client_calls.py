"""Model calls that appear twice, because a framework's model span is not the current span.

OpenInference's LangChain instrumentation writes a trace of a run, and sets no current span. An
instrumentation of the model's client (OpenAI, Anthropic), as Phoenix's `auto_instrument` adds one,
therefore starts a trace for each model call, which would become a turn of its own.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.recorder.conventions import read_span
from evaltap.recorder.conventions.messages import last_user_text
from evaltap.recorder.conventions.reading import Reading
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.buffer import GatheredTrace
from evaltap.recorder.traces.node import Node
from evaltap.recorder.traces.tree import build_tree

_DETACHED: Final = "openinference.instrumentation.langchain"


@dataclass(slots=True)
class _Held:
    """A trace of one model call, and the ids of the unread traces that may contain that call."""

    trace: GatheredTrace
    reading: Reading
    within: set[str]

    @property
    def span(self) -> Span:
        return self.trace.spans[0]


class ClientCalls:
    """Holds traces of one model call while a run that may contain it is unread; used by one thread.

    Beyond `max_held`, further calls are turns of their own.
    """

    def __init__(self, max_held: int = 1_000) -> None:
        self._max_held = max_held
        self._runs: dict[str, None] = {}
        """Ids of unread traces with spans that are never the current span."""
        self._held: dict[str, _Held] = {}
        self._held_for: defaultdict[str, list[str]] = defaultdict(list)
        """Ids of the traces that are held for each run."""

    def note(self, span: Span) -> None:
        """Note a span that started or ended."""
        if span.scope == _DETACHED:
            self._runs[span.trace_id] = None

    def merge(
        self, due: Sequence[GatheredTrace], unread: Callable[[str], GatheredTrace | None]
    ) -> list[GatheredTrace]:
        """Return the traces to read now: those due without repeated calls, and those held long enough.

        `unread` returns a trace that is not due yet. A repeated call is added to its run's trace, where
        reading merges the two spans.
        """
        if not self._runs:
            return [*due, *self.release()]
        runs = {trace.trace_id: trace for trace in due if trace.trace_id in self._runs}
        if calls := [trace for trace in due if _is_single(trace)]:
            waiting = filter(None, map(unread, self._runs.keys() - runs))
            self._hold(calls, [*runs.values(), *waiting])
        found = [trace for trace in due if trace.trace_id not in self._held]
        for trace in runs.values():
            found += self._settle(trace)
            del self._runs[trace.trace_id]
        return found

    def release(self) -> list[GatheredTrace]:
        """Return all traces that are held."""
        held = [one.trace for one in self._held.values()]
        self._held.clear()
        self._held_for.clear()
        return held

    def _hold(self, calls: list[GatheredTrace], runs: list[GatheredTrace]) -> None:
        """Hold the traces of model calls that started during runs."""
        starts = sorted(((*_time_of(run), run.trace_id) for run in runs), reverse=True)
        during: list[tuple[float, float, str]] = []
        for trace in sorted(calls, key=lambda trace: trace.spans[0].start_ns):
            (call,) = trace.spans
            while starts and starts[-1][0] <= call.start_ns:
                during.append(starts.pop())
            during = [run for run in during if run[1] >= call.start_ns]
            if not during or len(self._held) >= self._max_held:
                continue
            reading = read_span(call, trace.logs)
            if reading is not None and reading.kind == "model":
                within = {trace_id for *_, trace_id in during}
                self._held[trace.trace_id] = _Held(trace, reading, within)
                for trace_id in within:
                    self._held_for[trace_id].append(trace.trace_id)

    def _settle(self, run: GatheredTrace) -> list[GatheredTrace]:
        """Add the calls that a run repeats to its trace; return those that no unread run may contain."""
        ids = self._held_for.pop(run.trace_id, ())
        held = [self._held[trace_id] for trace_id in ids if trace_id in self._held]
        repeated = _repeated(run, held) if held else set()
        released = []
        for one in held:
            one.within.discard(run.trace_id)
            if one.span.span_id in repeated:
                run.spans.append(one.span)
                run.logs.extend(one.trace.logs)
            elif not one.within:
                released.append(one.trace)
            else:
                continue
            del self._held[one.trace.trace_id]
        return released


def _repeated(run: GatheredTrace, held: Sequence[_Held]) -> set[str]:
    """Return the span ids of the calls that reading the run merges with a call of its own."""
    spans = [*run.spans, *run.open_roots.values()]
    asked = {_asked(node.reading) for node in _nodes(spans, run.logs) if node.kind == "model"}
    alike = [one for one in held if _asked(one.reading) in asked]
    calls = [one.span for one in alike]
    logs = [*run.logs, *(log for one in alike for log in one.trace.logs)]
    kept = {node.span.span_id for node in _nodes([*spans, *calls], logs)} if alike else set()
    return {call.span_id for call in calls} - kept


def _nodes(spans: Iterable[Span], logs: Iterable[LogRecord]) -> Iterator[Node]:
    for top in build_tree(spans, logs):
        yield top
        yield from top.descendants()


def _asked(reading: Reading) -> str | None:
    """Return what the user said last: concurrent runs may give the same answers and make the same calls."""
    user = last_user_text(reading.input or ())
    return str(user.value) if user is not None else None


def _is_single(trace: GatheredTrace) -> bool:
    """Return whether a trace is one span that ended and has no parent, of another instrumentation."""
    if len(trace.spans) != 1 or trace.open_roots:
        return False
    return trace.spans[0].parent_id is None and trace.spans[0].scope != _DETACHED


def _time_of(run: GatheredTrace) -> tuple[float, float]:
    """Return when a run started and ended; it has not ended before its root."""
    spans = [one for one in (*run.spans, *run.open_roots.values()) if one.scope == _DETACHED]
    start = min((one.start_ns for one in spans), default=math.inf)
    end = max((one.end_ns for one in spans), default=math.inf)
    return start, end if run.is_complete else math.inf
