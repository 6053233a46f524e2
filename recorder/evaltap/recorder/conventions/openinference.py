"""OpenInference spans (Arize): `openinference.span.kind` and related attributes.

Source: the OpenInference specification and the spans of its openai-agents, LangChain and ADK
instrumentations. Lists are flattened into numbered attributes whose numbers may start at 1 and have
gaps, so they are ordered by number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evaltap.recorder.conventions.chain_values import (
    answer_of,
    is_resumption,
    question_of,
    structured_answer,
)
from evaltap.recorder.conventions.envelopes import take_arguments, take_output, whole_call
from evaltap.recorder.conventions.messages import (
    closing_text,
    last_user_text,
    read_request,
    read_response,
)
from evaltap.recorder.conventions.numbered import Numbered, gather
from evaltap.recorder.conventions.reading import (
    Kind,
    Reading,
    agent_in_name,
    first_text,
    first_whole,
    number,
)
from evaltap.recorder.telemetry.flat_spans import mapping
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode, decode_words
from evaltap.schemas.chat.media import WITHHELD, MediaPart, media_in
from evaltap.schemas.chat.messages import Answer, Call, Message, Part, text_part
from evaltap.schemas.chat.shapes import read_messages

SPAN_KIND = "openinference.span.kind"
INPUT_VALUE = "input.value"
OUTPUT_VALUE = "output.value"
OUTPUT_MIME_TYPE = "output.mime_type"
PROMPT_VARIABLES = "llm.prompt_template.variables"
METADATA = "metadata"
SESSION_METADATA = ("session_id", "conversation_id", "thread_id")
ADK_SCOPE = "gcp.vertex.agent"
_HANDOFF = "handoff to "
_EVENT = "StopEvent("
"""How LlamaIndex writes a workflow's output: `repr`, cut off."""
_KINDS: dict[str, Kind] = {
    "AGENT": "agent",
    "CHAIN": "run",
    "LLM": "model",
    "TOOL": "tool",
    "GUARDRAIL": "guardrail",
}


class OpenInference:
    """Reads spans with an OpenInference kind."""

    name = "openinference"
    marks = (SPAN_KIND,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        stated = attributes.get(SPAN_KIND)
        if not isinstance(stated, str):
            return None
        kind = _corrected(_KINDS.get(stated.upper(), "other"), span)
        metadata = mapping(
            decode(attributes.get(METADATA)).value
        )  # LangChain names its agents there
        reading = Reading(
            self.name,
            kind=kind,
            agent_name=first_text(attributes, "agent.name")
            or first_text(metadata, "lc_agent_name"),
            session_id=first_text(attributes, "session.id")
            or first_text(metadata, *SESSION_METADATA),
            user_id=first_text(attributes, "user.id"),
        )
        if kind == "model" and span.scope == ADK_SCOPE and span.name.startswith("invoke_agent"):
            _read_overwritten(reading, attributes)
            return reading
        if kind == "model":
            _read_model(reading, attributes)
        elif kind == "tool":
            _read_tool(reading, span)
        elif kind in ("agent", "run"):
            if kind == "agent" and reading.agent_name is None:
                reading.agent_name = agent_in_name(span.name)
            _read_run(reading, attributes)
        elif stated.upper() == "RETRIEVER" and isinstance(attributes.get(INPUT_VALUE), str):
            reading.user = Evidence(attributes[INPUT_VALUE])
        elif kind != "guardrail":
            reading.user = question_of(decode(attributes.get(PROMPT_VARIABLES)).value)
        return reading


def _corrected(kind: Kind, span: Span) -> Kind:
    """Return the kind of a span that a framework's instrumentation labels as another."""
    if kind == "model" and span.scope.endswith("haystack") and not _has_messages(span.attributes):
        return "other"  # it labels unknown components as models
    if kind == "run" and span.scope.endswith("haystack") and span.name.startswith("Agent.run"):
        return "agent"
    if kind == "model" and span.name.endswith("._prepare_chat_with_tools"):
        return "other"  # LlamaIndex makes a request of it first
    return kind


def _has_messages(attributes: Mapping[str, object]) -> bool:
    return any(
        name.startswith(("llm.input_messages.", "llm.output_messages.")) for name in attributes
    )


def _read_overwritten(reading: Reading, attributes: Mapping[str, object]) -> None:
    """Read ADK's own agent span, which every model call below it has overwritten with its messages.

    The numbered attributes mix the last call's messages with leftovers of earlier ones; the last
    request and the last response are complete.
    """
    reading.kind = "agent"
    reading.overwritten = True
    reading.model = first_text(attributes, "llm.model_name")
    reading.input = read_request(decode(attributes.get(INPUT_VALUE)).value) or None
    reading.output = read_response(decode(attributes.get(OUTPUT_VALUE)).value) or None


def _read_model(reading: Reading, attributes: Mapping[str, object]) -> None:
    reading.model = first_text(attributes, "llm.model_name")
    reading.input_tokens = first_whole(attributes, "llm.token_count.prompt")
    reading.output_tokens = first_whole(attributes, "llm.token_count.completion")
    details = "llm.token_count.prompt_details"
    reading.cache_read_tokens = first_whole(attributes, f"{details}.cache_read")
    reading.cache_write_tokens = first_whole(attributes, f"{details}.cache_write")
    reading.total_tokens = first_whole(attributes, "llm.token_count.total")
    reading.cost_usd = number(attributes.get("llm.cost.total"))
    reading.input = _messages(attributes, "llm.input_messages")
    reading.output = _messages(attributes, "llm.output_messages")
    if reading.input is not None:
        reading.input = _with_raw_answers(reading.input, attributes.get(INPUT_VALUE))
    # Some instrumentations write only the raw request and response, not the messages.
    if reading.input is None:
        entered = decode(attributes.get(INPUT_VALUE))
        reading.input = read_request(entered.value) or None
        reading.note_flaws(input=entered.flaw)
    if reading.output is None:
        left = decode(attributes.get(OUTPUT_VALUE))
        reading.output = read_response(left.value) or None
        reading.note_flaws(output=left.flaw)


def _with_raw_answers(messages: tuple[Message, ...], request: object) -> tuple[Message, ...]:
    """Complete tool results from the raw request: the call's id (LiteLLM), a failure (Anthropic)."""
    told = [answer for message in messages for answer in message.answers]
    if not isinstance(request, str) or not told:
        return messages
    if "is_error" not in request and all(answer.call_id for answer in told):
        return messages  # nothing to add: decoding every request would be slow
    raw = [answer for one in read_request(decode(request).value) for answer in one.answers]
    if len(raw) != len(told) or any(
        one.call_id not in (None, other.call_id) for one, other in zip(told, raw, strict=True)
    ):
        return messages
    found = iter(raw)
    return tuple(
        replace(message, parts=tuple(_completed(part, found) for part in message.parts))
        for message in messages
    )


def _completed(part: Part, raw: Iterator[Answer]) -> Part:
    if not isinstance(part, Answer):
        return part
    answer = next(raw)
    return replace(part, call_id=answer.call_id, failed=part.failed or answer.failed)


def _messages(attributes: Mapping[str, object], prefix: str) -> tuple[Message, ...] | None:
    found: list[Message] = []
    for entry in gather(attributes, prefix):
        message = entry.child("message")
        role = message.text("role") or "user"
        parts: list[Part] = []
        if role in ("tool", "function"):
            content = message.value("content")
            result = decode(content) if content in WITHHELD else Evidence(content)
            parts.append(
                Answer(
                    message.text("tool_call_id"),
                    message.text("name"),
                    result if content is not None else None,
                )
            )
        else:
            parts.extend(_text_and_media(message))
        parts.extend(_call(call.child("tool_call")) for call in message.items("tool_calls"))
        found.append(
            Message({"model": "assistant", "function": "tool"}.get(role, role), tuple(parts))
        )
    return tuple(found) or None


def _text_and_media(message: Numbered) -> list[Part]:
    whole = message.value("content")
    if isinstance(whole, str):
        return [text_part(whole)]
    words: list[Part] = []
    for block in message.items("contents"):
        content = block.child("message_content")
        value = content.value("text")
        if isinstance(value, str):
            words.append(text_part(value))
        else:
            words += _media(content)
    return words


def _media(content: Numbered) -> Iterator[MediaPart]:
    for kind in ("image", "audio"):
        # `message_content.image.image.url`
        if held := content.child(kind).child(kind):
            shown = {key: value for key in ("url", "mime_type") if (value := held.value(key))}
            if (part := media_in({"type": kind, **shown})) is not None:
                yield part


def _call(call: Numbered) -> Call:
    arguments = call.value("function.arguments")
    # A call without arguments has no arguments attribute; it was seen nevertheless.
    seen = decode(arguments) if arguments is not None else Evidence({})
    return Call(call.text("id"), call.text("function.name"), seen)


def _read_tool(reading: Reading, span: Span) -> None:
    attributes = span.attributes
    reading.tool_name = first_text(attributes, "tool.name")
    reading.call_id = first_text(attributes, "tool.id", "tool_call.id")
    if reading.tool_name is None:
        if span.name.startswith(_HANDOFF):
            reading.kind = "handoff"
            return
        reading.tool_name = span.name.removeprefix("execute_tool ").removesuffix(".__call__")
    if INPUT_VALUE in attributes:
        entered = decode(attributes[INPUT_VALUE])
        if (call := whole_call(entered)) is not None:
            reading.tool_name, reading.call_id = call.name, call.call_id
        reading.arguments = take_arguments(entered) if call is None else call.arguments
    elif span.scope == ADK_SCOPE or span.scope.endswith("google_adk"):
        # By the specification tool.parameters is the schema; this instrumentation writes arguments.
        parameters = attributes.get("tool.parameters")
        reading.arguments = decode(parameters) if parameters is not None else None
    if OUTPUT_VALUE in attributes:
        take_output(reading, decode(attributes[OUTPUT_VALUE]))


def _read_run(reading: Reading, attributes: Mapping[str, object]) -> None:
    entered = decode(attributes.get(INPUT_VALUE))
    if isinstance(entered.value, dict):
        new = entered.value.get("new_message")
        messages = read_messages(new if new is not None else entered.value.get("messages"))
        reading.user = last_user_text(messages) or question_of(entered.value)
        reading.resumed = is_resumption(entered.value) or None
        reading.session_id = reading.session_id or (
            first_text(entered.value, "session_id") if new is not None else None
        )
    elif isinstance(entered.value, list):
        reading.user = last_user_text(read_messages(entered.value))
    elif isinstance(attributes.get(INPUT_VALUE), str) or entered.flaw:
        reading.user_fallback = Evidence(
            None if entered.flaw else attributes[INPUT_VALUE], entered.flaw
        )
    _read_run_output(reading, attributes)


def _read_run_output(reading: Reading, attributes: Mapping[str, object]) -> None:
    left = decode_words(attributes.get(OUTPUT_VALUE))
    value = left.value
    # An agent that declares its output as plain text states its answer; a chain's may be anything.
    is_answer = reading.kind == "agent" and attributes.get(OUTPUT_MIME_TYPE) == "text/plain"
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        reading.output = read_messages(value["messages"]) or None
        reading.final = structured_answer(value) or closing_text(reading.output or ())
    elif isinstance(value, dict) and isinstance(value.get("content"), dict):
        messages = read_messages([{**value["content"], "role": "assistant"}])
        reading.final = closing_text(messages)
    elif is_answer and not left.flaw and isinstance(attributes[OUTPUT_VALUE], str):
        reading.final = Evidence(value if isinstance(value, str) else attributes[OUTPUT_VALUE])
    elif isinstance(value, dict):
        reading.final_fallback = answer_of(value)
    elif (isinstance(value, str) and not value.startswith(_EVENT)) or left.flaw:
        reading.final_fallback = Evidence(None if left.flaw else value, left.flaw)
