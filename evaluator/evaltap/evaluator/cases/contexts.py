"""Remove repeated context from the turns of a session.

A recorder leaves out context that an earlier turn of the session already has.  But a restarted recorder does
not know the earlier turns, and raw telemetry is stored unchanged.  So readers of a session repeat this step.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.schemas.data import CaseData

_FIELD: Final = "contextMessages"


def without_repeats(turns: Sequence[CaseData]) -> Sequence[CaseData]:
    """Return the turns without instructions already in effect or context that repeats earlier turns."""
    if not any(_FIELD in turn for turn in turns[1:]):
        return turns
    found: list[CaseData] = []
    said: set[tuple[str, str]] = set()
    holding: list[object] = []
    for turn in turns:
        context = turn.get(_FIELD) or []
        instructions = [one for one in context if one.get("role") not in ("user", "assistant")]
        repeated = instructions if instructions == holding else []
        kept = [one for one in context if one not in repeated and _words(one) not in said]
        holding = instructions or holding
        found.append(turn if kept == context else _with_context(turn, kept))
        spoken = [one for one in context if one not in instructions]
        spoken += filter(None, (turn.get("userContent"), turn.get("finalResponse")))
        said.update(map(_words, spoken))
    return found


def _with_context(turn: CaseData, kept: Sequence[object]) -> CaseData:
    rest = {name: value for name, value in turn.items() if name != _FIELD or kept}
    return {**rest, _FIELD: kept} if kept else rest


def _words(message: Mapping[str, object]) -> tuple[str, str]:
    return str(message.get("role")), " ".join(str(message.get("content")).split())
