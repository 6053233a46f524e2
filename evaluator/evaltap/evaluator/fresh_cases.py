"""Cases that began within what was landed last, still in memory: to score them nothing is read back.

Most cases that a consumer scores have landed moments ago and are whole.  They are scored from their
outlines, which are a fraction of what decoding them again would cost; every other case is read from the
store.  What is kept is bounded, and loses nothing when the process dies: it is in the store, without a
score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson
from msgspec import UNSET
from msgspec.structs import replace

from evaltap.evaluator.batch import CaseIdentity
from evaltap.evaluator.landed_rows import LandedTurn
from evaltap.evaluator.outlined_case import OutlinedCase
from evaltap.evaluator.pending import CaseKey, with_turns
from evaltap.schemas.case import CaseData

MOST_BYTES: Final = 4 << 20
"""How much of the log is kept; with outlines and rows it takes about twice as much."""


class _Turn(NamedTuple):
    """The latest revision of a turn, and where its first one stands in the file."""

    started_at: datetime | None
    first_landed_seq: int
    revision: int
    outlined: OutlinedCase


@dataclass(slots=True)
class FreshCase:
    """A case with all of its turns, by invocation id."""

    key: CaseKey
    header: str
    first: OutlinedCase
    turns: dict[str, _Turn] = field(default_factory=dict)

    def add(self, landed: LandedTurn, outlined: OutlinedCase, landed_seq: int) -> None:
        """Add a turn, or a newer revision of one."""
        known = self.turns.get(landed.invocation_id)
        first_seq = landed_seq if known is None else known.first_landed_seq
        self.turns[landed.invocation_id] = _Turn(
            landed.started_at, first_seq, landed.revision, outlined
        )

    def named(self) -> tuple[CaseIdentity, "LandedCase"]:
        """Return the case as its rows would give it: turns in order, at its latest revision."""
        turns = (
            sorted(self.turns.values(), key=_order)
            if len(self.turns) > 1
            else [*self.turns.values()]
        )
        revisions = [turn.revision for turn in turns]
        identity = CaseIdentity(*self.key, sum(revisions), revisions)
        return identity, LandedCase(self.header, self.first, [turn.outlined for turn in turns])


class FreshCases:
    """What was landed since `take`; used by the thread that lands."""

    def __init__(self) -> None:
        self._cases: dict[CaseKey, FreshCase] = {}
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time to take them."""
        return self._bytes >= MOST_BYTES

    def add(self, landed: LandedTurn, landed_seq: int, size: int, *, begins: bool) -> None:
        """Note a turn of `size` bytes; `begins`: the store has nothing of its case yet."""
        if landed.outlined is None:
            self._cases.pop(landed.key, None)  # this one has to be read as a whole
            return
        if begins:
            self._cases[landed.key] = FreshCase(landed.key, landed.header, landed.outlined)
        if (case := self._cases.get(landed.key)) is not None:
            case.add(landed, landed.outlined, landed_seq)
            self._bytes += size

    def take(self) -> Mapping[CaseKey, FreshCase]:
        """Return the cases, and begin anew."""
        taken, self._cases, self._bytes = self._cases, {}, 0
        return taken


class LandedCase(OutlinedCase):
    """A case of the outlines of its turns, each of which came as a case with one turn."""

    __slots__ = ("_header", "_turns")

    def __init__(self, header: str, first: OutlinedCase, turns: Sequence[OutlinedCase]) -> None:
        actual = [turn.outline.actualConversation[0] for turn in turns]
        expected = [(turn.outline.conversation or (None,))[0] for turn in turns]
        references: Any = UNSET
        if any(known is not None for known in expected):
            references = [
                _placeholder(turn) if known is None else known
                for known, turn in zip(expected, actual, strict=True)
            ]
        outline = replace(
            first.outline, actualConversation=actual, conversation=references, evalSetId=UNSET
        )
        super().__init__(b"", outline)
        self._header = header
        self._turns = turns

    def _decoded(self) -> CaseData:
        expected = [(turn.get("conversation") or (None,))[0] for turn in self._turns]
        actual = [turn["actualConversation"][0] for turn in self._turns]
        return with_turns(orjson.loads(self._header), actual, expected)


def _placeholder(turn: Any) -> Any:
    return type(turn)(invocationId=turn.invocationId, userContent=turn.userContent)


def _order(turn: _Turn) -> tuple[bool, datetime, int]:
    started_at = turn.started_at
    return started_at is not None, started_at or datetime.min, turn.first_landed_seq
