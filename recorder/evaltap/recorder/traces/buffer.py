"""Buffers spans and log records by trace until the trace is complete enough to read.

No threads and no clock: the caller passes the time to `due`. A trace is due when its root has ended
and nothing arrived for a quiet period, or when nothing arrived for the idle time. Children arrive
before parents and in any order. If root starts are reported as well, as within the agent's process,
there is no need to wait: a trace is due once all its roots have ended and no span lacks its parent.
Late arrivals reopen a trace that was read, with its earlier content, for as long as it is kept.
Everything held is bounded and counted.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from evaltap.recorder.memory import KEPT_SECONDS, pack, unpack, weigh
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.telemetry.spans import LogRecord, Span, is_evaluation

MAX_SPANS_REREAD_AT_ONCE = 500
"""A larger trace is re-read only when it is quiet, not for each root that ends in it."""


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """How many traces to hold, how large, and how long to wait for them."""

    max_traces: int = 10_000
    """Unread traces; beyond it the one idle the longest is read incomplete."""
    max_spans: int = 20_000
    """Spans and log records per trace; further ones are dropped and counted."""
    max_bytes: int = 256 * 1024 * 1024
    """Estimated bytes of everything held."""
    quiet_seconds: float = 2.0
    """How long to wait for more after a trace's root has ended, unless the trace is whole."""
    idle_seconds: float = 600.0
    """How long to wait for the root of a trace that receives nothing more."""
    revise_seconds: float = KEPT_SECONDS
    """How long to keep a trace that was read, for late spans."""


@dataclass(slots=True)
class TraceCounters:
    """Traces that were read before they were complete; only ever increases."""

    traces_timed_out: int = 0
    traces_evicted: int = 0


@dataclass(slots=True)
class GatheredTrace:
    """Everything received for one trace; `reason` is why it is read now."""

    trace_id: str
    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    reason: str = ""
    runs: dict[str, str] = field(default_factory=dict)
    """Root span id to run id of the runs read from it before; filled in by the reader."""
    bytes: int = 0
    touched_ns: int | None = None
    open_roots: dict[str, Span] = field(default_factory=dict)
    root_ended: bool = False
    dropped: int = 0
    """Spans and log records that did not fit; the runs of this trace are incomplete."""
    has_reported_roots: bool = False
    """A root's start was reported, so the starts of all roots are."""
    reported_root_ended: bool = False
    """A root with a reported start has ended since the trace was last read."""
    unread: set[str] = field(default_factory=set)
    """Ids of the spans received since then; only for traces with `has_reported_roots`, like `awaited`."""
    awaited: set[str] = field(default_factory=set)
    """Ids referenced by these spans and log records but not received: open, or read before."""

    @property
    def is_complete(self) -> bool:
        """True when a root has ended and none known to have started is open."""
        return self.root_ended and not self.open_roots

    @property
    def is_settled(self) -> bool:
        """True when new roots were seen from start to end and nothing references an open span."""
        return (
            self.reported_root_ended
            and not self.open_roots
            and not self.awaited
            and (not self.reason or len(self.spans) <= MAX_SPANS_REREAD_AT_ONCE)
        )

    def add(self, item: Span | LogRecord, *, is_root: bool) -> None:
        """Add an item, and update the ids of the spans still to come."""
        if isinstance(item, LogRecord):
            self.logs.append(item)
            self._await(item.span_id)
            return
        self.spans.append(item)
        self.root_ended |= is_root
        if not self.has_reported_roots:
            return
        self.reported_root_ended |= self.open_roots.pop(item.span_id, None) is not None
        self.unread.add(item.span_id)
        self.awaited.discard(item.span_id)
        if not is_root:
            self._await(item.parent_id)

    def note_reading(self, reason: str) -> None:
        """Mark everything held as read."""
        self.reason = reason
        self.reported_root_ended = False
        self.unread.clear()
        self.awaited.clear()

    def _await(self, span_id: str | None) -> None:
        if self.has_reported_roots and span_id and span_id not in self.unread:
            self.awaited.add(span_id)


_ReadTrace = tuple[int | None, int, GatheredTrace | bytes]
"""A trace that was read: when it was touched, its size, and itself or its pickle."""


class TraceBuffer:
    """Holds traces until they are due; not thread-safe.

    Times are those passed to `due`: what arrives between two calls gets the time of the later one.
    `on_forget` is called with the id of each read trace that is evicted.
    """

    def __init__(
        self,
        limits: TraceLimits | None = None,
        *,
        on_forget: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.limits = limits or TraceLimits()
        self._on_forget = on_forget
        self.counters = TraceCounters()
        self._waiting: OrderedDict[str, GatheredTrace] = OrderedDict()
        self._read: OrderedDict[str, _ReadTrace] = OrderedDict()
        self._just_read: list[GatheredTrace] = []
        self._settled: dict[str, None] = {}
        self._bytes = 0
        self.ended = 0
        """The number of unread traces of which a root has ended."""

    def __len__(self) -> int:
        """Return the number of unread traces."""
        return len(self._waiting)

    def unread(self, trace_id: str) -> GatheredTrace | None:
        """Return a trace that was not read yet; None if there is none."""
        return self._waiting.get(trace_id)

    @property
    def held_bytes(self) -> int:
        """The estimated size of everything held."""
        return self._bytes

    def begin(self, root: Span) -> None:
        """Note that a local root span has started; its trace is not complete before it ends."""
        trace = self._touch(root.trace_id)
        if not any(span.span_id == root.span_id for span in trace.spans):
            trace.has_reported_roots = True
            trace.open_roots[root.span_id] = root

    def add(self, item: Span | LogRecord) -> None:
        """Add a finished span or a log record; ignores spans of returned scores."""
        if is_evaluation(item):
            return
        trace = self._touch(item.trace_id)
        is_root = isinstance(item, Span) and (
            item.parent_id is None or item.span_id in trace.open_roots
        )
        if not is_root and len(trace.spans) + len(trace.logs) >= self.limits.max_spans:
            trace.dropped += 1
            return
        weight = _weight(item)
        trace.bytes += weight
        self._bytes += weight
        had_ended = trace.root_ended
        trace.add(item, is_root=is_root)
        self.ended += trace.root_ended - had_ended
        if trace.is_settled:
            self._settled[trace.trace_id] = None

    def due(self, now_ns: int) -> list[GatheredTrace]:
        """Return the traces to read now, and evict those read long ago.

        Read them before the next call, which pickles them.
        """
        self._pack()
        found: list[GatheredTrace] = []
        quiet_ns, idle_ns = (
            int(seconds * 1e9) for seconds in (self.limits.quiet_seconds, self.limits.idle_seconds)
        )
        self._stamp(now_ns)
        found += self._pop_settled()
        for trace in list(self._silent(now_ns, quiet_ns)):
            silence = now_ns - (trace.touched_ns or now_ns)
            if trace.is_complete and silence >= quiet_ns:
                found.append(self._pop(trace, "root_span_ended"))
            elif silence >= idle_ns:
                self.counters.traces_timed_out += 1
                found.append(self._pop(trace, "idle_timeout"))
        found += self._evict()
        self._forget(now_ns)
        return found

    def _pop_settled(self) -> list[GatheredTrace]:
        """Return the traces that expect nothing more, whenever they were touched."""
        ended = [self._waiting[trace_id] for trace_id in self._settled if trace_id in self._waiting]
        self._settled.clear()
        # A root may have started since.
        return [self._pop(trace, "root_span_ended") for trace in ended if trace.is_settled]

    def _stamp(self, now_ns: int) -> None:
        """Stamp the traces touched since the last call, which are at the end."""
        for trace in reversed(self._waiting.values()):
            if trace.touched_ns is not None:
                if trace.touched_ns > now_ns:
                    # The clock was set back: restart the waiting times.
                    for other in self._waiting.values():
                        other.touched_ns = now_ns
                break
            trace.touched_ns = now_ns

    def _silent(self, now_ns: int, quiet_ns: int) -> Iterator[GatheredTrace]:
        """Yield the traces untouched for the quiet period; they are ordered by touch."""
        for trace in self._waiting.values():
            if now_ns - (trace.touched_ns or now_ns) < quiet_ns:
                return
            yield trace

    def complete(self) -> list[GatheredTrace]:
        """Return the traces whose roots have ended, without waiting for the quiet period."""
        waiting = list(self._waiting.values())
        return [self._pop(trace, "root_span_ended") for trace in waiting if trace.is_complete]

    def drain(self, reason: str = "shutdown") -> list[GatheredTrace]:
        """Return all unread traces, complete or not."""
        return [
            self._pop(trace, "root_span_ended" if trace.is_complete else reason)
            for trace in list(self._waiting.values())
        ]

    def abandon(self) -> list[GatheredTrace]:
        """Return all unread traces, and keep none."""
        traces = list(self._waiting.values())
        self._waiting.clear()
        self.ended = 0
        return traces

    def _touch(self, trace_id: str) -> GatheredTrace:
        trace = self._waiting.get(trace_id)
        if trace is None:
            trace = self._reopen(trace_id)
            self._waiting[trace_id] = trace
            self.ended += trace.root_ended
        trace.touched_ns = None
        self._waiting.move_to_end(trace_id)
        return trace

    def _reopen(self, trace_id: str) -> GatheredTrace:
        """Return a trace that was read before, or a new one."""
        if (kept := self._read.pop(trace_id, None)) is None:
            return GatheredTrace(trace_id)
        trace: GatheredTrace = unpack(kept[2]) if isinstance(kept[2], bytes) else kept[2]
        return trace

    def _pack(self) -> None:
        """Pickle the traces that were read since the last call."""
        for trace in self._just_read:
            touched_ns, weight, kept = self._read.get(trace.trace_id, (None, 0, b""))
            if kept is trace:
                packed = pack(trace, weight)
                self._read[trace.trace_id] = (touched_ns, weight, packed or trace)
                yield_to_agent()
        self._just_read.clear()

    def _pop(self, trace: GatheredTrace, reason: str) -> GatheredTrace:
        del self._waiting[trace.trace_id]
        self.ended -= trace.root_ended
        self._read[trace.trace_id] = (trace.touched_ns, trace.bytes, trace)
        self._just_read.append(trace)
        trace.note_reading(reason)
        return trace

    def _evict(self) -> list[GatheredTrace]:
        found: list[GatheredTrace] = []
        while self._bytes > self.limits.max_bytes and self._read:
            self._drop(next(iter(self._read)))
        while self._waiting and (
            len(self._waiting) > self.limits.max_traces or self._bytes > self.limits.max_bytes
        ):
            self.counters.traces_evicted += 1
            trace = self._pop(next(iter(self._waiting.values())), "evicted")
            self._drop(trace.trace_id)
            found.append(trace)
        return found

    def _forget(self, now_ns: int) -> None:
        keep_ns = int(self.limits.revise_seconds * 1e9)
        while self._read:
            # In order of reading, which almost always is that of touching.
            trace_id, (touched_ns, weight, kept) = next(iter(self._read.items()))
            if touched_ns is None or touched_ns > now_ns:
                # Never stamped, or the clock was set back: its time starts now.
                self._read[trace_id] = (now_ns, weight, kept)
                break
            if now_ns - touched_ns < keep_ns:
                break
            self._drop(trace_id)

    def _drop(self, trace_id: str) -> None:
        self._bytes -= self._read.pop(trace_id)[1]
        self._on_forget(trace_id)


_BARE_SPAN_BYTES = 800
"""Memory that a span without content keeps alive: its ids, its times and itself."""
_ATTRIBUTE_BYTES = 150
"""Memory that an attribute keeps alive, apart from its name and text."""


def _weight(item: Span | LogRecord) -> int:
    """Estimate the memory an item keeps alive; for spans faster than `weigh`, as there are many."""
    if isinstance(item, LogRecord):
        return weigh(item)
    total = _BARE_SPAN_BYTES + len(item.name)
    for key, value in item.attributes.items():
        total += _ATTRIBUTE_BYTES + len(key)
        total += len(value) if type(value) is str else weigh(value)
    return total + weigh(item.events) if item.events else total
