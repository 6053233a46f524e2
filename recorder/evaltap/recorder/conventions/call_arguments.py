"""A tool's arguments, unwrapped from the envelopes of function instrumentations."""

import ast
import re
from typing import Final

from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Call

_FUNCTION: Final = {"args", "kwargs", "sanitize_inputs_outputs"}
"""Parameters of a wrapped function: decorators, LlamaIndex, DSPy, smolagents (`Tool.__call__`)."""
_CREW: Final = {"calling", "tool"}
"""The parameters of CrewAI's `ToolUsage._use`; `calling` is the text of an object with `arguments`."""
_CREW_ARGUMENTS: Final = re.compile(r"\barguments=(\{.*\})", re.DOTALL)


def take_arguments(entered: Evidence) -> Evidence:
    """Unwrap a call's arguments, if they are in a known envelope.

    Positional arguments have lost their names: they are returned as a list, which is not what the
    model wrote, and marked as ambiguous unless a model's call has the names.
    """
    value = entered.value
    if not isinstance(value, dict):
        return entered
    if "kwargs" in value and set(value) <= _FUNCTION and isinstance(value["kwargs"], dict):
        positional = value.get("args") or []
        if not positional:
            return Evidence(value["kwargs"])
        return Evidence([*positional, value["kwargs"]] if value["kwargs"] else positional)
    if set(value) >= _CREW:
        return _of_crew(value["calling"])
    return entered


_NAMES: Final = ("tool_name", "toolName")
_IDS: Final = ("tool_call_id", "toolCallId", "call_id")
_GIVEN: Final = ("args", "arguments", "input")


def whole_call(entered: Evidence) -> Call | None:
    """Return the call with which a tool manager's wrapper was called; None for a tool's own arguments."""
    value = entered.value
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    if not isinstance(value, dict):
        return None
    name, call_id, given = (
        next((value[key] for key in keys if key in value), None) for keys in (_NAMES, _IDS, _GIVEN)
    )
    if not isinstance(name, str) or not isinstance(call_id, str) or given is None:
        return None
    return Call(call_id, name, decode(given))


def _of_crew(calling: object) -> Evidence:
    if isinstance(calling, dict):
        return Evidence(calling.get("arguments", calling))
    found = _CREW_ARGUMENTS.search(calling) if isinstance(calling, str) else None
    try:
        return Evidence(ast.literal_eval(found[1]) if found else calling)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return Evidence(calling)
