"""The assembler: observations in, finished turns out, each as one eval case with one turn.

Pure: no thread, no I/O, no clock; the caller passes the time.  Bounded: open runs, closed runs
that may still be revised, and bytes held all have limits, and what falls to a limit is closed as
incomplete with the reason, or counted.  The order in which the observations of a run arrive does
not matter, nor do duplicates.  An observation that arrives after its run was closed revises the
same turn (`source.revision` goes up); it never makes a second one.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from evaltap.recorder.observation import Observation, RunEnded, RunStarted
from evaltap.recorder.pacing import breathe
from evaltap.recorder.packing import pack, unpack
from evaltap.recorder.turn import case_of

CaseData = dict[str, Any]
"""An eval case in canonical JSON form, as plain data."""


@dataclass(frozen=True, slots=True)
class RunReread(RunStarted):
    """The start of a run that is told again from the beginning, since more of it is known now.

    It takes the place of everything observed of the run before; the run is revised when its
    RunEnded has come again.  Unlike all other observations it must come first.
    """


@dataclass(frozen=True, slots=True)
class AssemblerLimits:
    """How much the assembler may hold, and for how long."""

    max_open_runs: int = 10_000
    """Runs begun and not ended; beyond it the one idle for longest is closed (evicted)."""
    max_closed_runs: int = 1_000
    """Closed runs kept for late observations; beyond it the oldest can no longer be revised."""
    max_bytes: int = 256 * 1024 * 1024
    """Estimated bytes of all observations held, open and closed."""
    max_remembered_ids: int = 20_000
    """Ids of runs closed and forgotten, so that what comes later is not taken for a new run."""
    idle_seconds: float = 600.0
    """A run without any observation for this long is closed (idle_timeout)."""
    revise_seconds: float = 600.0
    """How long a closed run is kept for late observations."""
    quiet_seconds: float = 0.0
    """Wait this long after the end of a run before closing it; 0 closes at once."""


@dataclass(slots=True)
class AssemblerCounters:
    """What became of runs and observations; only ever grows."""

    runs_closed: int = 0
    runs_evicted: int = 0
    runs_timed_out: int = 0
    revisions: int = 0
    late_dropped: int = 0
    """Observations for a run that was closed and forgotten."""


@dataclass(slots=True)
class _Run:
    """One run's observations; `case` is what was last emitted for it."""

    observations: list[Observation] = field(default_factory=list)
    weight: int = 0
    last_seen_ns: int = 0
    ended: bool = False
    changed: bool = False
    rereading: bool = False
    revision: int = 0
    close_reason: str = ""
    case: CaseData | None = None
    packed: bytes | None = None
    """The observations and the case, while nothing more comes."""

    def rest(self) -> None:
        """Keep what was observed in a form that costs the agent's process little."""
        self.packed = pack((self.observations, self.case), self.weight)
        if self.packed is not None:
            self.observations, self.case = [], None

    def wake(self) -> None:
        """Have everything at hand again."""
        if self.packed is not None:
            self.observations, self.case = unpack(self.packed)
            self.packed = None


class Assembler:
    """Builds turns; not thread-safe, to be used by one thread.

    `recorder_version` is written into `source.recorderVersion` of each case.
    """

    def __init__(
        self, limits: AssemblerLimits | None = None, *, recorder_version: str | None = None
    ) -> None:
        self.limits = limits or AssemblerLimits()
        self.counters = AssemblerCounters()
        self._version = recorder_version
        self._open: OrderedDict[str, _Run] = OrderedDict()
        self._closed: OrderedDict[str, _Run] = OrderedDict()
        self._awake: dict[str, _Run] = {}
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._bytes = 0

    @property
    def open_runs(self) -> int:
        """The number of runs that are not closed yet."""
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """The estimated size of all observations held."""
        return self._bytes

    def feed(
        self, observation: Observation, now_ns: int | None = None, *, weight: int | None = None
    ) -> list[CaseData]:
        """Take one observation and return the cases that it finished or revised (mostly none).

        `now_ns` is the time of arrival; the observation's own time stands in for it when absent.
        `weight` is what it holds in bytes, where the caller knows; else it is weighed.
        """
        weight = weigh(observation) if weight is None else weight
        now = observation.time_ns if now_ns is None else now_ns
        run_id = observation.run_id
        if run_id in self._forgotten:
            self.counters.late_dropped += 1
            return []
        closed = self._closed.get(run_id)
        if closed is not None:
            return self._feed_closed(closed, observation, weight, now)
        run = self._open.get(run_id)
        if run is None:
            run = self._open[run_id] = _Run()
        self._add(run, observation, weight, now)
        self._open.move_to_end(run_id)
        finished: list[CaseData] = []
        if run.ended and self.limits.quiet_seconds <= 0:
            finished += self._close(run_id, "")
        return finished + self._make_room()

    def expire(self, now_ns: int) -> list[CaseData]:
        """Return the cases of runs due at `now_ns`: quiet after their end, or idle too long."""
        finished: list[CaseData] = []
        quiet_ns = int(self.limits.quiet_seconds * 1e9)
        idle_ns = int(self.limits.idle_seconds * 1e9)
        for run_id, run in list(self._open.items()):
            silence = now_ns - run.last_seen_ns
            if run.ended and silence >= quiet_ns:
                finished += self._close(run_id, "")
            elif not run.ended and silence >= idle_ns:
                self.counters.runs_timed_out += 1
                finished += self._close(run_id, "idle_timeout")
        finished += self._revise_due(now_ns, quiet_ns)
        self._put_to_rest()
        return finished

    def close_all(self, reason: str = "shutdown") -> list[CaseData]:
        """Close every open run, oldest first, and revise what late observations changed."""
        finished: list[CaseData] = []
        for run_id in list(self._open):
            finished += self._close(run_id, reason)
        for run in self._closed.values():
            finished += self._revise(run)
        return finished

    def _add(self, run: _Run, observation: Observation, weight: int, now_ns: int) -> None:
        if isinstance(observation, RunReread):
            self._bytes -= run.weight
            run.weight, run.rereading = 0, True
            run.observations.clear()
        run.observations.append(observation)
        run.weight += weight
        self._bytes += weight
        run.last_seen_ns = max(run.last_seen_ns, now_ns)
        if isinstance(observation, RunEnded):
            run.ended, run.rereading = True, False

    def _feed_closed(
        self, run: _Run, observation: Observation, weight: int, now_ns: int
    ) -> list[CaseData]:
        run.wake()
        self._awake[observation.run_id] = run
        self._add(run, observation, weight, now_ns)
        run.changed = True
        revised = self._revise(run) if self.limits.quiet_seconds <= 0 else []
        return revised + self._make_room()

    def _close(self, run_id: str, reason: str) -> list[CaseData]:
        run = self._open.pop(run_id)
        self._closed[run_id] = run
        self.counters.runs_closed += 1
        run.revision = 1
        run.close_reason = reason
        run.case = self._case(run)
        self._awake[run_id] = run
        while len(self._closed) > self.limits.max_closed_runs:
            self._forget()
        return [run.case]

    def _revise(self, run: _Run) -> list[CaseData]:
        """Emit a closed run again when what arrived late makes a difference."""
        if not run.changed or run.rereading:
            return []
        run.changed = False
        if self._case(run) == run.case:
            return []
        run.revision += 1
        run.case = self._case(run)
        self.counters.revisions += 1
        return [run.case]

    def _revise_due(self, now_ns: int, quiet_ns: int) -> list[CaseData]:
        finished: list[CaseData] = []
        for run in self._closed.values():
            if run.changed and now_ns - run.last_seen_ns >= quiet_ns:
                finished += self._revise(run)
        keep_ns = int(self.limits.revise_seconds * 1e9)
        while self._closed:
            oldest = next(iter(self._closed.values()))
            if now_ns - oldest.last_seen_ns < keep_ns:
                break
            self._forget()
        return finished

    def _put_to_rest(self) -> None:
        """Pack the closed runs of which nothing more came since they were looked at."""
        for run_id, run in list(self._awake.items()):
            if not run.changed and not run.rereading:
                run.rest()
                del self._awake[run_id]
                breathe()

    def _case(self, run: _Run) -> CaseData:
        reason = "" if run.ended else run.close_reason
        return case_of(
            run.observations,
            revision=run.revision,
            close_reason=reason,
            recorder_version=self._version,
        )

    def _make_room(self) -> list[CaseData]:
        finished: list[CaseData] = []
        while self._bytes > self.limits.max_bytes and self._closed:
            self._forget()
        while self._open and (
            len(self._open) > self.limits.max_open_runs or self._bytes > self.limits.max_bytes
        ):
            self.counters.runs_evicted += 1
            finished += self._close(next(iter(self._open)), "evicted")
            while self._bytes > self.limits.max_bytes and self._closed:
                self._forget()
        return finished

    def _forget(self) -> None:
        run_id, run = self._closed.popitem(last=False)
        self._awake.pop(run_id, None)
        self._bytes -= run.weight
        self._forgotten[run_id] = None
        while len(self._forgotten) > self.limits.max_remembered_ids:
            self._forgotten.popitem(last=False)


_OVERHEAD = 200
_VALUE = 32


def weigh(item: object) -> int:
    """Estimate the bytes that an observation, a span, or a value in one keeps alive."""
    total = 0
    pending: list[Any] = [item]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is str:
            total += _VALUE + len(value)
        elif kind is dict:
            total += _OVERHEAD
            for key, content in value.items():
                total += _VALUE + len(key) if type(key) is str else _VALUE
                if type(content) is str:
                    total += _VALUE + len(content)
                elif content is not None:
                    pending.append(content)
        elif kind is list or kind is tuple:
            total += _VALUE
            pending.extend(value)
        elif is_dataclass(kind):
            total += _OVERHEAD
            for name in _field_names(kind):
                content = getattr(value, name)
                if type(content) is str:
                    total += _VALUE + len(content)
                elif content is not None and type(content) is not int:
                    pending.append(content)
        else:
            total += _VALUE
    return total


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))
