"""Clients of Google GenAI and OpenAI: call ids and results that their instrumentations write oddly.

Google's SDK wraps what a function returns. Without an id from Gemini, the official instrumentation
writes the function's name and the part's position in its message (`get_weather_0`). OpenLLMetry,
with OpenAI's Responses API, writes the item's id (`fc_...`) for a call and the call's id
(`call_...`) for its result.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from evaltap.recorder.conventions.reading import Reading
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Answer, Call, Message, Part


class ProviderClients:
    """Corrects ids and results in the messages that other dialects read."""

    name = "provider-clients"
    marks = ("gen_ai.", "openinference.")

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        repair = _REPAIRS.get(span.scope)
        return Reading("", repair=repair) if repair is not None else None


def _drop_positions(reading: Reading) -> None:
    messages = (*(reading.input or ()), *(reading.output or ()))
    names = {call.name for message in messages for call in message.calls if _is_position(call)}
    for field in ("input", "output"):
        found: tuple[Message, ...] | None = getattr(reading, field)
        if found is not None:
            setattr(reading, field, tuple(_replaced(message, names) for message in found))


def _replaced(message: Message, names: Iterable[str | None]) -> Message:
    return replace(message, parts=tuple(_without_position(part, names) for part in message.parts))


def _without_position(part: Part, names: Iterable[str | None]) -> Part:
    if isinstance(part, Call):
        return replace(part, call_id=None) if _is_position(part) else part
    if not isinstance(part, Answer):
        return part
    part = _without_wrapper(part)
    name = _POSITION.sub("", part.call_id or "")
    return replace(part, call_id=None, name=name) if name in names else part


def _is_position(call: Call) -> bool:
    return bool(call.name) and _POSITION.sub("", call.call_id or "") == call.name


_POSITION: Final = re.compile(r"_\d+$")


def _without_wrapper(answer: Answer) -> Answer:
    """Take a function's result or error out of what the SDK sends: `{"result": x}`, `{"error": x}`."""
    value = decode(answer.result.value).value if answer.result is not None else None
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() & {"result", "error"}:
        return answer
    ((key, inner),) = value.items()
    return replace(answer, result=Evidence(inner), failed=key == "error")


def _join_single_calls(reading: Reading) -> None:
    """Give a result the id of its call, if that call was requested alone."""
    if reading.input is None:
        return
    edge = Message("", ())
    messages = [edge, *reading.input, edge]
    known = {call.call_id for message in messages for call in message.calls}
    for at in range(len(messages) - 3):
        before, asking, answering, after = messages[at : at + 4]
        if before.calls or after.answers or len(asking.calls) != 1 or len(answering.answers) != 1:
            continue
        if answering.answers[0].call_id not in known:
            answer = replace(answering.answers[0], call_id=asking.calls[0].call_id)
            messages[at + 2] = replace(answering, parts=(answer,))
    reading.input = tuple(messages[1:-1])


_REPAIRS: Final[dict[str, Callable[[Reading], None]]] = {
    **dict.fromkeys(
        (
            "openinference.instrumentation.google_genai",
            "opentelemetry.instrumentation.google_genai",
            "opentelemetry.instrumentation.google_generativeai",
        ),
        _drop_positions,
    ),
    "opentelemetry.instrumentation.openai.v1": _join_single_calls,
}
