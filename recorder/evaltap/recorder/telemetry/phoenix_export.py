"""Spans exported from Arize Phoenix: from its REST API, or records of its client's data frame.

The API (`GET /v1/projects/{project}/spans`) returns them as `data`, the client by
`get_spans_dataframe().to_json(orient="records")`. Both have OpenInference's attributes: flat, nested, or
one column for each.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from evaltap.recorder.telemetry.flat_spans import (
    Entry,
    entry_of,
    from_milliseconds,
    identifier,
    mapping,
)
from evaltap.schemas.data import JsonObject

_COLUMN: Final = "attributes."
_KIND: Final = "openinference.span.kind"
_IDS: Final = ("trace_id", "span_id")
_JSON: Final = frozenset(
    {
        "document.metadata",
        "llm.prompt_template.variables",
        "metadata",
        "tool.parameters",
        "tool_call.function.arguments",
    }
)
"""Attributes with JSON text, which Phoenix exports decoded."""


def is_phoenix(document: object) -> bool:
    """Check whether a span is from Phoenix; spans of the SDK have no `span_kind`."""
    span = mapping(document)
    return "span_kind" in span and all(_context(span).get(name) for name in _IDS)


def of_spans(spans: list[object]) -> Iterator[Entry]:
    """Yield the spans with flat attributes, and their status and events."""
    for span in map(mapping, spans):
        context, attributes = _context(span), dict(_flat(_attributes(span)))
        if isinstance(span["span_kind"], str):
            attributes.setdefault(_KIND, span["span_kind"])
        parent = span.get("parent_id")
        yield entry_of(
            {},
            "",
            ids=(
                identifier(context["trace_id"], 32),
                identifier(context["span_id"], 16),
                identifier(parent, 16) if parent else "",
            ),
            name=span.get("name"),
            # Data frames write milliseconds.
            times=(
                from_milliseconds(span.get("start_time")),
                from_milliseconds(span.get("end_time")),
            ),
            attributes=attributes,
            events=span.get("events"),
            status={
                "code": 2 if span.get("status_code") == "ERROR" else 0,
                "message": span.get("status_message") or "",
            },
        )


def _context(span: Mapping[str, object]) -> Mapping[str, object]:
    named = {name: span.get(f"context.{name}") for name in _IDS}
    return named if named["trace_id"] else mapping(span.get("context"))


def _attributes(span: Mapping[str, object]) -> JsonObject:
    columns = {
        key.removeprefix(_COLUMN): value for key, value in span.items() if key.startswith(_COLUMN)
    }
    return {**mapping(span.get("attributes")), **columns}


def _flat(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield attributes by full name: `{"llm": {"messages": [{"role": x}]}}` as `llm.messages.0.role`."""
    if isinstance(value, str | int | float):
        yield key, value
    elif isinstance(value, Mapping) and (not key or not key.endswith(tuple(_JSON))):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{key}.{number}")
    elif value is not None:
        yield key, json.dumps(value, ensure_ascii=False)
