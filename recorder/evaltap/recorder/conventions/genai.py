"""OpenTelemetry GenAI conventions, 1.26 to present, on spans and in log records.

Source: open-telemetry/semantic-conventions (gen-ai, to 1.41), semantic-conventions-genai (since).
The set of operation names is open: unknown ones are classified by their attributes.
"""

from collections.abc import Mapping, Sequence

from evaltap.recorder.conventions.messages import decode_messages
from evaltap.recorder.conventions.reading import (
    Kind,
    Reading,
    agent_in_name,
    first_text,
    first_whole,
    number,
)
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode, without_block

OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
THREAD_ID = "gen_ai.thread.id"
INPUT_MESSAGES = "gen_ai.input.messages"
INSTRUCTIONS = "gen_ai.system_instructions"
OUTPUT_MESSAGES = "gen_ai.output.messages"
CHOICES = "gen_ai.request.choice.count"
EVENT_CONTENT = "gen_ai.event.content"
KERNEL_INPUT = "gen_ai.agent.invocation_input"
"""Semantic Kernel's names for an agent's messages, up to 1.37."""
KERNEL_OUTPUT = "gen_ai.agent.invocation_output"
TOOL_NAME = "gen_ai.tool.name"
CALL_ID = "gen_ai.tool.call.id"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
TOTAL_TOKENS = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens")
CACHE_READ = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.input_cached_tokens",
    "gen_ai.usage.cached_tokens",
)
"""The conventions' name, then those of OpenLLMetry, Strands, pydantic-ai and others."""
CACHE_WRITE = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "gen_ai.usage.details.cache_creation_input_tokens",
)
COSTS = ("gen_ai.usage.cost", "operation.cost", "gen_ai.cost.total_cost")
_USAGE = frozenset(
    (*INPUT_TOKENS, *OUTPUT_TOKENS, *TOTAL_TOKENS, *CACHE_READ, *CACHE_WRITE, *COSTS)
)
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
TOOL_STATUS = "gen_ai.tool.status"

_KINDS: dict[str, Kind] = {
    "invoke_workflow": "run",
    "handle_conversation_turn": "run",
    "run_runner": "run",
    "chain": "run",
    "invoke_agent": "agent",
    "run_agent": "agent",
    "process_thread_run": "agent",
    "chat": "model",
    "generate_content": "model",
    "text_completion": "model",
    "call_llm": "model",
    "execute_tool": "tool",
    "handoff": "handoff",
    "create_agent": "other",
    "embeddings": "other",
    "execute_task": "other",
    "plan": "other",
    "rerank": "other",
    "retrieval": "other",
}
_NOT_AN_ID = {"<not specified>", "unknown"}


class GenAI:
    """Reads `gen_ai.*` attributes of the span and of its operation-details events."""

    name = "otel-genai"
    marks = ("gen_ai.",)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        if OPERATION not in attributes and not any(map(_is_own, attributes)):
            return None
        reading = Reading(
            self.name,
            kind=classify(attributes),
            agent_name=first_text(attributes, AGENT_NAME),
            session_id=first_text(attributes, CONVERSATION_ID, THREAD_ID),
            model=first_text(attributes, RESPONSE_MODEL, REQUEST_MODEL),
            response_id=first_text(attributes, RESPONSE_ID),
            tool_name=first_text(attributes, TOOL_NAME),
            call_id=_call_id(attributes),
        )
        if not _USAGE.isdisjoint(attributes):
            reading.input_tokens = first_whole(attributes, *INPUT_TOKENS)
            reading.output_tokens = first_whole(attributes, *OUTPUT_TOKENS)
            reading.cache_read_tokens = first_whole(attributes, *CACHE_READ)
            reading.cache_write_tokens = first_whole(attributes, *CACHE_WRITE)
            reading.total_tokens = first_whole(attributes, *TOTAL_TOKENS)
            costs = (number(attributes.get(key)) for key in COSTS)
            reading.cost_usd = next(filter(None, costs), None)
        if reading.tool_name is None and attributes.get(OPERATION) == "execute_tool":
            reading.tool_name = span.name.removeprefix("execute_tool").strip() or None
        if attributes.get("gen_ai.agent.name") is None and reading.kind == "agent":
            reading.agent_name = agent_in_name(span.name)
        _read_content(reading, span, logs)
        if reading.tool_name == "(merged tools)":
            reading.kind = "dropped"
        return reading


def _is_own(name: str) -> bool:
    return name.startswith("gen_ai.")


def classify(attributes: Mapping[str, object]) -> Kind | None:
    """Return the span's kind, by its operation name or, failing that, by its attributes."""
    operation = attributes.get(OPERATION)
    known = _KINDS.get(operation) if isinstance(operation, str) else None
    if known is not None:
        return known
    if isinstance(operation, str) and ("memory" in operation or "embed" in operation):
        return "other"
    if CALL_ID in attributes or ARGUMENTS in attributes:
        return "tool"
    if RESPONSE_MODEL in attributes or RESPONSE_ID in attributes:
        return "model"
    if not isinstance(operation, str):
        return None
    if REQUEST_MODEL in attributes and AGENT_NAME not in attributes:
        return "model"
    return "run" if AGENT_NAME in attributes or CONVERSATION_ID in attributes else None


def content_value(value: object) -> Evidence | None:
    """Return decoded tool arguments or results; None when the attribute is absent."""
    if value is None:
        return None
    evidence = decode(value)
    words = without_block(evidence.value)
    return evidence if words is evidence.value else Evidence(words)


def _call_id(attributes: Mapping[str, object]) -> str | None:
    found = first_text(attributes, CALL_ID)
    return None if found in _NOT_AN_ID else found


def _read_content(reading: Reading, span: Span, logs: Sequence[LogRecord]) -> None:
    events = (event.attributes for event in span.events if event.name == DETAILS_EVENT)
    records = (log.attributes for log in logs if log.event_name == DETAILS_EVENT)
    for carrier in (span.attributes, *events, *records, _said_in_events(span)):
        _read_messages(reading, carrier)
        if reading.arguments is None:
            reading.arguments = content_value(carrier.get(ARGUMENTS))
        if reading.result is None:
            reading.result = content_value(carrier.get(RESULT))
    asked_for = span.attributes.get(CHOICES)
    if isinstance(asked_for, int) and asked_for > 1 and reading.output:
        reading.output = reading.output[:1]  # a message for each; an agent goes on with the first
    if reading.kind == "tool":
        _read_tool_messages(reading)
        _read_tool_function(reading, span.attributes)
    elif reading.kind in ("run", "agent"):
        # A runner may have operation details without a tool; they are messages, not a tool's
        # content.
        reading.call_id = None


def _said_in_events(span: Span) -> Mapping[str, object]:
    """Return the messages that Azure AI Projects writes as events of a span, one or more each."""
    said: dict[str, list[object]] = {}
    for event in span.events:
        if event.name in (INPUT_MESSAGES, OUTPUT_MESSAGES, INSTRUCTIONS):
            messages = decode(event.attributes.get(EVENT_CONTENT)).value
            said.setdefault(event.name, []).extend(messages if isinstance(messages, list) else ())
    return said


def _read_tool_function(reading: Reading, attributes: Mapping[str, object]) -> None:
    """Fill missing values from attributes outside the conventions.

    `code.function.*` comes from opentelemetry-instrumentation-google-genai, `input.value` and
    `output.value` from Koog's exporter.
    """
    if reading.arguments is None:
        given = {
            name[len(_PARAMETER) :].removesuffix(".value"): decode(value).value
            for name, value in attributes.items()
            if name.startswith(_PARAMETER) and name.endswith(".value")
        }
        reading.arguments = (
            Evidence(given) if given else content_value(attributes.get("input.value"))
        )
    if reading.result is None:
        returned = attributes.get("code.function.return.value", attributes.get("output.value"))
        reading.result = content_value(returned)


_PARAMETER = "code.function.parameters."


def _read_messages(reading: Reading, carrier: Mapping[str, object]) -> None:
    if reading.context is None and INSTRUCTIONS in carrier:
        reading.context, _ = decode_messages(carrier[INSTRUCTIONS], role="system")
    entered = carrier.get(INPUT_MESSAGES, carrier.get(KERNEL_INPUT))
    if reading.input is None and entered is not None:
        reading.input, flaw = decode_messages(entered)
        reading.note_flaws(input=flaw)
    left = carrier.get(OUTPUT_MESSAGES, carrier.get(KERNEL_OUTPUT))
    if reading.output is None and left is not None:
        reading.output, flaw = decode_messages(left, role="assistant")
        reading.note_flaws(output=flaw)


def _read_tool_messages(reading: Reading) -> None:
    """Take a tool's arguments and result from messages when no attribute has them (Strands)."""
    for message in reading.input or ():
        for call in message.calls:
            reading.arguments = reading.arguments or call.arguments
            reading.call_id = reading.call_id or call.call_id
    for message in reading.output or ():
        for answer in message.answers:
            reading.result = reading.result or answer.result
