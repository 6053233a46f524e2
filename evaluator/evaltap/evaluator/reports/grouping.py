"""Group reasons by their pattern, so that a thousand failures of one kind form one line."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from evaltap.evaluator.reports.model import CaseReport, Cell, ReasonGroup

_VARIABLE: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | (?<=\bid[ ])\S+ | \b\d+(?:\.\d+)?\b""", re.VERBOSE
)
_PATTERN_LENGTH: Final = 300
_EXAMPLES: Final = 5
_LEAST_SHARED, _MOST_SHARED = 4, 80


def reason_groups(cases: Sequence[CaseReport]) -> tuple[ReasonGroup, ...]:
    """Return the reasons of all cells that did not pass, the most frequent first."""
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    cells = chain.from_iterable(((case, cell) for cell in case.cells) for case in cases)
    for case, cell in cells:
        if cell.status != "passed":
            found.setdefault(group_key(cell), []).append((case.eval_id, deciding_reason(cell)))
    groups = [
        ReasonGroup(
            *key,
            len(members),
            tuple(eval_id for eval_id, _ in members[:_EXAMPLES]),
            members[0][1],
        )
        for key, members in found.items()
    ]
    return tuple(sorted(groups, key=lambda group: -group.cases))


def group_key(cell: Cell) -> tuple[str, str, str]:
    """Return metric, status and pattern of the reason: the properties that the cells of a group share."""
    return cell.metric_name, cell.status, pattern(deciding_reason(cell))


def deciding_reason(cell: Cell) -> str:
    """Return the reason of the first turn with the metric's status, otherwise the metric's own.

    The metric's own reason joins those of all its turns, so that hardly any two would be equal.
    """
    reasons = (turn.reason for turn in cell.turns if turn.status == cell.status and turn.reason)
    return next(reasons, cell.reason)


def pattern(reason: str) -> str:
    """Return a reason on one line, with quoted texts and numbers replaced by placeholders."""
    line = " ".join(reason[: 4 * _PATTERN_LENGTH].split())
    general = _VARIABLE.sub(_general, line)
    if len(general) > _PATTERN_LENGTH:
        general = general[:_PATTERN_LENGTH] + "…"
    return general or "no reason given"


def shared_words(reasons: Iterable[str]) -> str:
    """Return the longest text between numbers and quoted texts that reasons of one pattern share.

    The filter's `reason:` finds them by it.  Empty if they share too little.
    """
    shared: set[str] | None = None
    for reason in reasons:
        pieces = {piece.strip(' ,;:"') for piece in _VARIABLE.sub("\n", reason).splitlines()}
        shared = pieces if shared is None else shared & pieces
    fitting = [piece for piece in shared or () if '"' not in piece]
    longest = max(sorted(fitting), key=len, default="")[:_MOST_SHARED].strip()
    return longest if len(longest) >= _LEAST_SHARED else ""


def _general(found: re.Match[str]) -> str:
    return "'…'" if found[0][0] in "'\"" else "N"
