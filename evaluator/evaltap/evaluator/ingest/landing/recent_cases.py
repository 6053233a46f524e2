"""Recently landed cases, kept in memory so that scoring does not have to read them back.

Most cases that a consumer scores landed moments ago and are complete.  They are scored from the bytes of
their records, at a fraction of the cost of reading them back.  Every other case is read from the store,
which waits for pending writes.  A session that continues soon after it was scored is still in memory.  The
memory is bounded, and nothing is lost with the process: the case is in the store, without a score.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from evaltap.evaluator.cases.identity import CaseIdentity, CaseKey
from evaltap.evaluator.cases.outline import LazyCase, LazyTurn, lazy_case
from evaltap.evaluator.cases.turn import Case
from evaltap.evaluator.ingest.landing.cases import with_turns
from evaltap.evaluator.ingest.landing.turns import LandedTurn
from evaltap.schemas.data import CaseData


@dataclass(frozen=True, slots=True)
class RecentLimits:
    """How much is kept in memory."""

    waiting_bytes: int = 3 << 20
    """Bytes of records that wait for their scores."""
    scored_bytes: int = 4 << 20
    """Bytes of scored records that are kept: a session's next turn may arrive several fetches later."""


class _Turn(NamedTuple):
    """The latest revision of a turn, and where its first revision landed."""

    started_at: datetime | None
    first_landed_seq: int
    revision: int
    line: bytes


@dataclass(slots=True)
class RecentCase:
    """A case with all its turns, by invocation id."""

    key: CaseKey
    header: str
    turns: dict[str, _Turn] = field(default_factory=dict)
    size: int = 0
    """Total size of its records in bytes."""

    def add(self, landed: LandedTurn, line: bytes, landed_seq: int) -> None:
        """Add a turn, or a newer revision of one."""
        self.size += len(line)
        name, revision = landed.origin.invocation_id, landed.origin.revision
        known = self.turns.get(name)
        first_seq = landed_seq if known is None else known.first_landed_seq
        self.turns[name] = _Turn(landed.started_at, first_seq, revision, line)

    def named(self, *, outlined: bool) -> tuple[CaseIdentity, "LandedLines"]:
        """Return the case as the store would: at its latest revision, with its turns in order.

        `outlined`: of arguments and results little will be read.
        """
        turns = [*self.turns.values()]
        if len(turns) > 1:
            turns.sort(key=_order)
        revisions = [turn.revision for turn in turns]
        identity = CaseIdentity(*self.key, sum(revisions), revisions)
        return identity, LandedLines(self.header, [turn.line for turn in turns], outlined)


class RecentCases:
    """The cases landed since `take`, each with all its turns.  Used by the thread that lands."""

    def __init__(self, limits: RecentLimits | None = None) -> None:
        self._limits = limits or RecentLimits()
        self._cases: dict[CaseKey, RecentCase] = {}
        self._bytes = 0
        self._taken: OrderedDict[CaseKey, RecentCase] = OrderedDict()
        self._taken_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the limit of waiting cases is reached."""
        return self._bytes >= self._limits.waiting_bytes

    def add(self, landed: LandedTurn, landed_seq: int, header: str | None) -> None:
        """Add a turn; `header` is that of its case, if the store has no turn of it yet."""
        key = landed.origin.key
        if landed.line is None:
            self._cases.pop(key, None)  # without an outline, the case must be read from the store
            self._goes_on(key)
            return
        case = self._cases.get(key)
        if case is None:
            case = self._goes_on(key) if header is None else RecentCase(key, header)
            if case is None:
                return
            self._cases[key] = case
            self._bytes += case.size
        case.add(landed, landed.line, landed_seq)
        self._bytes += len(landed.line)

    def take(self) -> Mapping[CaseKey, RecentCase]:
        """Return the cases and start a new set; the newest are kept in case they continue."""
        taken, self._cases, self._bytes = self._cases, {}, 0
        self._taken.update(taken)
        self._taken_bytes += sum(case.size for case in taken.values())
        while self._taken_bytes > self._limits.scored_bytes:
            self._taken_bytes -= self._taken.popitem(last=False)[1].size
        return taken

    def _goes_on(self, key: CaseKey) -> RecentCase | None:
        """Remove and return a case that was taken before, if it is still kept."""
        if (case := self._taken.pop(key, None)) is not None:
            self._taken_bytes -= case.size
        return case


class LandedLines(NamedTuple):
    """A case as the bytes of its records, each a case with one turn; they have outlines."""

    header: str
    lines: Sequence[bytes]
    outlined: bool

    def case(self) -> Case:
        """Return the case: with its outline, or decoded."""
        if self.outlined:
            return LandedCase(_lazy(self.header.encode()), [_lazy(line) for line in self.lines])
        return _whole(self.header, [orjson.loads(line) for line in self.lines])


class LandedCase(LazyCase):
    """A case assembled from the outlines of its header and its turns."""

    __slots__ = ("_known", "_turns")
    recorded_here = True

    def __init__(self, header: LazyCase, turns: Sequence[LazyCase]) -> None:
        actual = [turn.outline.actualConversation[0] for turn in turns]
        expected = [(turn.outline.conversation or (None,))[0] for turn in turns]
        self._turns = turns
        self._known = [one is not None for one in expected]
        whole = header.outline
        whole.actualConversation = actual
        if any(self._known):
            whole.conversation = [
                _placeholder(turn) if known is None else known
                for known, turn in zip(expected, actual, strict=True)
            ]
        super().__init__(header.line, whole)

    def turns(self, side: str) -> tuple[LazyTurn, ...]:
        """Return the turns of a side; turns without a reference are marked so."""
        turns = super().turns(side)
        if side == "conversation":
            for turn, known in zip(turns, self._known, strict=True):
                turn.referenced = known
        return turns

    def _decoded(self) -> CaseData:
        return _whole(self.line, self._turns)


def _whole(header: str | bytes, turns: Sequence[Case]) -> CaseData:
    actual = [turn["actualConversation"][0] for turn in turns]
    expected = [(turn.get("conversation") or (None,))[0] for turn in turns]
    return with_turns(orjson.loads(header), actual, expected)


def _lazy(line: bytes) -> LazyCase:
    """Return the outline of a line that is known to have one."""
    if (lazy := lazy_case(line)) is None:
        raise ValueError("a line whose outline was read has none")
    return lazy


def _placeholder(turn: Any) -> Any:
    return type(turn)(invocationId=turn.invocationId, userContent=turn.userContent)


def _order(turn: _Turn) -> tuple[bool, datetime, int]:
    started_at = turn.started_at
    return started_at is not None, started_at or datetime.min, turn.first_landed_seq
