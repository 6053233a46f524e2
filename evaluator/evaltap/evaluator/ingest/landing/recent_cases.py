"""Recently landed cases, kept in memory so that scoring does not have to read them back.

Most cases that a consumer scores landed moments ago and are complete.  They are scored from their outlines,
at a fraction of the cost of decoding them again.  Every other case is read from the store, which waits for
pending writes.  A session that continues soon after it was scored is still in memory.  The memory is
bounded, and nothing is lost with the process: the case is in the store, without a score.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from msgspec import UNSET, structs

from evaltap.evaluator.cases.identity import CaseIdentity, CaseKey
from evaltap.evaluator.cases.outline import LazyCase, LazyTurn, lazy_case
from evaltap.evaluator.ingest.landing.cases import with_turns
from evaltap.evaluator.ingest.landing.row_types import LandedTurn
from evaltap.schemas.formats.case import CaseData


@dataclass(frozen=True, slots=True)
class RecentLimits:
    """How much is kept in memory."""

    waiting_bytes: int = 3 << 20
    """Bytes of records that wait for their scores; with outlines and rows, they take about twice as much."""
    scored_bytes: int = 4 << 20
    """Bytes of scored records that are kept: a session's next turn may arrive several fetches later."""


class _Turn(NamedTuple):
    """The latest revision of a turn, and where its first revision landed."""

    started_at: datetime | None
    first_landed_seq: int
    revision: int
    line: bytes
    lazy: LazyCase | None
    """None once the case was scored: only the line is kept then, a fraction of the outline's size."""


@dataclass(slots=True)
class RecentCase:
    """A case with all its turns, by invocation id."""

    key: CaseKey
    header: str
    outline: Any
    """The outline of the header."""
    turns: dict[str, _Turn] = field(default_factory=dict)
    size: int = 0
    """Total size of its records in bytes."""

    def add(self, landed: LandedTurn, lazy: LazyCase, landed_seq: int, size: int) -> None:
        """Add a turn, or a newer revision of one."""
        self.size += size
        known = self.turns.get(landed.invocation_id)
        first_seq = landed_seq if known is None else known.first_landed_seq
        self.turns[landed.invocation_id] = _Turn(
            landed.turn.started_at, first_seq, landed.revision, lazy.line, lazy
        )

    def named(self) -> tuple[CaseIdentity, "LandedCase"]:
        """Return the case as the store would: at its latest revision, with its turns in order.

        The turns' outlines are moved to the returned case.
        """
        turns = (
            sorted(self.turns.values(), key=_order)
            if len(self.turns) > 1
            else [*self.turns.values()]
        )
        revisions = [turn.revision for turn in turns]
        identity = CaseIdentity(*self.key, sum(revisions), revisions)
        case = LandedCase(
            self.header, self.outline, [turn.lazy or _lazy(turn.line) for turn in turns]
        )
        for name, turn in self.turns.items():
            self.turns[name] = turn._replace(lazy=None)
        return identity, case


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

    def add(self, landed: LandedTurn, landed_seq: int, size: int, *, begins: bool) -> None:
        """Add a turn of `size` bytes; `begins` means that the store has no turn of its case yet."""
        key = landed.key
        if landed.lazy is None:
            self._cases.pop(key, None)  # without an outline, the case must be read from the store
            self._goes_on(key)
            return
        case = self._cases.get(key)
        if case is None:
            case = _begun(landed, landed.lazy) if begins else self._goes_on(key)
            if case is None:
                return
            self._cases[key] = case
            self._bytes += case.size
        case.add(landed, landed.lazy, landed_seq, size)
        self._bytes += size

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
        case = self._taken.pop(key, None)
        if case is not None:
            self._taken_bytes -= case.size
        return case


class LandedCase(LazyCase):
    """A case assembled from the outlines of its turns, each recorded as a case with one turn."""

    __slots__ = ("_header", "_known", "_turns")
    recorded_here = True

    def __init__(self, header: str, outline: Any, turns: Sequence[LazyCase]) -> None:
        actual = [turn.outline.actualConversation[0] for turn in turns]
        expected = [(turn.outline.conversation or (None,))[0] for turn in turns]
        references: Any = UNSET
        if any(known is not None for known in expected):
            references = [
                _placeholder(turn) if known is None else known
                for known, turn in zip(expected, actual, strict=True)
            ]
        whole = structs.replace(outline, actualConversation=actual, conversation=references)
        super().__init__(b"", whole)
        self._header = header
        self._turns = turns
        self._known = [one is not None for one in expected]

    def turns(self, side: str) -> tuple[LazyTurn, ...]:
        """Return the turns of a side; turns without a reference are marked so."""
        turns = super().turns(side)
        if side == "conversation":
            for turn, known in zip(turns, self._known, strict=True):
                turn.referenced = known
        return turns

    def _decoded(self) -> CaseData:
        expected = [(turn.get("conversation") or (None,))[0] for turn in self._turns]
        actual = [turn["actualConversation"][0] for turn in self._turns]
        return with_turns(orjson.loads(self._header), actual, expected)


def _begun(landed: LandedTurn, lazy: LazyCase) -> RecentCase:
    header = structs.replace(
        lazy.outline, actualConversation=UNSET, conversation=UNSET, evalSetId=UNSET
    )
    return RecentCase(landed.key, landed.case.case_json, header)


def _lazy(line: bytes) -> LazyCase:
    """Return the outline of a line that is known to have one."""
    lazy = lazy_case(line)
    if lazy is None:
        raise ValueError("a line whose outline was read has none")
    return lazy


def _placeholder(turn: Any) -> Any:
    return type(turn)(invocationId=turn.invocationId, userContent=turn.userContent)


def _order(turn: _Turn) -> tuple[bool, datetime, int]:
    started_at = turn.started_at
    return started_at is not None, started_at or datetime.min, turn.first_landed_seq
