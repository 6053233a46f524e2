"""Vercel AI SDK spans: `ai.operationId` and the `ai.*` attributes.

Source: the telemetry of AI SDK 3 to 7.  `ai.request.headers.*` may hold secrets and is not read.
"""

from collections.abc import Mapping, Sequence

from evaltap.recorder.conventions.messages import last_user_text
from evaltap.recorder.conventions.reading import Kind, Reading, first_text, first_value, first_whole
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Call, Message, Part, Text
from evaltap.schemas.chat.shapes import read_messages

OPERATION_ID = "ai.operationId"
PROMPT = "ai.prompt"
PROMPT_MESSAGES = "ai.prompt.messages"
TEXT = ("ai.response.text", "ai.result.text")
OBJECT = ("ai.response.object", "ai.result.object")
FINISH = ("ai.response.finishReason", "ai.finishReason")
TOOL_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")
METADATA = "ai.telemetry.metadata."
SESSION_METADATA = (
    "sessionId",
    "session_id",
    "conversationId",
    "conversation_id",
    "threadId",
    "thread_id",
    "chatId",
)
USER_METADATA = ("userId", "user_id")
INPUT_TOKENS = ("ai.usage.inputTokens", "ai.usage.promptTokens")
OUTPUT_TOKENS = ("ai.usage.outputTokens", "ai.usage.completionTokens")
_RUNS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")


class Vercel:
    """Reads the spans of AI SDK calls, their model steps and their tool calls."""

    name = "vercel-ai"
    marks = (OPERATION_ID,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        operation = attributes.get(OPERATION_ID)
        if not isinstance(operation, str):
            return None
        reading = Reading(
            self.name,
            kind=_kind(operation),
            session_id=first_text(attributes, *(f"{METADATA}{name}" for name in SESSION_METADATA)),
            user_id=first_text(attributes, *(f"{METADATA}{name}" for name in USER_METADATA)),
        )
        if reading.kind == "run":
            _read_run(reading, attributes)
        elif reading.kind == "model":
            _read_model(reading, attributes)
        elif reading.kind == "tool":
            reading.tool_name = first_text(attributes, "ai.toolCall.name")
            reading.call_id = first_text(attributes, "ai.toolCall.id")
            reading.arguments = first_value(attributes, ("ai.toolCall.args", "ai.toolCall.input"))
            reading.result = first_value(attributes, ("ai.toolCall.result", "ai.toolCall.output"))
        return reading


def _kind(operation: str) -> Kind:
    if operation in _RUNS:
        return "run"
    if ".do" in operation and operation.startswith(_RUNS):
        return "model"
    return "tool" if operation == "ai.toolCall" else "other"


def _read_run(reading: Reading, attributes: Mapping[str, object]) -> None:
    prompt = decode(attributes.get(PROMPT)).value
    if isinstance(prompt, dict):
        given = prompt.get("prompt")
        if isinstance(given, str):
            reading.user = Evidence(given)
        else:
            reading.user = last_user_text(read_messages(prompt.get("messages", given)))
    elif isinstance(prompt, str):
        reading.user = Evidence(prompt)
    # What a model says while it asks for tools is no answer: an own loop continues after it.
    if first_text(attributes, *FINISH) != "tool-calls":
        reading.final = _response_text(attributes)


def _read_model(reading: Reading, attributes: Mapping[str, object]) -> None:
    reading.model = first_text(attributes, "ai.response.model", "ai.model.id")
    reading.response_id = first_text(attributes, "ai.response.id")
    reading.input_tokens = first_whole(attributes, *INPUT_TOKENS)
    reading.output_tokens = first_whole(attributes, *OUTPUT_TOKENS)
    reading.cache_read_tokens = first_whole(attributes, "ai.usage.cachedInputTokens")
    messages = attributes.get(PROMPT_MESSAGES)
    evidence = decode(messages) if messages is not None else Evidence(None)
    reading.input = read_messages(evidence.value) or None
    reading.note_flaws(input=evidence.flaw)
    parts: list[Part] = []
    answer = _response_text(attributes)
    if answer is not None and answer.value is not None:
        parts.append(Text(str(answer.value)))
    calls = first_value(attributes, TOOL_CALLS)
    for call in calls.value if calls is not None and isinstance(calls.value, list) else ():
        if isinstance(call, dict):
            given = call.get("args", call.get("input"))
            parts.append(
                Call(
                    call.get("toolCallId"),
                    call.get("toolName"),
                    decode(given) if given is not None else None,
                )
            )
    if parts:
        reading.output = (Message("assistant", tuple(parts)),)


def _response_text(attributes: Mapping[str, object]) -> Evidence | None:
    """Return a response's text, or its object as text; an empty text next to tools does not count."""
    words = first_text(attributes, *TEXT) or first_text(attributes, *OBJECT)
    return Evidence(words) if words is not None else None
