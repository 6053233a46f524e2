"""A tool's arguments and its output, unwrapped from the envelopes of frameworks and instrumentations."""

import ast
import re
from collections.abc import Mapping
from typing import Final

from evaltap.recorder.conventions.reading import Reading, failure_of_answer
from evaltap.recorder.observation import Failure
from evaltap.schemas.chat.evidence import Evidence, decode, without_block
from evaltap.schemas.chat.messages import Call
from evaltap.schemas.chat.shapes import read_messages
from evaltap.schemas.data import JsonObject

_COMMAND: Final = {"graph", "update", "resume", "goto"}
_LLAMA_INDEX: Final = {"tool_name", "raw_input", "raw_output", "is_error"}


def take_output(reading: Reading, output: Evidence) -> None:
    """Set a tool's result, call id and failure from its output.

    Known envelopes: `{"output": x}`, LangChain's ToolMessage in its three forms, also within a
    LangGraph command, Google ADK's function response (`id`, `name`, `response`), LlamaIndex's
    ToolOutput, and a single text block. Anything else is the result itself.
    """
    value = output.value
    if isinstance(value, dict) and set(value) <= {"output", "outputs", "kwargs"} and value:
        value = decode(value.get("output", value.get("outputs", value))).value
    if isinstance(value, dict) and set(value) >= _LLAMA_INDEX:
        failed, value = value["is_error"] is True, value["raw_output"]
        if failed:
            reading.failure = Failure(message=value if isinstance(value, str) else None)
    value = _command_message(value, reading.call_id)
    if isinstance(value, dict) and {"id", "name", "response"} <= set(value):
        value = value["response"]
        if isinstance(value, dict) and set(value) == {"result"}:
            value = value["result"]
    elif isinstance(value, dict) and _is_tool_message(value):
        _take_message(reading, value)
        return
    reading.result = Evidence(without_block(value), output.flaw)


def _take_message(reading: Reading, value: Mapping[str, object]) -> None:
    for message in read_messages([value]):
        for answer in message.answers:
            reading.call_id = reading.call_id or answer.call_id
            reading.result = answer.result
            if answer.failed:
                reading.failure = failure_of_answer(answer)


def _command_message(value: object, call_id: str | None) -> object:
    """Return the message for the model in a LangGraph command, which updates a state.

    Return any other value unchanged.
    """
    if not isinstance(value, dict) or not {"update", "goto"} <= set(value) <= _COMMAND:
        return value
    update = value["update"]
    messages = update.get("messages") if isinstance(update, dict) else None
    tool_messages = [m for m in messages or () if isinstance(m, dict) and _is_tool_message(m)]
    own = [m for m in tool_messages if call_id is not None and _call_id(m) == call_id]
    return (own or tool_messages)[0] if own or len(tool_messages) == 1 else value


def _call_id(message: JsonObject) -> object:
    return next((a.call_id for m in read_messages([message]) for a in m.answers), None)


def _is_tool_message(value: JsonObject) -> bool:
    """Distinguish LangChain's ToolMessage from an object that a tool returned."""
    inner = value.get("data") if isinstance(value.get("data"), dict) else value
    inner = value.get("kwargs") if value.get("lc") else inner
    return isinstance(inner, dict) and "tool_call_id" in inner and "content" in inner


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
