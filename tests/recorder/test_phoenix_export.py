"""Spans exported from Phoenix in its three forms, read as cases."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from support.builders.span_builders import words

TRACE = "ab" * 16
CALL = {"city": "Oslo"}
Span = dict[str, Any]


def span(number: int, kind: str, attributes: dict[str, Any], **more: Any) -> Span:
    """Return a span as Phoenix's REST API has it."""
    return {
        "name": kind.lower(),
        "context": {"trace_id": TRACE, "span_id": f"{number:016x}"},
        "span_kind": kind,
        "parent_id": f"{1:016x}" if number > 1 else None,
        "start_time": f"2026-04-01T00:00:0{number}+00:00",
        "end_time": f"2026-04-01T00:00:0{number if number > 1 else 9}+00:00",
        "status_code": "OK",
        "status_message": "",
        "attributes": attributes,
        "events": [],
        **more,
    }


SPANS = [
    span(1, "AGENT", {"input.value": "Cold?", "output.value": "Yes.", "session.id": "s"}),
    span(
        2,
        "LLM",
        {
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "Cold?",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "weather",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": json.dumps(
                CALL
            ),
        },
    ),
    span(
        3,
        "TOOL",
        {"tool.name": "weather", "input.value": json.dumps(CALL), "output.value": '{"t": 3}'},
    ),
]


def nested(one: Span) -> Span:
    """Return a span with its attributes as a tree."""
    tree: dict[str, Any] = {}
    for name, value in one["attributes"].items():
        inner, (*way, last) = tree, name.split(".")
        for step in way:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return {**one, "attributes": tree}


def record(one: Span) -> Span:
    """Return a span as a record of a data frame, with milliseconds and a list of messages."""
    columns = {f"attributes.{name}": value for name, value in one["attributes"].items()}
    if one["span_kind"] == "LLM":
        call = {
            "tool_call.id": "c1",
            "tool_call.function.name": "weather",
            "tool_call.function.arguments": json.dumps(CALL),
        }
        columns = {
            "attributes.llm.input_messages": [{"message.role": "user", "message.content": "Cold?"}],
            "attributes.llm.output_messages": [{"message.tool_calls": [call]}],
        }
    second = int(one["start_time"][17:19])
    times = {"start_time": 1_775_001_600_000 + second * 1000, "end_time": 1_775_001_700_000}
    ids = {f"context.{name}": value for name, value in one["context"].items()}
    kept = ("name", "span_kind", "parent_id", "status_code", "status_message")
    return {**{key: one[key] for key in kept}, **ids, **times, **columns}


def by_column(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a data frame as `to_json` writes it without `orient`, with the index's column kept."""
    names = dict.fromkeys(name for one in records for name in one)
    index = [one["context.span_id"] for one in records]
    return {
        name: {key: one.get(name) for key, one in zip(index, records, strict=True)}
        for name in names
    }


def recorded(folder: Path, document: object) -> dict[str, Any]:
    (folder / "t.json").write_text(json.dumps(document))
    out = folder / "o.evalset.json"
    assert main(["record", "otlp", str(folder / "t.json"), "--out", str(out)]) == 0
    (case,) = json.loads(out.read_text())["evalCases"]
    assert case["evalId"] == "s"
    (turn,) = case["actualConversation"]
    assert isinstance(turn, dict)
    return turn


@pytest.mark.parametrize(
    "document",
    [
        SPANS,
        {"data": SPANS, "next_cursor": None},
        [*map(nested, SPANS)],
        [*map(record, SPANS)],
        by_column([*map(record, SPANS)]),
    ],
    ids=["list", "rest", "nested", "data-frame", "columns"],
)
def test_spans_of_phoenix_are_read(tmp_path: Path, document: object) -> None:
    turn = recorded(tmp_path, document)

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Cold?", "Yes.")
    (tool,) = turn["tools"]
    assert (tool["id"], tool["name"]) == ("c1", "weather")
    assert (tool["arguments"], tool["result"]) == (CALL, {"t": 3})
    assert turn["telemetry"]["status"] == "ok"


def test_a_run_that_failed_has_failed(tmp_path: Path) -> None:
    raised = {"exception.type": "RateLimitError", "exception.message": "429"}
    event = {"name": "exception", "timestamp": SPANS[0]["end_time"], "attributes": raised}
    attributes = {"input.value": "Cold?", "session.id": "s"}
    root = span(1, "AGENT", attributes, status_code="ERROR", status_message="429", events=[event])

    turn = recorded(tmp_path, [root, *SPANS[1:]])

    assert turn["telemetry"]["status"] == "error"
    assert turn["telemetry"]["error"] == {"type": "RateLimitError", "message": "429"}
