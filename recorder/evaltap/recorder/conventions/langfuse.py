"""Langfuse SDK spans: `langfuse.observation.*`, often next to another dialect on the same span.

Source: the attribute names of the Langfuse Python SDK 3 to 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evaltap.recorder.conventions.chain_values import structured_answer
from evaltap.recorder.conventions.envelopes import take_arguments, take_output
from evaltap.recorder.conventions.messages import closing_text, last_user_text
from evaltap.recorder.conventions.reading import (
    Kind,
    Reading,
    agent_in_name,
    first_text,
    first_value,
    first_whole,
    number,
    text,
    whole,
)
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.tokens import Tokens, tokens
from evaltap.schemas.chat.evidence import Evidence, argument_values, decode, decode_words
from evaltap.schemas.chat.shapes import read_messages

PREFIX = "langfuse."
TYPE = "langfuse.observation.type"
INPUT = ("langfuse.observation.input", "langfuse.trace.input")
OUTPUT = ("langfuse.observation.output", "langfuse.trace.output")
LEVEL = "langfuse.observation.level"
STATUS_MESSAGE = "langfuse.observation.status_message"
MODEL = "langfuse.observation.model.name"
USAGE = "langfuse.observation.usage_details"
COST = "langfuse.observation.cost_details"
AS_ROOT = ("langfuse.internal.as_root", "langfuse.internal.is_app_root")
SESSION_ID = ("session.id", "langfuse.session.id")
SESSION_METADATA = tuple(
    f"langfuse.{level}.metadata.{name}"
    for level in ("trace", "observation")
    for name in ("session_id", "thread_id", "conversation_id")
)
USER_ID = ("user.id", "langfuse.user.id", "enduser.id")
_CACHE_READ = ("input_cache_read", "input_cached_tokens", "cache_read_input_tokens")
"""Usage types not included in `input`, as each has its own price."""
_CACHE_WRITE = ("input_cache_creation", "cache_creation_input_tokens")
_KINDS: dict[str, Kind] = {
    "agent": "agent",
    "chain": "run",
    "generation": "model",
    "tool": "tool",
    "retriever": "other",
    "embedding": "other",
    "evaluator": "other",
    "guardrail": "guardrail",
    "event": "other",
}


class Langfuse:
    """Reads Langfuse observations, and the session and user attributes that many tools share."""

    name = "langfuse"
    marks = (PREFIX, *SESSION_ID, *USER_ID)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        session_id = first_text(attributes, *SESSION_ID)
        user_id = first_text(attributes, *USER_ID)
        if not any(key.startswith(PREFIX) for key in attributes):
            if session_id is None and user_id is None:
                return None
            return Reading("", session_id=session_id, user_id=user_id)
        reading = Reading(self.name, session_id=session_id, user_id=user_id)
        if session_id is None:
            stated = (decode(attributes.get(name)).value for name in SESSION_METADATA)
            reading.session_id = next(filter(None, map(text, stated)), None)
        reading.kind = _kind(span)
        if reading.kind == "model":
            _read_model(reading, attributes)
        elif reading.kind == "tool" or (reading.kind is None and attributes.get(TYPE) == "span"):
            # A plain span may be a tool call; only the model's request for it shows that.
            _read_tool(reading, span)
        elif reading.kind in ("run", "agent"):
            reading.agent_name = agent_in_name(span.name) if reading.kind == "agent" else None
            _read_run(reading, attributes)
        if attributes.get(LEVEL) == "ERROR":
            reading.failure = Failure(message=first_text(attributes, STATUS_MESSAGE))
        return reading


def _kind(span: Span) -> Kind | None:
    stated = span.attributes.get(TYPE)
    if isinstance(stated, str) and stated in _KINDS:
        return _KINDS[stated]
    is_root = span.parent_id is None or any(span.attributes.get(key) is True for key in AS_ROOT)
    return "run" if stated == "span" and is_root else None


def _read_model(reading: Reading, attributes: Mapping[str, object]) -> None:
    reading.model = first_text(attributes, MODEL)
    entered, left = first_value(attributes, INPUT), first_value(attributes, OUTPUT)
    reading.input = _messages(entered, "user")
    reading.output = _messages(left, "assistant")
    usage = decode(attributes.get(USAGE)).value
    if isinstance(usage, dict):
        reading.use(_tokens(usage))
    cost = decode(attributes.get(COST)).value
    if isinstance(cost, dict):
        reading.cost_usd = number(cost.get("total"))


def _tokens(usage: Mapping[str, object]) -> Tokens:
    """Return the tokens of all usage types: `output` excludes `output_reasoning`, if the total says so."""
    used = tokens(
        whole(usage.get("input", usage.get("prompt_tokens"))),
        whole(usage.get("output", usage.get("completion_tokens"))),
        first_whole(usage, *_CACHE_READ),
        first_whole(usage, *_CACHE_WRITE),
        apart="input" in usage,
    )
    if used.input is None or used.output is None or not {"input", "output"} <= usage.keys():
        return used
    given, said = used.input + _others(usage, "input"), used.output + _others(usage, "output")
    if usage.get("total") not in (None, given + said):
        return used
    return used._replace(input=given, output=said)


def _others(usage: Mapping[str, object], side: str) -> int:
    """Return the tokens of the usage types of a side that are not read by name."""
    named = (*_CACHE_READ, *_CACHE_WRITE, f"{side}_tokens")
    others = (key for key in usage if key.startswith(f"{side}_") and key not in named)
    return sum(whole(usage[key]) or 0 for key in others)


def _read_tool(reading: Reading, span: Span) -> None:
    reading.tool_name = span.name
    entered = first_value(span.attributes, INPUT)
    reading.arguments = take_arguments(entered) if entered is not None else None
    if (left := first_value(span.attributes, OUTPUT)) is not None:
        take_output(reading, left)


def _messages(evidence: Evidence | None, role: str) -> Any:
    value = evidence.value if evidence is not None else None
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        value = value["messages"]
    return read_messages(value, role=role) or None


def _read_run(reading: Reading, attributes: Mapping[str, object]) -> None:
    entered, left = (first_value(attributes, names, decode_words) for names in (INPUT, OUTPUT))
    if entered is not None:
        reading.user = last_user_text(_messages(entered, "user") or ())
        reading.user_fallback = _only_text(entered)
    if left is not None:
        said = closing_text(_messages(left, "assistant") or ())
        reading.final = structured_answer(left.value) or said
        reading.final_fallback = _only_text(left)


def _only_text(evidence: Evidence) -> Evidence | None:
    value = evidence.value
    if isinstance(value, dict) and set(value) == {"args", "kwargs"}:
        value = argument_values(value)
    elif isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, list):
        value = [value]
    return Evidence(value[0]) if len(value) == 1 and isinstance(value[0], str) else None
