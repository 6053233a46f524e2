"""The assembler: turns observations into finished turns, each an eval case with one turn.

No threads, I/O or clock; the caller passes the time. Bounded: open runs, closed runs that can still
be revised, and bytes held all have limits, and a run evicted by a limit is closed as incomplete
with the reason. Neither the arrival order of a run's observations nor duplicates matter.

A closed run is identified by the digest and number of its last revision. Late observations, and a
run that a source reads again, revise the same turn if they change it (`source.revision` increases);
they never create a second one. A run that continues one that has paused is a revision of its turn.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evaltap.recorder.assembly.case import case_of, digest_of
from evaltap.recorder.assembly.continuations import HELD_SECONDS, Continuations, revisions_before
from evaltap.recorder.memory import KEPT_SECONDS, pack, unpack, weigh
from evaltap.recorder.observation import Observation, RunEnded, RunEvent, WholeRun
from evaltap.recorder.pacing import yield_to_agent
from evaltap.schemas.data import CaseData


@dataclass(frozen=True, slots=True)
class AssemblerLimits:
    """How much the assembler holds, and for how long."""

    max_open_runs: int = 10_000
    """Started and unfinished runs; beyond it the one idle the longest is closed (evicted)."""
    max_closed_runs: int = 1_000
    """Closed runs kept for late observations; beyond it the oldest can no longer be revised."""
    max_bytes: int = 256 * 1024 * 1024
    """Estimated bytes of all observations held, open and closed."""
    max_known_runs: int = 20_000
    """Runs whose last revision is remembered, so that late observations do not start a new run."""
    idle_seconds: float = 600.0
    """A run without observations for this long is closed (idle_timeout)."""
    revise_seconds: float = KEPT_SECONDS
    """How long to keep a closed run for late observations."""


@dataclass(slots=True)
class _Run:
    """The observations of one run."""

    events: list[RunEvent] = field(default_factory=list)
    weight: int = 0
    last_seen_ns: int = 0
    ended: bool = False
    close_reason: str = ""
    packed: bytes | None = None
    """The observations of an idle run, pickled to relieve the agent's garbage collector."""

    def add(self, event: RunEvent, weight: int, now_ns: int) -> None:
        if self.packed is not None:
            self.events, self.packed = unpack(self.packed), None
        self.events.append(event)
        self.weight += weight
        self.last_seen_ns = max(self.last_seen_ns, now_ns)
        self.ended |= isinstance(event, RunEnded)

    def pack(self) -> None:
        self.packed = pack(self.events, self.weight)
        if self.packed is not None:
            self.events = []


class Assembler:
    """Builds turns; not thread-safe."""

    def __init__(
        self, limits: AssemblerLimits | None = None, *, recorder_version: str | None = None
    ) -> None:
        self.limits = limits or AssemblerLimits()
        self.recorder_version = recorder_version
        """Written to `source.recorderVersion` of each case."""
        self._open: OrderedDict[str, _Run] = OrderedDict()
        self._closed: OrderedDict[str, _Run] = OrderedDict()
        self._unpacked: dict[str, _Run] = {}
        self._revisions: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._continuations = Continuations()
        self._bytes = 0

    @property
    def open_runs(self) -> int:
        """The number of runs not yet closed."""
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """The estimated size of all observations held."""
        return self._bytes

    def feed(
        self, observation: Observation, now_ns: int | None = None, *, weight: int | None = None
    ) -> list[CaseData]:
        """Add an observation and return the cases that it completed or revised (usually none).

        `now_ns` is the time of arrival, by default the observation's own time. `weight` is its size
        in bytes if the caller knows it; otherwise it is estimated.
        """
        run_id = observation.run_id
        if isinstance(observation, WholeRun):
            return self._revise(run_id, observation.events)
        weight = weigh(observation) if weight is None else weight
        now = observation.time_ns if now_ns is None else now_ns
        closed = self._closed.get(run_id)
        if closed is None and run_id in self._revisions:
            # Closed too long ago to be revised.
            return []
        run = closed or self._open.setdefault(run_id, _Run())
        run.add(observation, weight, now)
        self._bytes += weight
        if closed is not None:
            self._unpacked[run_id] = closed
            return self._revise_closed(run_id, closed) + self._make_room()
        self._open.move_to_end(run_id)
        finished = self._close(run_id, "") if run.ended else []
        return finished + self._make_room()

    def expire(self, now_ns: int) -> list[CaseData]:
        """Return the cases of runs idle for too long at `now_ns`; evict expired closed runs."""
        idle_ns = int(self.limits.idle_seconds * 1e9)
        idle = [
            run_id for run_id, run in self._open.items() if now_ns - run.last_seen_ns >= idle_ns
        ]
        finished = [case for run_id in idle for case in self._close(run_id, "idle_timeout")]
        kept_ns = int(self.limits.revise_seconds * 1e9)
        while self._closed:
            oldest = next(iter(self._closed.values()))
            if now_ns - oldest.last_seen_ns < kept_ns:
                break
            self._forget()
        self._continuations.forget(now_ns - int(HELD_SECONDS * 1e9))
        for run in self._unpacked.values():
            run.pack()
            yield_to_agent()
        self._unpacked.clear()
        return finished

    def close_all(self, reason: str = "shutdown") -> Iterator[CaseData]:
        """Close every open run, oldest first."""
        for run_id in list(self._open):
            if run_id in self._open:
                yield from self._close(run_id, reason)

    def abandon(self) -> list[str]:
        """Discard the open runs; return their ids."""
        forgotten = list(self._open)
        self._open.clear()
        return forgotten

    def _close(self, run_id: str, reason: str) -> list[CaseData]:
        run = self._open.pop(run_id)
        run.close_reason = reason
        self._closed[run_id] = self._unpacked[run_id] = run
        while len(self._closed) > self.limits.max_closed_runs:
            self._forget()
        return self._revise_closed(run_id, run)

    def _revise_closed(self, run_id: str, run: _Run) -> list[CaseData]:
        return self._revise(run_id, run.events, "" if run.ended else run.close_reason)

    def _revise(
        self, run_id: str, events: Sequence[RunEvent], close_reason: str = ""
    ) -> list[CaseData]:
        """Return the case of a run's turn, unless it equals its last revision."""
        turn_id, events = self._continuations.joined(run_id, events, self._revisions)
        if turn_id != run_id:
            self._remember(run_id, "", 0)
        last_digest, revision = self._revisions.get(turn_id) or ("", revisions_before(events))
        case = case_of(
            events,
            revision=revision + 1,
            close_reason=close_reason,
            recorder_version=self.recorder_version,
        )
        digest = digest_of(case)
        if digest == last_digest:
            return []
        self._remember(turn_id, digest, revision + 1)
        return [case]

    def _remember(self, run_id: str, digest: str, revision: int) -> None:
        self._revisions[run_id] = digest, revision
        if len(self._revisions) > self.limits.max_known_runs:
            self._revisions.popitem(last=False)

    def _make_room(self) -> list[CaseData]:
        finished: list[CaseData] = []
        while self._bytes > self.limits.max_bytes and self._closed:
            self._forget()
        while self._open and (
            len(self._open) > self.limits.max_open_runs or self._bytes > self.limits.max_bytes
        ):
            finished += self._close(next(iter(self._open)), "evicted")
            while self._bytes > self.limits.max_bytes and self._closed:
                self._forget()
        return finished

    def _forget(self) -> None:
        run_id, run = self._closed.popitem(last=False)
        self._unpacked.pop(run_id, None)
        self._bytes -= run.weight
