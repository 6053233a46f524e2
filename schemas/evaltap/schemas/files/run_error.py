"""A failed run as stored by tRPC-Agent-Go: with `[RUN_ERROR] <type>: <message>` as its answer.

evaltap's own files use `telemetry.status`, which other readers ignore.
"""

from typing import Final

from evaltap.schemas.data import CaseData

_UNKNOWN: Final = "unknown"
_CUT_OFF: Final = {"type": "incomplete", "message": "the run did not end"}


def with_run_errors(case: CaseData) -> CaseData:
    """Return a case in which every failed run has tRPC-Agent-Go's error answer."""
    if not (turns := case.get("actualConversation")):
        return case
    shown = [turn if turn is None else with_run_error(turn) for turn in turns]
    return {**case, "actualConversation": shown}


def with_run_error(turn: CaseData) -> CaseData:
    """Return a turn with that answer if its run failed, or did not end and left no answer."""
    telemetry = turn.get("telemetry") or {}
    status, error = telemetry.get("status"), telemetry.get("error") or {}
    if status == "incomplete" and not turn.get("finalResponse"):
        error = {**_CUT_OFF, **{key: value for key, value in error.items() if value}}
    elif status != "error":
        return turn
    kind, message = (error.get(key) or _UNKNOWN for key in ("type", "message"))
    answer = {"role": "assistant", "content": f"[RUN_ERROR] {kind}: {message}"}
    capture = {**(turn.get("capture") or {}), "finalResponse": "synthesized"}
    return {**turn, "finalResponse": answer, "capture": capture}
