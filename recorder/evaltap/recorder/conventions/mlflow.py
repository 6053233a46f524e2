"""MLflow's spans: type, inputs and outputs as JSON, in the forms of the library that was traced.

Source: the spans of mlflow-tracing 3 (decorators and autologging). Without a type, a root is the run.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.recorder.conventions.chain_values import answer_of, question_of, structured_answer
from evaltap.recorder.conventions.envelopes import take_arguments, take_output, whole_call
from evaltap.recorder.conventions.genai import TOOL_NAME
from evaltap.recorder.conventions.messages import (
    closing_text,
    last_user_text,
    read_generations,
    read_request,
    read_response,
)
from evaltap.recorder.conventions.openinference import METADATA, SESSION_METADATA
from evaltap.recorder.conventions.reading import Kind, Reading, first_text, whole
from evaltap.recorder.telemetry.flat_spans import mapping
from evaltap.recorder.telemetry.mlflow_export import PREFIX, SESSION, USER
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.tokens import tokens
from evaltap.schemas.chat.evidence import Evidence, decode, decode_words
from evaltap.schemas.chat.shapes import read_messages

TYPE: Final = "mlflow.spanType"
INPUTS: Final = "mlflow.spanInputs"
OUTPUTS: Final = "mlflow.spanOutputs"
FUNCTION: Final = "mlflow.spanFunctionName"
MODELS: Final = ("mlflow.llm.model", "model")
USAGE: Final = "mlflow.chat.tokenUsage"
_KINDS: Final[Mapping[str, Kind]] = {
    "AGENT": "agent",
    "CHAIN": "run",
    "CHAT_MODEL": "model",
    "LLM": "model",
    "TOOL": "tool",
    "WORKFLOW": "run",
}
_UNTYPED: Final = ("UNKNOWN", "TASK", "None", "null")


class MLflow:
    """Reads spans with an MLflow type."""

    name = "mlflow"
    marks = (PREFIX,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        if TYPE not in attributes:
            return None
        stated = str(decode(attributes[TYPE]).value)
        root = span.parent_id is None and stated in _UNTYPED
        metadata = mapping(decode(attributes.get(METADATA)).value)  # of LangChain's autologging
        reading = Reading(
            self.name,
            kind="run" if root else _KINDS.get(stated, "other"),
            session_id=first_text(attributes, SESSION) or first_text(metadata, *SESSION_METADATA),
            user_id=first_text(attributes, USER),
        )
        entered, left = decode(attributes.get(INPUTS)), decode(attributes.get(OUTPUTS))
        if reading.kind == "model":
            _read_model(reading, attributes, entered, left)
        elif reading.kind == "tool":
            _read_tool(reading, span, entered, left)
        elif reading.kind in ("agent", "run"):
            if reading.kind == "agent":
                reading.agent_name = span.name
            _read_run(reading, entered.value, decode_words(attributes.get(OUTPUTS)).value)
        return reading


def _read_model(
    reading: Reading, attributes: Mapping[str, object], entered: Evidence, left: Evidence
) -> None:
    stated = (decode(attributes.get(name)).value for name in MODELS)
    reading.model = next((name for name in stated if isinstance(name, str)), None)
    reading.input = read_request(entered.value) or None
    reading.output = read_generations(left.value) or read_response(left.value) or None
    if isinstance(entered.value, dict):
        instructions = entered.value.get("instructions") or entered.value.get("system")
        reading.context = read_messages(instructions, role="system") or None
    reading.note_flaws(input=entered.flaw, output=left.flaw)
    usage = decode(attributes.get(USAGE)).value
    if isinstance(usage, dict):
        reading.use(
            tokens(
                whole(usage.get("input_tokens")),
                whole(usage.get("output_tokens")),
                whole(usage.get("cache_read_input_tokens")),
                whole(usage.get("cache_creation_input_tokens")),
                total=whole(usage.get("total_tokens")),
            )
        )


def _read_tool(reading: Reading, span: Span, entered: Evidence, left: Evidence) -> None:
    function = decode(span.attributes.get(FUNCTION)).value
    name, _, number = span.name.rpartition("_")
    # MLflow 2 numbers spans of the same name: `search_1`.
    # OpenTelemetry's spans keep the name in an attribute; a wrapper around all tools in its inputs.
    stated = first_text(span.attributes, TOOL_NAME)
    reading.tool_name = stated or (name if name == function and number.isdigit() else span.name)
    if (call := whole_call(entered)) is not None:
        reading.tool_name, reading.call_id, reading.arguments = (
            call.name,
            call.call_id,
            call.arguments,
        )
    elif INPUTS in span.attributes:
        reading.arguments = take_arguments(entered)
    if OUTPUTS in span.attributes:
        take_output(reading, left)


def _read_run(reading: Reading, entered: object, value: object) -> None:
    reading.user = last_user_text(read_request(entered)) or question_of(entered)
    if isinstance(entered, dict) and len(entered) == 1:
        (only,) = entered.values()
        reading.user_fallback = Evidence(only) if isinstance(only, str) else None
    if isinstance(value, str):
        reading.final = Evidence(value) if reading.kind == "agent" else None
        reading.final_fallback = Evidence(value)
        return
    if isinstance(value, dict):
        messages = read_messages(value.get("messages")) or read_response(value)
        reading.output = messages or None
        reading.final = structured_answer(value) or closing_text(messages)
        reading.final_fallback = answer_of(value)
