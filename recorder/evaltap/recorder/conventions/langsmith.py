"""LangSmith's OpenTelemetry export: run inputs and outputs as JSON on every span.

Source: the spans of langsmith's OTel exporter. `gen_ai.prompt` and `gen_ai.completion` hold the
inputs and outputs of any run. `langsmith.trace.session_id` is LangSmith's *project*, never a
conversation.
"""

from collections.abc import Mapping, Sequence

from evaltap.recorder.conventions.chain_values import question_of, structured_answer
from evaltap.recorder.conventions.envelopes import take_output
from evaltap.recorder.conventions.messages import (
    closing_text,
    last_user_text,
    read_generations,
    read_response,
)
from evaltap.recorder.conventions.reading import Kind, Reading, first_text, whole
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Message
from evaltap.schemas.chat.shapes import read_messages

SPAN_KIND = "langsmith.span.kind"
INPUTS = "gen_ai.prompt"
OUTPUTS = "gen_ai.completion"
METADATA = "langsmith.metadata."
SESSION_METADATA = ("session_id", "thread_id", "conversation_id")
_KINDS: dict[str, Kind] = {"chain": "run", "llm": "model", "tool": "tool"}


class LangSmith:
    """Reads spans with `langsmith.span.kind`."""

    name = "langsmith"
    marks = (SPAN_KIND,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        stated = attributes.get(SPAN_KIND)
        if not isinstance(stated, str):
            return None
        reading = Reading(
            self.name,
            kind=_KINDS.get(stated.lower(), "other"),
            session_id=first_text(attributes, *(f"{METADATA}{name}" for name in SESSION_METADATA)),
            user_id=first_text(attributes, f"{METADATA}user_id"),
            agent_name=first_text(attributes, f"{METADATA}lc_agent_name"),
        )
        entered, left = decode(attributes.get(INPUTS)), decode(attributes.get(OUTPUTS))
        if reading.kind == "model":
            _read_model(reading, attributes, entered, left)
        elif reading.kind == "tool":
            _read_tool(reading, span, entered, left)
        elif reading.kind == "run":
            _read_run(reading, entered, left)
        return reading


def _read_model(
    reading: Reading, attributes: Mapping[str, object], entered: Evidence, left: Evidence
) -> None:
    reading.input = _messages(entered.value) or None
    reading.output = _generated(left.value) or None
    reading.note_flaws(input=entered.flaw, output=left.flaw)
    usage = decode(attributes.get(f"{METADATA}usage_metadata")).value
    if isinstance(usage, dict):
        reading.input_tokens = whole(usage.get("input_tokens"))
        reading.output_tokens = whole(usage.get("output_tokens"))
        details = usage.get("input_token_details")
        if isinstance(details, dict):
            reading.cache_read_tokens = whole(details.get("cache_read"))
            reading.cache_write_tokens = whole(details.get("cache_creation"))


def _messages(value: object) -> tuple[Message, ...]:
    inputs = value.get("messages") if isinstance(value, dict) else value
    return read_messages(inputs) if isinstance(inputs, list) else ()


def _generated(value: object) -> tuple[Message, ...]:
    """Return a model run's output messages: LangChain generations, or a bare message."""
    if not isinstance(value, dict):
        return read_messages(value, role="assistant") if isinstance(value, list) else ()
    if generated := read_generations(value):
        return generated
    if isinstance(value.get("choices"), list):
        return read_response(value)
    if isinstance(value.get("output"), dict):
        return read_messages([value["output"]], role="assistant")
    return read_messages([value], role="assistant") or _messages(value)


def _read_tool(reading: Reading, span: Span, entered: Evidence, left: Evidence) -> None:
    attributes = span.attributes
    reading.tool_name = first_text(attributes, "gen_ai.tool.name") or span.name
    reading.call_id = first_text(attributes, "gen_ai.tool.call.id")
    value = entered.value
    if INPUTS in attributes:
        if isinstance(value, dict) and set(value) == {"input"}:
            value = decode(value["input"]).value
        reading.arguments = Evidence(value, entered.flaw)
    if OUTPUTS in attributes and left.value != {}:
        # A tool that raised has empty outputs.
        take_output(reading, left)


def _read_run(reading: Reading, entered: Evidence, left: Evidence) -> None:
    reading.user = last_user_text(_messages(entered.value)) or question_of(entered.value)
    value = entered.value
    if isinstance(value, dict) and len(value) == 1:
        only = next(iter(value.values()))
        reading.user_fallback = Evidence(only) if isinstance(only, str) else None
    reading.output = _messages(left.value) or None
    reading.final = structured_answer(left.value) or closing_text(reading.output or ())
    value = left.value
    if isinstance(value, dict) and set(value) == {"output"} and isinstance(value["output"], str):
        reading.final_fallback = Evidence(value["output"])
