"""OpenLLMetry (Traceloop) spans: indexed prompts (up to 0.4x), entity values, its own span kinds.

Source: openllmetry's LangChain, OpenAI and openai-agents instrumentations, and LiteLLM's callback.
From 0.6x on its model spans carry the GenAI attributes, which the GenAI dialect reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from evaltap.recorder.conventions.chain_values import question_of, structured_answer
from evaltap.recorder.conventions.envelopes import take_arguments, take_output
from evaltap.recorder.conventions.messages import closing_text, last_user_text
from evaltap.recorder.conventions.numbered import Numbered, gather
from evaltap.recorder.conventions.reading import Kind, Reading, first_text, first_value, first_whole
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, argument_values, decode
from evaltap.schemas.chat.messages import Call, Message, Part, Text
from evaltap.schemas.chat.shapes import read_messages

SPAN_KIND = "traceloop.span.kind"
ENTITY_NAME = "traceloop.entity.name"
ENTITY_INPUT = ("traceloop.entity.input", "gen_ai.task.input")
ENTITY_OUTPUT = ("traceloop.entity.output", "gen_ai.task.output")
ASSOCIATION = "traceloop.association.properties."
SESSION_PROPERTIES = ("session_id", "thread_id", "conversation_id")
REQUEST_TYPE = "llm.request.type"
PROMPT = "gen_ai.prompt"
COMPLETION = "gen_ai.completion"
FLATTENING_SCOPE = "opentelemetry.instrumentation.openai_agents"
_KINDS: dict[str, Kind] = {
    "workflow": "run",
    "agent": "agent",
    "tool": "tool",
    "handoff": "handoff",
    "task": "other",
}


class Traceloop:
    """Reads `traceloop.*`, `llm.request.type` and the indexed `gen_ai.prompt.N`."""

    name = "traceloop"
    marks = ("traceloop.", REQUEST_TYPE, f"{PROMPT}.", f"{COMPLETION}.")

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        prompts = gather(attributes, PROMPT)
        completions = gather(attributes, COMPLETION)
        if not prompts and not completions and not _is_marked(attributes):
            return None
        reading = Reading(self.name, kind=_kind(attributes, bool(prompts or completions)))
        reading.session_id = first_text(
            attributes, *(f"{ASSOCIATION}{name}" for name in SESSION_PROPERTIES)
        )
        reading.user_id = first_text(attributes, f"{ASSOCIATION}user_id")
        reading.agent_name = first_text(attributes, f"{ASSOCIATION}lc_agent_name")
        reading.input = _messages(prompts)
        reading.output = _messages([entry for entry in completions if not _is_unread(entry)])
        functions = [*filter(None, (one.child("function_call") for one in completions))]
        if functions and reading.output is None:
            reading.repair = partial(_add_calls, tuple(map(_call, functions)))
        if reading.kind == "model":
            reading.input_tokens = first_whole(attributes, "gen_ai.usage.prompt_tokens")
            reading.output_tokens = first_whole(attributes, "gen_ai.usage.completion_tokens")
        elif reading.kind == "tool":
            _read_tool(reading, attributes)
        elif reading.kind in ("run", "agent"):
            _read_run(reading, span)
        if span.scope == FLATTENING_SCOPE:
            reading.flattens_agents = True
        return reading


def _is_marked(attributes: Mapping[str, object]) -> bool:
    return any(key.startswith("traceloop.") or key == REQUEST_TYPE for key in attributes)


def _kind(attributes: Mapping[str, object], indexed: bool) -> Kind | None:
    operation = attributes.get("gen_ai.operation.name")
    if operation in ("chat", "text_completion", "generate_content"):
        return "model"
    if operation == "create_agent":
        return "other"
    if operation == "invoke_agent":
        return "agent"
    kind = attributes.get(SPAN_KIND)
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    request = attributes.get(REQUEST_TYPE)
    if request in ("chat", "completion") or indexed:
        return "model"
    return "other" if request is not None else None


def _messages(entries: Sequence[Numbered]) -> tuple[Message, ...] | None:
    return tuple(_message(entry) for entry in entries) or None


def _is_unread(entry: Numbered) -> bool:
    """Return whether a completion is none: tool calls that were not read (up to 0.4x), or LiteLLM's."""
    empty = entry.value("content") in (None, "", '""') and not entry.items("tool_calls")
    return empty and (entry.text("role") == "unknown" or bool(entry.child("function_call")))


def _add_calls(calls: Sequence[Call], reading: Reading) -> None:
    """Add the calls that LiteLLM writes beside the message, each as a completion of its own."""
    said = reading.output or (Message("assistant", ()),)
    if not any(message.calls for message in said):
        reading.output = (*said[:-1], replace(said[-1], parts=(*said[-1].parts, *calls)))


def _message(entry: Numbered) -> Message:
    role = {"human": "user", "ai": "assistant", "unknown": "assistant", "model": "assistant"}.get(
        entry.text("role") or "assistant", entry.text("role") or "assistant"
    )
    content = entry.value("content") or _joined(entry.items("content"))
    if role in ("tool", "function"):
        return read_messages(
            [
                {
                    "role": "tool",
                    "tool_call_id": entry.text("tool_call_id"),
                    "name": entry.text("name"),
                    **({"content": content} if content is not None else {}),
                }
            ]
        )[0]
    parts: list[Part] = []
    if isinstance(content, str) and content:
        parts.extend(_content(content, role))
    parts.extend(map(_call, entry.items("tool_calls")))
    return Message(role, tuple(parts))


def _call(entry: Numbered) -> Call:
    arguments = entry.value("arguments")
    seen = decode(arguments) if arguments is not None else None
    return Call(entry.text("id"), entry.text("name"), seen)


def _joined(blocks: Sequence[Numbered]) -> str | None:
    """Return the text of content that was flattened block by block (early Strands)."""
    texts = [text for block in blocks if (text := block.text("text")) is not None]
    return "\n".join(texts) if texts else None


def _content(content: str, role: str) -> Sequence[Part]:
    """Read content that is plain text or a JSON list of content blocks."""
    if content.startswith("[{"):
        blocks = decode(content).value
        if isinstance(blocks, list):
            if all(isinstance(one, dict) and "function" in one for one in blocks):
                # Koog writes the calls in place of the text.
                return read_messages([{"role": role, "tool_calls": blocks}])[0].parts
            inner = read_messages([{"role": role, "content": blocks}])
            if inner and inner[0].parts:
                return inner[0].parts
    return (Text(content),)


def _read_tool(reading: Reading, attributes: Mapping[str, object]) -> None:
    reading.tool_name = first_text(attributes, "gen_ai.tool.name", ENTITY_NAME)
    if reading.tool_name is not None:
        reading.tool_name = reading.tool_name.removesuffix(".tool")
    if (entered := first_value(attributes, ENTITY_INPUT)) is not None:
        reading.arguments = _tool_arguments(entered)
        kwargs = entered.value.get("kwargs") if isinstance(entered.value, dict) else None
        if isinstance(kwargs, dict):
            reading.call_id = first_text(kwargs, "tool_call_id")
    if (left := first_value(attributes, ENTITY_OUTPUT)) is not None:
        take_output(reading, left)


def _tool_arguments(entered: Evidence) -> Evidence:
    """Unwrap arguments from LangChain's `inputs`/`input_str`, the decorators' `args`/`kwargs`."""
    value = entered.value
    if not isinstance(value, dict):
        return entered
    if isinstance(value.get("inputs"), dict) and value["inputs"]:
        return Evidence(value["inputs"])
    if isinstance(value.get("input_str"), str):
        return decode(value["input_str"])
    return take_arguments(entered)


def _read_run(reading: Reading, span: Span) -> None:
    attributes = span.attributes
    if reading.kind == "agent":
        name = first_text(attributes, "gen_ai.agent.name", ENTITY_NAME)
        reading.agent_name = (name or span.name).removesuffix(".agent").removesuffix(".workflow")
    if (entered := first_value(attributes, ENTITY_INPUT)) is not None:
        value = entered.value
        metadata = value.get("metadata") if isinstance(value, dict) else None
        if reading.session_id is None and isinstance(metadata, dict):
            reading.session_id = first_text(metadata, *SESSION_PROPERTIES)
        inputs = _held(value, "inputs")
        messages = inputs.get("messages") if isinstance(inputs, dict) else inputs
        spoken = read_messages(messages) if isinstance(messages, list) else ()
        reading.user = last_user_text(spoken) or question_of(inputs)
        reading.user_fallback = _only_text(inputs)
    if (left := first_value(attributes, ENTITY_OUTPUT)) is not None:
        outputs = _held(left.value, "outputs")
        messages = outputs.get("messages") if isinstance(outputs, dict) else None
        if isinstance(messages, list):
            reading.final = structured_answer(outputs) or closing_text(read_messages(messages))
        reading.final_fallback = _only_text(outputs)


def _held(value: Any, key: str) -> Any:
    """Return what a wrapper holds under a key; other values unchanged."""
    return value.get(key, value) if isinstance(value, dict) else value


def _only_text(value: object) -> Evidence | None:
    """Return a run's input or output if it is a single text."""
    if isinstance(value, str) and value:
        return Evidence(value)
    if isinstance(value, dict):
        texts = [item for item in value.values() if isinstance(item, str) and item]
        if set(value) == {"args", "kwargs"}:
            given = argument_values(value)
            texts = [item for item in given if isinstance(item, str)]
            return Evidence(texts[0]) if len(texts) == len(given) == 1 else None
        return Evidence(texts[0]) if len(texts) == len(value) == 1 else None
    return None
