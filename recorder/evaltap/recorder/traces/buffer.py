"""Spans and log records gathered by trace until the trace is complete enough to be read.

Pure: no thread, no clock; the owner calls `due` with the time.  A trace is due when its root has
ended and nothing more came for a quiet period, or when nothing came for the idle time.  Children
arrive before parents and in any order.  Where the starts of roots are reported too, as within the
agent's process, there is no need to wait: a trace is due once all of them have ended and no span
misses its parent.  What arrives after a trace was read opens it again, with what it held before,
for as long as that is kept.  Everything held is bounded and counted.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from evaltap.recorder.memory import KEPT_SECONDS, pack, unpack, weigh
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.telemetry.spans import LogRecord, Span, is_evaluation

MAX_SPANS_REREAD_AT_ONCE = 500
"""A larger trace is not read again for each root that ends in it, but only when it is quiet."""


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """How many traces may be held, how large, and how long they are waited for."""

    max_traces: int = 10_000
    """Traces waiting to be read; beyond it the one idle for longest is read as it is."""
    max_spans: int = 20_000
    """Spans and log records of one trace; what comes beyond it is dropped and counted."""
    max_bytes: int = 256 * 1024 * 1024
    """Estimated bytes of everything held."""
    quiet_seconds: float = 2.0
    """How long to wait for more after the root of a trace has ended, unless it is whole."""
    idle_seconds: float = 600.0
    """How long to wait for the root of a trace of which nothing more comes."""
    revise_seconds: float = KEPT_SECONDS
    """How long a trace that was read is kept for late spans."""


@dataclass(slots=True)
class TraceCounters:
    """Traces that were read before they were complete; only ever grows."""

    traces_timed_out: int = 0
    traces_evicted: int = 0


@dataclass(slots=True)
class GatheredTrace:
    """Everything seen of one trace; `reason` says why it is read now."""

    trace_id: str
    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    reason: str = ""
    runs: dict[str, str] = field(default_factory=dict)
    """Root span id to run id of the runs read from it before; the reader fills this in."""
    bytes: int = 0
    touched_ns: int | None = None
    open_roots: dict[str, Span] = field(default_factory=dict)
    root_ended: bool = False
    dropped: int = 0
    """Spans and log records that did not fit; the runs of this trace miss something."""
    begun: bool = False
    """The start of a root was reported, so those of all are."""
    seen_root_ended: bool = False
    """A root whose start was reported has ended since the trace was last read."""
    unread: set[str] = field(default_factory=set)
    """Ids of the spans that came since then; of begun traces only, as is the next."""
    awaited: set[str] = field(default_factory=set)
    """Ids that these spans and log records name and none of them has: open, or read before."""

    @property
    def is_complete(self) -> bool:
        """True when a root has ended and none that is known to have begun is open."""
        return self.root_ended and not self.open_roots

    @property
    def is_whole(self) -> bool:
        """True when new roots were seen from start to end and nothing refers to an open span."""
        return (
            self.seen_root_ended
            and not self.open_roots
            and not self.awaited
            and (not self.reason or len(self.spans) <= MAX_SPANS_REREAD_AT_ONCE)
        )

    def add(self, item: Span | LogRecord, *, is_root: bool) -> None:
        """Take an item, and note what it says about the spans that must still come."""
        if isinstance(item, LogRecord):
            self.logs.append(item)
            self._await(item.span_id)
            return
        self.spans.append(item)
        self.root_ended |= is_root
        if not self.begun:
            return
        self.seen_root_ended |= self.open_roots.pop(item.span_id, None) is not None
        self.unread.add(item.span_id)
        self.awaited.discard(item.span_id)
        if not is_root:
            self._await(item.parent_id)

    def note_reading(self, reason: str) -> None:
        """Note that everything held is read now."""
        self.reason = reason
        self.seen_root_ended = False
        self.unread.clear()
        self.awaited.clear()

    def _await(self, span_id: str | None) -> None:
        if self.begun and span_id and span_id not in self.unread:
            self.awaited.add(span_id)


_Kept = tuple[int | None, int, GatheredTrace | bytes]
"""A trace that was read: when it was touched, its weight, and itself or what it was packed into."""


class TraceBuffer:
    """Holds traces until they are due; not thread-safe, to be used by one thread.

    Times are those passed to `due`: what arrives between two calls counts as seen at the later one.
    `on_forget` is called with the id of each trace that was read and is no longer held.
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
        self._read: OrderedDict[str, _Kept] = OrderedDict()
        self._just_read: list[GatheredTrace] = []
        self._whole: dict[str, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of traces that wait to be read."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """The estimated size of everything held."""
        return self._bytes

    def begin(self, root: Span) -> None:
        """Note that a local root span has begun; its trace is not complete before it ends."""
        trace = self._touch(root.trace_id)
        if not any(span.span_id == root.span_id for span in trace.spans):
            trace.begun = True
            trace.open_roots[root.span_id] = root

    def add(self, item: Span | LogRecord) -> None:
        """Take a finished span or a log record; scores that come back are passed over."""
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
        trace.add(item, is_root=is_root)
        if trace.is_whole:
            self._whole[trace.trace_id] = None

    def due(self, now_ns: int) -> list[GatheredTrace]:
        """Return the traces to read now, and forget those that were read long ago.

        Those returned must be read before the next call, which packs them.
        """
        self._pack()
        found: list[GatheredTrace] = []
        quiet_ns, idle_ns = (
            int(seconds * 1e9) for seconds in (self.limits.quiet_seconds, self.limits.idle_seconds)
        )
        self._stamp(now_ns)
        found += self._take_whole()
        for trace in list(self._silent(now_ns, quiet_ns)):
            silence = now_ns - (trace.touched_ns or now_ns)
            if trace.is_complete and silence >= quiet_ns:
                found.append(self._take(trace, "root_span_ended"))
            elif silence >= idle_ns:
                self.counters.traces_timed_out += 1
                found.append(self._take(trace, "idle_timeout"))
        found += self._make_room()
        self._forget(now_ns)
        return found

    def _take_whole(self) -> list[GatheredTrace]:
        """Return the traces of which nothing more is expected, whenever they were touched."""
        ended = [self._waiting[trace_id] for trace_id in self._whole if trace_id in self._waiting]
        self._whole.clear()
        # A root may have begun since.
        return [self._take(trace, "root_span_ended") for trace in ended if trace.is_whole]

    def _stamp(self, now_ns: int) -> None:
        """Note the time for the traces that were touched since the last call: those at the end."""
        for trace in reversed(self._waiting.values()):
            if trace.touched_ns is not None:
                if trace.touched_ns > now_ns:
                    # The clock was put back: what is waited for starts anew.
                    for other in self._waiting.values():
                        other.touched_ns = now_ns
                break
            trace.touched_ns = now_ns

    def _silent(self, now_ns: int, quiet_ns: int) -> Iterator[GatheredTrace]:
        """Yield the traces not touched for the quiet period; they are in order of touch."""
        for trace in self._waiting.values():
            if now_ns - (trace.touched_ns or now_ns) < quiet_ns:
                return
            yield trace

    def complete(self) -> list[GatheredTrace]:
        """Return the traces whose roots have ended, without waiting for the quiet period."""
        waiting = list(self._waiting.values())
        return [self._take(trace, "root_span_ended") for trace in waiting if trace.is_complete]

    def drain(self, reason: str = "shutdown") -> list[GatheredTrace]:
        """Return all traces that wait, complete or not."""
        return [
            self._take(trace, "root_span_ended" if trace.is_complete else reason)
            for trace in list(self._waiting.values())
        ]

    def _touch(self, trace_id: str) -> GatheredTrace:
        trace = self._waiting.get(trace_id)
        if trace is None:
            trace = self._reopen(trace_id)
            self._waiting[trace_id] = trace
        trace.touched_ns = None
        self._waiting.move_to_end(trace_id)
        return trace

    def _reopen(self, trace_id: str) -> GatheredTrace:
        """Return a trace that was read before, or a new one."""
        kept = self._read.pop(trace_id, None)
        if kept is None:
            return GatheredTrace(trace_id)
        trace: GatheredTrace = unpack(kept[2]) if isinstance(kept[2], bytes) else kept[2]
        return trace

    def _pack(self) -> None:
        """Make bytes of the traces that were read since the last call."""
        for trace in self._just_read:
            touched_ns, weight, kept = self._read.get(trace.trace_id, (None, 0, b""))
            if kept is trace:
                packed = pack(trace, weight)
                self._read[trace.trace_id] = (touched_ns, weight, packed or trace)
                yield_to_agent()
        self._just_read.clear()

    def _take(self, trace: GatheredTrace, reason: str) -> GatheredTrace:
        del self._waiting[trace.trace_id]
        self._read[trace.trace_id] = (trace.touched_ns, trace.bytes, trace)
        self._just_read.append(trace)
        trace.note_reading(reason)
        return trace

    def _make_room(self) -> list[GatheredTrace]:
        found: list[GatheredTrace] = []
        while self._bytes > self.limits.max_bytes and self._read:
            self._drop(next(iter(self._read)))
        while self._waiting and (
            len(self._waiting) > self.limits.max_traces or self._bytes > self.limits.max_bytes
        ):
            self.counters.traces_evicted += 1
            trace = self._take(next(iter(self._waiting.values())), "evicted")
            self._drop(trace.trace_id)
            found.append(trace)
        return found

    def _forget(self, now_ns: int) -> None:
        keep_ns = int(self.limits.revise_seconds * 1e9)
        while self._read:
            # In the order of reading, which is that of touching, but for a few.
            trace_id, (touched_ns, weight, kept) = next(iter(self._read.items()))
            if touched_ns is None or touched_ns > now_ns:
                # Never stamped, or the clock was put back: it is kept from now on.
                self._read[trace_id] = (now_ns, weight, kept)
                break
            if now_ns - touched_ns < keep_ns:
                break
            self._drop(trace_id)

    def _drop(self, trace_id: str) -> None:
        self._bytes -= self._read.pop(trace_id)[1]
        self._on_forget(trace_id)


_BARE_SPAN_BYTES = 800
"""What a span without content keeps alive: its ids, its times and itself."""
_ATTRIBUTE_BYTES = 150
"""What an attribute keeps alive besides the characters of its name and its text."""


def _weight(item: Span | LogRecord) -> int:
    """Estimate what an item keeps alive; of a span faster than `weigh`, as there are many."""
    if isinstance(item, LogRecord):
        return weigh(item)
    total = _BARE_SPAN_BYTES + len(item.name)
    for key, value in item.attributes.items():
        total += _ATTRIBUTE_BYTES + len(key)
        total += len(value) if type(value) is str else weigh(value)
    return total + weigh(item.events) if item.events else total
