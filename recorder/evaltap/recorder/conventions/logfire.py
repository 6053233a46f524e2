"""Logfire's spans of the OpenAI Agents SDK and the OpenAI client.

Source: the spans of logfire 5. Their names are message templates, so a name's fixed prefix
identifies the kind of span; content is in Logfire's own attributes, not in GenAI ones.
"""

from collections.abc import Mapping, Sequence

from evaltap.recorder.conventions.messages import events_as_messages, read_request, read_response
from evaltap.recorder.conventions.reading import Kind, Reading, first_text, first_whole, text
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Message
from evaltap.schemas.chat.shapes import HOSTED_CALLS

SCOPES = ("logfire.openai_agents", "logfire.openai")
MARK = "logfire."
_NAMES: tuple[tuple[str, Kind], ...] = (
    ("OpenAI Agents trace: ", "run"),
    ("Task: ", "run"),
    ("Agent run: ", "agent"),
    ("Function: ", "tool"),
    ("Handoff: ", "handoff"),
    ("Responses API", "model"),
    ("Chat completion with ", "model"),
    ("Chat Completion with ", "model"),
)


class Logfire:
    """Reads the spans of `logfire.instrument_openai_agents` and `logfire.instrument_openai`."""

    name = "logfire"
    marks = (MARK,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return the reading of a span of these two integrations, else None."""
        if span.scope not in SCOPES or not any(key.startswith(MARK) for key in span.attributes):
            return None
        attributes = span.attributes
        kind = _kind(span.name)
        reading = Reading(self.name, kind=kind, session_id=first_text(attributes, "group_id"))
        if kind == "agent":
            reading.agent_name = first_text(attributes, "name")
        elif kind == "model":
            response_id = _seen(attributes.get("response_id"))
            reading.response_id = text(response_id.value) if response_id is not None else None
            reading.input, reading.output = _conversation(attributes)
            usage = decode(attributes.get("usage")).value
            if isinstance(usage, Mapping):
                reading.input_tokens = first_whole(usage, "input_tokens")
                reading.output_tokens = first_whole(usage, "output_tokens")
                details = usage.get("input_tokens_details")
                if isinstance(details, Mapping):
                    reading.cache_read_tokens = first_whole(details, "cached_tokens")
        elif kind == "tool":
            reading.tool_name = first_text(attributes, "name")
            reading.arguments = _seen(attributes.get("input"))
            reading.result = _seen(attributes.get("output"))
        reading.failure = _failure(attributes.get("error"))
        return reading


def _kind(name: str) -> Kind:
    for start, kind in _NAMES:
        if name.startswith(start):
            return kind
    return "other"


def _conversation(
    attributes: Mapping[str, object],
) -> tuple[tuple[Message, ...] | None, tuple[Message, ...] | None]:
    """Return a model's input and answer, from the first attribute that has them."""
    event_input, event_output = _events(attributes.get("events"))
    inputs = [decode(attributes.get(name)).value for name in ("raw_input", "input", "request_data")]
    outputs = [
        decode(attributes.get(name)).value for name in ("response", "output", "response_data")
    ]
    return (
        next(filter(None, map(read_request, (*inputs, event_input))), None),
        next(filter(None, map(read_response, (*outputs, event_output))), None),
    )


def _events(value: object) -> tuple[object, object]:
    """Split a list of message events: the trailing assistant messages are the answer."""
    messages = events_as_messages(value)
    if not isinstance(messages, list):
        return None, None
    answer = len(messages)
    while answer and _is_assistant(messages[answer - 1]):
        answer -= 1
    return messages[:answer], messages[answer:]


def _is_assistant(message: object) -> bool:
    if not isinstance(message, Mapping):
        return False
    return message.get("role") == "assistant" or message.get("type") in HOSTED_CALLS


def _seen(value: object) -> Evidence | None:
    """Decode a value; without content Logfire writes the JSON `null`."""
    return None if value in (None, "null") else decode(value)


def _failure(value: object) -> Failure | None:
    """Return the failure that the SDK reported: its message, or the cause in its data."""
    error = decode(value).value
    if not isinstance(error, Mapping):
        return None
    data = error.get("data")
    cause = first_text(data, "error") if isinstance(data, Mapping) else None
    return Failure(message=cause or first_text(error, "message"))
