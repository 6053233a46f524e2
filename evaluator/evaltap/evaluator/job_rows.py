"""The rows of a job's result on the wire and back: what a worker says is checked before it is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, Final, TypeAlias

from evaltap.evaluator.context import Status
from evaltap.evaluator.rows import PackedRows, ScoreRows
from evaltap.schemas.envelope import Reason, RecordError
from evaltap.schemas.job import Result, cut_text

Kinds: TypeAlias = tuple[tuple[type, ...], ...]

_TEXT: Final = (str,)
_WHOLE: Final = (int,)
_REAL: Final = (float, int, NoneType)
_TEXT_OR_NONE: Final = (str, NoneType)
_CASE: Final = (_TEXT, _TEXT, _TEXT)
_TURN: Final = (*_CASE, _TEXT, _WHOLE, _TEXT)
_LARGEST: Final = (1 << 31) - 1
"""What the columns of counts and places hold."""
_STATUSES: Final = frozenset(status.value for status in Status)

# In the order of the rows in `rows.py`.
_SCORE: Final[Kinds] = (*_CASE, _WHOLE, _WHOLE, _REAL, _TEXT, _TEXT, _WHOLE)
_TURN_SCORE: Final[Kinds] = (
    *_CASE, _TEXT, _TEXT, _WHOLE, _WHOLE, _WHOLE, _REAL, _TEXT, _TEXT,
)  # fmt: skip
_VOTE: Final[Kinds] = (
    *_TURN, _WHOLE, _TEXT, _REAL, _TEXT, _TEXT_OR_NONE, (bool, NoneType), _REAL,
)  # fmt: skip
_CALL: Final[Kinds] = (
    *_TURN, _WHOLE, _TEXT, _TEXT_OR_NONE, _TEXT, _REAL, _TEXT_OR_NONE, (bool,),
    (int, NoneType), (int, NoneType), _REAL, _REAL, _REAL,
)  # fmt: skip

_TOLD: Final[Mapping[str, tuple[int, ...]]] = {
    "scores": (7,),
    "turnScores": (10,),
    "votes": (9, 10),
}
"""Where a row has text that somebody wrote freely: reasons, and the evidence of a vote."""


def to_wire(rows: ScoreRows) -> dict[str, Sequence[Sequence[Any]]]:
    """Return rows as a result carries them."""
    return {
        "scores": rows.scores,
        "turnScores": rows.turn_scores,
        "votes": rows.votes,
        "calls": rows.calls,
    }


def with_short_reasons(result: Result) -> Result:
    """Return a result with long reasons and evidence cut, for one that fits no record as it is."""
    rows = {
        kind: [
            tuple(
                cut_text(value) if at in _TOLD[kind] and value else value
                for at, value in enumerate(row)
            )
            for row in found
        ]
        for kind, found in result.rows.items()
        if kind in _TOLD
    }
    return replace(result, rows={**result.rows, **rows})


def from_wire(result: Result, wanted: Mapping[int, str]) -> PackedRows:
    """Return the rows of a result that belong to the wanted metrics, names by number.

    Raises RecordError when they are no rows, of another case, or when a wanted metric has none.
    """
    rows = ScoreRows(
        _checked(result, "scores", _SCORE),
        _checked(result, "turnScores", _TURN_SCORE),
        _checked(result, "votes", _VOTE),
        _checked(result, "calls", _CALL),
        case_count=1,
    )
    rows.scores = [row for row in rows.scores if row[4] in wanted]
    rows.turn_scores = [row for row in rows.turn_scores if row[7] in wanted]
    names = set(wanted.values())
    rows.votes = [row for row in rows.votes if row[5] in names]
    rows.calls = [row for row in rows.calls if row[5] in names]
    scored = sorted(row[4] for row in rows.scores)
    if scored != sorted(wanted) or any(row[3] != result.of.revision for row in rows.scores):
        raise _wrong(
            f"has scores of the metrics {scored}; expected one of each of {sorted(wanted)}"
        )
    if any(row[6] not in _STATUSES for row in rows.scores):
        raise _wrong("has a score with an unknown status")
    try:
        return rows.packed()
    except OverflowError:
        raise _wrong("has a number beyond 64 bits") from None


def _checked(result: Result, kind: str, kinds: Kinds) -> list[Any]:
    found = list(result.rows.get(kind, ()))
    for row in found:
        if len(row) != len(kinds) or not all(map(_fits, row, kinds)):
            raise _wrong(f"has a row of {kind} that is none")
        if tuple(row[:3]) != result.of.key:
            raise _wrong(f"has a row of {kind} of another case")
    return found


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    return type(value) in kinds and (kinds is not _WHOLE or -1 <= value <= _LARGEST)


def _wrong(what: str) -> RecordError:
    return RecordError(Reason.INVALID_RESULT, f"the result {what}")
