"""Tool calls of a turn as they are scored: which attempts count, and what was recorded of them."""

from collections.abc import Callable, Sequence
from typing import Final

from evaltap.evaluator.cases.turn import ToolCall, Turn, absent_state
from evaltap.evaluator.contract.errors import MetricError
from evaltap.schemas.text import did_you_mean_one_of

ATTEMPTS: Final = ("all", "successful", "final")

_NO_CALL: Final[ToolCall] = {}


def check_attempts(given: str, default: str) -> str:
    """Return which attempts count; raise MetricError when there is no such choice."""
    if given and given not in ATTEMPTS:
        raise MetricError(f"attempts is '{given}'; {did_you_mean_one_of(given, ATTEMPTS)}")
    return given or default


def calls_of(turn: Turn) -> list[ToolCall]:
    """Return the tool calls of a turn; a null entry becomes a call without a name."""
    return [call or _NO_CALL for call in turn.tools]


def failed(call: ToolCall) -> bool:
    """Tell whether a call is known to have failed."""
    return bool(call.get("error"))


def select(
    calls: Sequence[ToolCall], attempts: str, reference: Sequence[ToolCall] = ()
) -> list[ToolCall]:
    """Return the calls that count.

    `successful` leaves out failed calls, but for those that the reference has too and no successful call
    stands for: a reference may be made of the names and arguments of a recording.

    `final` leaves out a failed call when the same tool is called again later, so that only the last
    attempt counts.
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


def _successful(calls: Sequence[ToolCall], reference: Sequence[ToolCall]) -> list[ToolCall]:
    if not reference or not any(map(failed, calls)):
        return [call for call in calls if not failed(call)]
    # A call that is expected to fail is left out on both sides; one with a result did not fail.
    expected = [one for one in reference if not failed(one) and one.get("result") is None]
    for call in calls:
        if not failed(call):
            _take(call, expected)
    return [call for call in calls if not failed(call) or _take(call, expected)]


def _take(call: ToolCall, expected: list[ToolCall]) -> bool:
    """Take the first expected call with this one's name and arguments; tell whether there was one."""
    for place, one in enumerate(expected):
        if one.get("name") == call.get("name") and one.get("arguments") == call.get("arguments"):
            del expected[place]
            return True
    return False


def lacking(
    turn: Turn, fields: Sequence[str], ignores_arguments: Callable[[str], bool] = lambda _: False
) -> str | None:
    """Return which evidence of a turn's calls is not there, None when all of it is.

    `fields` are those of a call that are looked at; `ignores_arguments` tells for which tools the
    arguments are not.
    """
    reason = turn.lacks("tools")
    if reason is not None:
        return reason
    for call in turn.tools:
        if call and "capture" in call:
            for field in fields:
                state = absent_state(call, field)
                name = call.get("name") or ""
                if state is not None and not (field == "arguments" and ignores_arguments(name)):
                    return f"{field} of tool {name} is {state}"
    return None
