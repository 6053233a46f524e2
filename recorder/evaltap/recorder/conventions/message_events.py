"""GenAI message events of the conventions up to 1.36, as span events or as log records.

`gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice`, one event per message; and the
even older `gen_ai.content.prompt` / `gen_ai.content.completion`. Strands writes them on runs and
tools too, with a tool's arguments and result as messages; ADK 1 writes Google GenAI contents as
bodies.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from evaltap.recorder.conventions.genai import (
    EVENT_CONTENT,
    OPERATION,
    TOOL_STATUS,
    classify,
    content_value,
)
from evaltap.recorder.conventions.messages import read_generations
from evaltap.recorder.conventions.reading import Reading
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Answer, Call, Message, Text
from evaltap.schemas.chat.shapes import read_messages

_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_SPEAKER = re.compile(r"^(system|user|assistant): ", re.MULTILINE)
CHOICE = "gen_ai.choice"
OLD_PROMPT = "gen_ai.content.prompt"
OLD_COMPLETION = "gen_ai.content.completion"
THREAD_RUN = "process_thread_run"
"""Azure AI's agents run at the provider; one span has the whole conversation, in order."""


class MessageEvents:
    """Reads message events of any GenAI span."""

    name = "otel-genai-events"
    marks = (TOOL_STATUS,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        bodies = list(_bodies(span, logs))
        if not bodies and TOOL_STATUS not in span.attributes:
            return None
        reading = Reading(self.name)
        if OPERATION in span.attributes and classify(span.attributes) == "tool":
            _read_tool(reading, bodies)
            if span.attributes.get(TOOL_STATUS) == "error":
                reading.failure = Failure(message=_error_text(reading.result))
            return reading
        reading.input = tuple(m for name, body in bodies for m in _input(name, body)) or None
        reading.output = tuple(m for name, body in bodies for m in _output(name, body)) or None
        if span.attributes.get(OPERATION) == THREAD_RUN and reading.output is None:
            reading.output = reading.input
        return reading


def _bodies(span: Span, logs: Sequence[LogRecord]) -> Iterator[tuple[str, Mapping[str, object]]]:
    known = {*_ROLES, CHOICE, OLD_PROMPT, OLD_COMPLETION}
    for event in span.events:
        if event.name in known:
            yield event.name, _body(event.attributes)
    for log in logs:
        name = log.event_name or str(log.attributes.get("event.name") or "")
        if name in known:
            body = decode(log.body).value
            yield name, body if isinstance(body, dict) else {"content": body}


def _body(attributes: Mapping[str, object]) -> Mapping[str, object]:
    """Return an event's attributes, or the JSON that Azure's SDKs write into one of them."""
    whole = decode(attributes.get(EVENT_CONTENT)).value
    return whole if isinstance(whole, dict) else attributes


def _read_tool(reading: Reading, bodies: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    for name, body in bodies:
        if name == CHOICE and reading.result is None:
            reading.result = content_value(body.get("message"))
        elif name == "gen_ai.tool.message" and reading.arguments is None:
            reading.arguments = content_value(body.get("content"))


def _input(name: str, body: Mapping[str, object]) -> Iterator[Message]:
    if name == OLD_PROMPT:
        prompt = decode(body.get("gen_ai.prompt")).value
        yield from read_messages(_dialogue(prompt) if isinstance(prompt, str) else prompt)
        return
    if (role := _ROLES.get(name)) is None:
        return
    yield from _message(role, body)


def _dialogue(prompt: str) -> list[dict[str, str]] | str:
    """Split a prompt with lines of `role: text`, OpenLIT's format; return other prompts unchanged."""
    parts = _SPEAKER.split(prompt)
    if parts[0] or len(parts) < 3:
        return prompt
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [{"role": role, "content": words.strip()} for role, words in pairs]


def _output(name: str, body: Mapping[str, object]) -> Iterator[Message]:
    if name == OLD_COMPLETION:
        yield from read_messages(decode(body.get("gen_ai.completion")).value, role="assistant")
    if name != CHOICE:
        return
    message = body.get("message")
    if message is None:
        # ADK 1 writes the content itself as the body of the choice.
        yield from _message("assistant", body)
        return
    decoded = decode(message).value
    if isinstance(decoded, dict):
        yield from _message("assistant", decoded)
    elif isinstance(decoded, list):
        yield from _message("assistant", {"content": decoded})
    elif decoded is not None:
        yield Message("assistant", (Text(str(message)),))


def _message(role: str, body: Mapping[str, object]) -> Iterator[Message]:
    content = body.get("content")
    inner = decode(content).value if isinstance(content, str) else content
    if isinstance(inner, dict) and isinstance(inner.get("text"), dict):
        content = inner = inner["text"].get("value")
    if isinstance(inner, dict):
        if (chained := _chained(inner)) is not None:
            yield from chained
            return
        if "parts" in inner or "role" in inner:
            spoken = {**inner, "role": role if role != "user" else inner.get("role") or role}
            yield from read_messages([spoken])
            return
    if role == "tool" and not _has_answer(inner):
        yield Message("tool", (_answer(body, content),))
        return
    blocks = inner if isinstance(inner, list) else content
    if not isinstance(blocks, list) and blocks is not None and not isinstance(blocks, str):
        blocks = str(blocks)
    yield from read_messages(
        [{"role": role, "content": blocks, "tool_calls": decode(body.get("tool_calls")).value}]
    )


def _answer(body: Mapping[str, object], content: object) -> Answer:
    call_id = body.get("id") or body.get("tool_call_id")
    result = content_value(content) if "content" in body else None
    return Answer(call_id if isinstance(call_id, str) else None, None, result)


def _chained(inner: Mapping[str, object]) -> Sequence[Message] | None:
    """Return the messages in what a step of LangChain took or returned, as ADOT writes it into events.

    OpenLLMetry wraps it, with the step's tags.  None for anything else.
    """
    wrapped = next((inner[key] for key in ("inputs", "outputs", "output") if key in inner), None)
    if wrapped is not None and {"tags", "kwargs"} & inner.keys():
        chained = _chained(wrapped) if isinstance(wrapped, dict) else None
        return read_messages([wrapped]) if _is_lc(wrapped) else chained or ()
    if isinstance(inner.get("messages"), list):
        return read_messages(inner["messages"])
    if "generations" in inner:
        return read_generations(inner)
    return read_messages([inner]) if "tool_call_id" in inner else None


def _is_lc(value: object) -> bool:
    return isinstance(value, dict) and "lc" in value


def _has_answer(inner: object) -> bool:
    messages = (
        read_messages([{"role": "user", "content": inner}]) if isinstance(inner, list) else ()
    )
    return any(isinstance(part, Answer | Call) for m in messages for part in m.parts)


def _error_text(result: Evidence | None) -> str | None:
    return result.value if result is not None and isinstance(result.value, str) else None
