"""Rows of other tools as one flat row: what LangSmith, Langfuse and OpenAI's evals put into objects."""

from collections.abc import Mapping
from typing import Final

import orjson

from evaltap.schemas.formats.model import Json

Row = Mapping[str, Json]

_HUGGING_FACE: Final = {"id", "input", "messages", "expected_tools", "tools_called", "metadata"}
"""Columns of the folders that `evaltap export --format huggingface` writes."""


def unwrapped(row: Row) -> Row:
    """Return a row with its parts as columns; a row of no known shape as it is."""
    for shape in (_openai, _langsmith, _langfuse, _hugging_face):
        if (found := shape(row)) is not None:
            return found
    return row


def _openai(row: Row) -> Row | None:
    """Read `{"item": {...}, "sample": {...}}`."""
    item, sample = row.get("item"), row.get("sample")
    if not isinstance(item, Mapping) or set(row) - {"item", "sample"}:
        return None
    text = sample.get("output_text") if isinstance(sample, Mapping) else None
    flat = dict(item)
    if {"ideal", "tools"} <= set(item):  # as `evaltap export --format openai-evals` writes them
        flat["expected_tools"] = flat.pop("tools")
        flat.pop("metadata", None)
    return flat if text is None else {**flat, "actual_output": text}


def _langsmith(row: Row) -> Row | None:
    """Read `{"inputs": {"messages"}, "outputs": {"messages"}}`, an example."""
    inputs, outputs = row.get("inputs"), row.get("outputs")
    if not isinstance(inputs, Mapping) or not isinstance(inputs.get("messages"), list):
        return None
    flat = {"id": _id(row), "input": inputs["messages"]}
    answers = outputs.get("messages") if isinstance(outputs, Mapping) else None
    if isinstance(answers, list) and answers and isinstance(answers[-1], Mapping):
        flat["expected_output"] = answers[-1].get("content") or None
        flat["expected_tools"] = answers[-1].get("tool_calls") or []
    return flat


def _langfuse(row: Row) -> Row | None:
    """Read a dataset item: `{"datasetName", "input": {"messages"}, "expectedOutput"}`."""
    given, expected = row.get("input"), row.get("expectedOutput")
    if "datasetName" not in row or not isinstance(given, Mapping):
        return None
    flat: dict[str, Json] = {"id": _id(row), "input": given.get("messages")}
    if isinstance(expected, Mapping):
        flat["expected_output"] = expected.get("content")
        flat["expected_tools"] = expected.get("tools") or []
    return flat


def _hugging_face(row: Row) -> Row | None:
    messages = row.get("messages")
    if not set(row) >= _HUGGING_FACE or not isinstance(messages, str):
        return None
    flat: dict[str, Json] = {"id": _id(row), "input": orjson.loads(messages)}
    for output, tools in (("expected_output", "expected_tools"), ("actual_output", "tools_called")):
        if row.get(output) or row.get(tools) not in (None, "[]"):
            flat[output] = row.get(output) or None
            flat[tools] = row.get(tools)
    return flat


def _id(row: Row) -> Json:
    """Return our own id, which the metadata hold, else the tool's."""
    metadata = row.get("metadata")
    if isinstance(metadata, str) and metadata.startswith("{"):
        metadata = orjson.loads(metadata)
    ours = metadata.get("evaltap") if isinstance(metadata, Mapping) else None
    if not isinstance(ours, Mapping) or not ours.get("evalId"):
        return row.get("id")
    turn = ours.get("turn")
    return ours["evalId"] if turn is None else f"{ours['evalId']}/{turn}"
