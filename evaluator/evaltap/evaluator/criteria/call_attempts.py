"""Tool calls of a turn as they are scored: which attempts count, and what was recorded of them."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from evaltap.evaluator.context import Turn, absent_state
from evaltap.evaluator.errors import MetricError

ToolCall = dict[str, Any]

ATTEMPTS: Final = ("all", "successful", "final")

_NO_CALL: Final[ToolCall] = {}


def check_attempts(given: str, default: str) -> str:
    """Return which attempts count; raise MetricError when there is no such choice."""
    if given and given not in ATTEMPTS:
        raise MetricError(f"attempts is '{given}'; expected one of {', '.join(ATTEMPTS)}")
    return given or default


def calls_of(turn: Turn) -> list[ToolCall]:
    """Return the tool calls of a turn; a null entry becomes a call without a name."""
    return [call or _NO_CALL for call in turn.tools]


def failed(call: ToolCall) -> bool:
    """Tell whether a call is known to have failed."""
    return bool(call.get("error"))


def select(calls: Sequence[ToolCall], attempts: str) -> list[ToolCall]:
    """Return the calls that count.

    `successful` leaves out failed calls; `final` leaves out a failed call when the same tool is
    called again later, so that the last attempt stands for all of them.
    """
    if attempts == "all":
        return [*calls]
    if attempts == "successful":
        return [call for call in calls if not failed(call)]
    last = {call.get("name"): place for place, call in enumerate(calls)}
    return [
        call
        for place, call in enumerate(calls)
        if not failed(call) or last[call.get("name")] == place
    ]


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
