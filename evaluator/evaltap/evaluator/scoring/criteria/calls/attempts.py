"""Select the tool calls of a turn that are scored, and check that their evidence was recorded."""

from collections.abc import Callable, Sequence
from typing import Final

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.turn import Turn, absent_state
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.schemas.text import did_you_mean_one_of

ATTEMPTS: Final = ("all", "successful", "final")

_NO_CALL: Final[AnyCall] = {}


def check_attempts(given: str, default: str) -> str:
    """Return which attempts count; raise MetricError for an unknown choice."""
    if given and given not in ATTEMPTS:
        raise MetricError(f"attempts is '{given}'; {did_you_mean_one_of(given, ATTEMPTS)}")
    return given or default


def calls_of(turn: Turn) -> list[AnyCall]:
    """Return the tool calls of a turn; a null entry becomes a call without a name."""
    return [_NO_CALL if call is None else call for call in turn.calls]


def failed(call: AnyCall) -> bool:
    """Return whether a call is known to have failed."""
    if not isinstance(call, dict) and not getattr(call, "error", None):
        return False
    return bool(call.get("error"))


def select(
    calls: Sequence[AnyCall], attempts: str, reference: Sequence[AnyCall] = ()
) -> list[AnyCall]:
    """Return the calls that count.

    `successful` omits failed calls, except those that the reference also contains and that no successful call
    matches: a reference may consist of the names and arguments of a recording.

    `final` omits a failed call if the same tool is called again later, so that only the last attempt counts.
    """
    if attempts == "all":
        return [*calls]
    if attempts == "successful":
        return _successful(calls, reference)
    last = {call.get("name"): place for place, call in enumerate(calls)}
    return [
        call
        for place, call in enumerate(calls)
        if not failed(call) or last[call.get("name")] == place
    ]


def _successful(calls: Sequence[AnyCall], reference: Sequence[AnyCall]) -> list[AnyCall]:
    if not any(map(failed, calls)):
        return [*calls]
    if not reference:
        return [call for call in calls if not failed(call)]
    # A call that is expected to fail is omitted on both sides; a call with a result did not fail.
    expected = [one for one in reference if not failed(one) and one.get("result") is None]
    for call in calls:
        if not failed(call):
            _take(call, expected)
    return [call for call in calls if not failed(call) or _take(call, expected)]


def _take(call: AnyCall, expected: list[AnyCall]) -> bool:
    """Remove the first expected call with this call's name and arguments; return whether there was one."""
    for place, one in enumerate(expected):
        if one.get("name") == call.get("name") and one.get("arguments") == call.get("arguments"):
            del expected[place]
            return True
    return False


def lacking(
    turn: Turn, fields: Sequence[str], ignores_arguments: Callable[[str], bool] = lambda _: False
) -> str | None:
    """Return the first piece of evidence that a turn's calls lack; None if all is present.

    `fields` are the compared fields of a call; `ignores_arguments` returns whether a tool's arguments are
    ignored.
    """
    if (reason := turn.lacks("tools")) is not None:
        return reason
    for call in turn.marked_calls:
        for field in fields:
            state = absent_state(call, field)
            name = call.get("name") or ""
            if state is not None and not (field == "arguments" and ignores_arguments(name)):
                return f"{field} of tool {name} is {state}"
    return None
