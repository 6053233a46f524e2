"""pydantic-ai and logfire spans, instrumentation versions 1 to 6.

Source: the attributes that pydantic-ai writes in addition to the GenAI ones. The run span holds the
whole conversation; `pydantic_ai.new_message_index` (default 0) marks where this turn starts.
"""

from collections.abc import Mapping, Sequence

from evaltap.recorder.conventions.messages import decode_messages, events_as_messages
from evaltap.recorder.conventions.reading import Reading, first_text, first_whole, whole
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.shapes import read_messages

SCOPE = "pydantic-ai"
ALL_MESSAGES = ("pydantic_ai.all_messages", "all_messages_events")
NEW_MESSAGE_INDEX = "pydantic_ai.new_message_index"
FINAL_RESULT = "final_result"
AGENT_NAME = ("gen_ai.agent.name", "agent_name")
RUN_ID = "gen_ai.agent.call.id"
OLD_ARGUMENTS = "tool_arguments"
OLD_RESULT = "tool_response"
RETRY_CAUSE = "pydantic_ai.tool.retry.cause"
EVENTS = "events"
SPAN_TYPE = "logfire.span_type"
OUTPUT_TOOL = "final_result"


class PydanticAI:
    """Reads runs, model calls and tools of pydantic-ai, whatever the exporter."""

    name = "pydantic-ai"
    marks = (SPAN_TYPE, *ALL_MESSAGES)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        if attributes.get(SPAN_TYPE) == "pending_span":
            return Reading(self.name, kind="dropped")
        if not _is_ours(span):
            return None
        reading = Reading(self.name, output_tools=frozenset({OUTPUT_TOOL}))
        if _is_run(span):
            _read_run(reading, attributes)
        elif OLD_ARGUMENTS in attributes or OLD_RESULT in attributes or _is_tool(span):
            _read_tool(reading, span)
        elif EVENTS in attributes:
            _read_events(reading, attributes)
        elif span.name in (
            "running tools",
            "running output function",
            "preparing model request params",
        ):
            reading.kind = "other"
        return reading


def _is_ours(span: Span) -> bool:
    return span.scope == SCOPE or any(key in span.attributes for key in ALL_MESSAGES)


def _is_run(span: Span) -> bool:
    attributes = span.attributes
    if attributes.get("gen_ai.operation.name") == "invoke_agent" or span.name == "agent run":
        return True
    return any(key in attributes for key in (*ALL_MESSAGES, FINAL_RESULT))


def _is_tool(span: Span) -> bool:
    return (
        span.attributes.get("gen_ai.operation.name") == "execute_tool"
        or span.name == "running tool"
    )


def _read_run(reading: Reading, attributes: Mapping[str, object]) -> None:
    reading.kind = "agent"
    reading.agent_name = first_text(attributes, *AGENT_NAME)
    reading.invocation_id = first_text(attributes, RUN_ID)
    if FINAL_RESULT in attributes and not _is_deferred(attributes[FINAL_RESULT]):
        reading.final = Evidence(attributes[FINAL_RESULT])
    value = next((attributes[key] for key in ALL_MESSAGES if key in attributes), None)
    messages, flaw = decode_messages(events_as_messages(value))
    if flaw:
        reading.flaws["input"] = flaw
        return
    start = whole(attributes.get(NEW_MESSAGE_INDEX)) or 0
    turn = (messages or ())[start:]
    reading.output = turn or None
    spoken = [m.text for m in turn if m.role == "user" and m.text is not None]
    reading.user = spoken[0] if spoken else None


def _is_deferred(result: object) -> bool:
    """Return whether a run returned the calls that a person or another program has to act on."""
    if not isinstance(result, str) or not result.startswith('{"calls":'):
        return False
    stated = decode(result).value
    return isinstance(stated, dict) and {"calls", "approvals", "metadata"} <= stated.keys()


def _read_tool(reading: Reading, span: Span) -> None:
    attributes = span.attributes
    reading.kind = "tool"
    reading.agent_name = first_text(attributes, *AGENT_NAME)
    if OLD_ARGUMENTS in attributes:
        reading.arguments = decode(attributes[OLD_ARGUMENTS])
    if OLD_RESULT in attributes:
        reading.result = decode(attributes[OLD_RESULT])
    exception = next((event for event in span.events if event.name == "exception"), None)
    kind = str(exception.attributes.get("exception.type", "")) if exception else ""
    if attributes.get(RETRY_CAUSE) == "model_retry" or kind.endswith("ToolRetryError"):
        # The framework wraps the tool's ModelRetry in its own exception.
        reading.failure = Failure(type="ModelRetry")


def _read_events(reading: Reading, attributes: Mapping[str, object]) -> None:
    """Read instrumentation version 1: `events` is a list of the <=1.36 message events."""
    messages = read_messages(events_as_messages(attributes[EVENTS]) or [])
    choice = [message for message in messages if message.role == "assistant"][-1:]
    reading.kind = "model"
    reading.output = tuple(choice) or None
    reading.input = tuple(m for m in messages if not choice or m is not choice[0]) or None
    reading.input_tokens = first_whole(attributes, "gen_ai.usage.input_tokens")
    reading.output_tokens = first_whole(attributes, "gen_ai.usage.output_tokens")
