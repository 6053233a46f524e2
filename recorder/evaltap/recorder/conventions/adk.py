"""Google ADK spans: 1.x, 2.x schema 1 and schema 2, and the same shape under another prefix (tRPC).

Source: the spans of google-adk 1.14 and 2.13. The GenAI dialect reads their `gen_ai.*` attributes;
this one reads what only ADK writes, and repairs what ADK writes incorrectly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evaltap.recorder.conventions.reading import Kind, Reading, first_text
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Answer, Message, Part
from evaltap.schemas.chat.shapes import read_messages

SCOPE = "gcp.vertex.agent"
PREFIX = "gcp.vertex.agent"
TRPC_SYSTEM_PREFIX = "trpc"
UNSPECIFIED = "<not specified>"
MERGED_TOOLS = "(merged tools)"
_SYNTHETIC_USER = "For context:"
_ASKS_FOR_CONFIRMATION = {
    "error": "This tool call requires confirmation, please approve or reject."
}
_NAMES: dict[str, Kind] = {
    "invocation": "run",
    "agent_run": "agent",
    "invoke_agent": "agent",
    "call_llm": "model",
    "generate_content": "model",
    "execute_tool": "tool",
}


class Adk:
    """Reads `gcp.vertex.agent.*`, or the same under the prefix given by `gen_ai.system`."""

    name = "google-adk"
    marks = (PREFIX, "gen_ai.system")

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        if (prefix := _prefix(span)) is None:
            return None
        attributes = span.attributes
        first_word, _, rest = span.name.partition(" ")
        reading = Reading(self.name, kind=_NAMES.get(first_word))
        if first_word in ("agent_run", "invoke_agent"):
            reading.agent_name = rest.strip("[]") or None
        reading.session_id = first_text(
            attributes, f"{prefix}.session_id", f"{prefix}.runner.session_id"
        )
        reading.user_id = first_text(attributes, f"{prefix}.user_id", f"{prefix}.runner.user_id")
        reading.app_name = first_text(attributes, f"{prefix}.runner.app_name")
        reading.invocation_id = first_text(attributes, f"{prefix}.invocation_id")
        if reading.kind == "model":
            _read_model(reading, attributes, prefix)
        elif reading.kind == "tool":
            _read_tool(reading, span, prefix, rest)
        elif reading.kind in ("run", "agent", None):
            _read_run(reading, attributes, prefix)
        reading.repair = repair
        return reading


def unwrap_result(value: object) -> object:
    """Unwrap a tool's own value from ADK's envelope.

    ADK sends `{"result": x}` to the model when a tool returns a non-object. It is indistinguishable
    from a tool that itself returns an object with the single key `result`.
    """
    if isinstance(value, Mapping) and set(value) == {"result"}:
        return value["result"]
    return value


def repair(reading: Reading) -> None:
    """Fix the messages, whichever attributes or events they came from.

    Drops the user messages that ADK itself writes to inform an agent about the others, and unwraps
    tool results.
    """
    messages = [m for m in reading.input or () if not _is_synthetic(m)]
    reading.input = (
        tuple(replace(m, parts=tuple(map(_unwrapped, m.parts))) for m in messages) or None
    )


def _unwrapped(part: Part) -> Part:
    if isinstance(part, Answer) and part.result is not None:
        return replace(part, result=Evidence(unwrap_result(part.result.value), part.result.flaw))
    return part


def _is_synthetic(message: Message) -> bool:
    spoken = message.text
    return (
        message.role == "user"
        and spoken is not None
        and isinstance(spoken.value, str)
        and spoken.value.startswith(_SYNTHETIC_USER)
    )


def _prefix(span: Span) -> str | None:
    if span.scope == SCOPE or any(key.startswith(PREFIX) for key in span.attributes):
        return PREFIX
    system = span.attributes.get("gen_ai.system")
    if isinstance(system, str) and system.startswith(TRPC_SYSTEM_PREFIX):
        return system
    return None


def _read_model(reading: Reading, attributes: Mapping[str, object], prefix: str) -> None:
    request = _object(attributes.get(f"{prefix}.llm_request"), reading, "input")
    reading.model = first_text(request, "model")
    reading.input = read_messages(request.get("contents")) or None
    config = request.get("config")
    if isinstance(config, Mapping):
        instructions = read_messages(config.get("system_instruction"), role="system")
        reading.context = instructions or None
    response = _object(attributes.get(f"{prefix}.llm_response"), reading, "output")
    content = response.get("content")
    if isinstance(content, Mapping):
        reading.output = read_messages([{**content, "role": "assistant"}]) or None


def _read_tool(reading: Reading, span: Span, prefix: str, name: str) -> None:
    attributes = span.attributes
    if MERGED_TOOLS in (attributes.get("gen_ai.tool.name"), name) or name == "(merged)":
        reading.kind = "dropped"
        return
    reading.tool_name = name or None
    reading.arguments = _content(attributes.get(f"{prefix}.tool_call_args"))
    given = attributes.get(f"{prefix}.tool_response", attributes.get("gen_ai.tool.call.result"))
    result = _content(given)
    if result is not None and isinstance(result.value, Mapping):
        if {"id", "name", "response"} <= set(result.value):
            result = Evidence(result.value["response"])
        result = Evidence(unwrap_result(result.value))
    reading.result = result if result is None or result.value != UNSPECIFIED else None
    asks = result is not None and result.value == _ASKS_FOR_CONFIRMATION
    is_long = attributes.get("gen_ai.tool.type") == "LongRunningFunctionTool"
    reading.awaited = (asks or is_long) or None


def _read_run(reading: Reading, attributes: Mapping[str, object], prefix: str) -> None:
    """Read the input and output of tRPC's runner and agent spans."""
    level = "runner" if f"{prefix}.runner.name" in attributes else "agent"
    reading.user_fallback = _words(attributes.get(f"{prefix}.{level}.input"), "user")
    reading.final_fallback = _words(attributes.get(f"{prefix}.{level}.output"), "assistant")
    if level == "agent":
        reading.agent_name = reading.agent_name or first_text(attributes, f"{prefix}.agent.name")


def _words(value: object, role: str) -> Evidence | None:
    if value is None:
        return None
    evidence = decode(value)
    if evidence.flaw or not isinstance(evidence.value, dict | list):
        return Evidence(value if isinstance(value, str) else None, evidence.flaw)
    messages = read_messages(evidence.value, role=role)
    return messages[-1].text if messages else None


def _content(value: object) -> Evidence | None:
    """Decode a tool's content; ADK writes `{}` when capture is off, which is no content."""
    if value is None or value == "{}":
        return None
    return decode(value)


def _object(value: object, reading: Reading, field: str) -> Mapping[str, object]:
    evidence = decode(value)
    if evidence.flaw:
        reading.flaws[field] = evidence.flaw
    return evidence.value if isinstance(evidence.value, Mapping) else {}
