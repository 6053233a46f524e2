"""OTLP/JSON as specified, and as found in practice."""

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.recorder.telemetry.otlp_json import decode_request, read_otlp_file
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.errors import FormatError, InputError

TRACE, SPAN, PARENT = "5b8aa5a2d2c872e8321cf37308d69df2", "051581bf3cb55c13", "5fb397be34d26b51"


def a_span(**changes: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": SPAN,
        "parentSpanId": PARENT,
        "name": "chat",
        "kind": 1,
        "startTimeUnixNano": "1700000000000000001",
        "endTimeUnixNano": 1700000000000000002,
        "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
        "status": {"code": 2, "message": "no"},
        **changes,
    }


def a_request(*spans: Any) -> dict[str, Any]:
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]
                },
                "scopeSpans": [{"scope": {"name": "lib", "version": "1"}, "spans": list(spans)}],
            }
        ]
    }


def the_span(request: dict[str, Any]) -> Span:
    (span,) = decode_request(request)
    assert isinstance(span, Span)
    return span


def test_a_span_is_decoded_with_resource_scope_and_status() -> None:
    span = the_span(a_request(a_span()))

    assert span == Span(
        TRACE,
        SPAN,
        "chat",
        1700000000000000001,
        1700000000000000002,
        parent_id=PARENT,
        attributes={"gen_ai.operation.name": "chat"},
        status_code=2,
        status_message="no",
        scope="lib",
        resource={"service.name": "shop"},
    )


def test_ids_in_capitals_or_base64_are_the_same_ids() -> None:
    in_base64 = base64.b64encode(bytes.fromhex(TRACE)).decode()
    short = base64.b64encode(bytes.fromhex(SPAN)).decode()

    capital = the_span(a_request(a_span(traceId=TRACE.upper(), spanId=SPAN.upper())))
    encoded = the_span(a_request(a_span(traceId=in_base64, spanId=short)))

    assert (capital.trace_id, capital.span_id) == (encoded.trace_id, encoded.span_id)
    assert encoded.trace_id == TRACE


@pytest.mark.parametrize("absent", ["", "0000000000000000", None])
def test_an_empty_parent_id_is_no_parent(absent: str | None) -> None:
    assert the_span(a_request(a_span(parentSpanId=absent))).parent_id is None


def test_snake_case_keys_and_enum_names_are_accepted() -> None:
    request = {
        "resource_spans": [
            {
                "scope_spans": [
                    {
                        "spans": [
                            {
                                "trace_id": TRACE,
                                "span_id": SPAN,
                                "parent_span_id": PARENT,
                                "name": "chat",
                                "kind": "SPAN_KIND_INTERNAL",
                                "start_time_unix_nano": "1",
                                "end_time_unix_nano": "2",
                                "status": {"code": "STATUS_CODE_ERROR"},
                                "attributes": [{"key": "n", "value": {"int_value": "7"}}],
                            }
                        ]
                    }
                ]
            }
        ]
    }

    span = the_span(request)

    assert (span.parent_id, span.start_ns, span.end_ns) == (PARENT, 1, 2)
    assert (span.status_code, span.attributes) == (2, {"n": 7})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "x"}, "x"),
        ({"stringValue": ""}, ""),
        ({"boolValue": False}, False),
        ({"intValue": "9007199254740993"}, 9007199254740993),
        ({"intValue": 7}, 7),
        ({"doubleValue": 1.5}, 1.5),
        ({"arrayValue": {"values": [{"intValue": "1"}, {}]}}, [1, None]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "b"}}]}}, {"a": "b"}),
        ({"kvlistValue": {"values": []}}, {}),
        ({"bytesValue": "AAE="}, "AAE="),
        ({}, None),
        (None, None),
    ],
)
def test_values_of_all_kinds_are_decoded(value: Any, expected: Any) -> None:
    span = the_span(a_request(a_span(attributes=[{"key": "k", "value": value}])))

    assert span.attributes == {"k": expected}


def test_log_records_are_decoded_with_event_names_of_old_and_new() -> None:
    request = {
        "resourceLogs": [
            {
                "scopeLogs": [
                    {
                        "logRecords": [
                            {"traceId": TRACE, "spanId": SPAN, "eventName": "gen_ai.choice"},
                            {
                                "observedTimeUnixNano": "5",
                                "body": {"stringValue": "hello"},
                                "attributes": [
                                    {"key": "event.name", "value": {"stringValue": "old"}}
                                ],
                            },
                        ]
                    }
                ]
            }
        ]
    }

    new, old = decode_request(request)

    assert isinstance(new, LogRecord)
    assert isinstance(old, LogRecord)
    assert (new.trace_id, new.span_id, new.event_name) == (TRACE, SPAN, "gen_ai.choice")
    assert (old.trace_id, old.time_ns, old.event_name, old.body) == ("", 5, "old", "hello")


def test_metrics_and_unknown_fields_are_ignored() -> None:
    request = {**a_request(a_span(unheardOf={"x": 1}, droppedEventsCount=3)), "resourceMetrics": []}

    assert len(list(decode_request(request))) == 1


def test_a_file_of_json_lines_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    lines = [json.dumps(a_request(a_span(name=name))) for name in ("one", "two")]
    path.write_text("\n".join([lines[0], "", lines[1]]) + "\n")

    assert [span.name for span in read_otlp_file(path) if isinstance(span, Span)] == ["one", "two"]


def test_an_empty_request_holds_nothing() -> None:
    assert list(decode_request({})) == []
    assert list(decode_request({"resourceSpans": []})) == []


@pytest.mark.parametrize(
    ("request_", "place", "problem"),
    [
        ([], "", "an array; expected an object with resourceSpans"),
        ({"evalCases": []}, "", "the keys evalCases; expected resourceSpans"),
        ({"resourceSpans": {}}, "resourceSpans", "an object; expected an array"),
        ({"resourceSpans": [7]}, "resourceSpans[0]", "a number; expected an object"),
        (a_request("x"), "resourceSpans[0].scopeSpans[0].spans[0]", "a string; expected an object"),
        (
            a_request(a_span(), a_span(traceId="xyz")),
            "resourceSpans[0].scopeSpans[0].spans[1].traceId",
            "'xyz'; expected 32 hex digits",
        ),
        (
            a_request(a_span(spanId=None)),
            "resourceSpans[0].scopeSpans[0].spans[0].spanId",
            "None; expected 16 hex digits",
        ),
        (
            a_request(a_span(startTimeUnixNano="soon")),
            "resourceSpans[0].scopeSpans[0].spans[0].startTimeUnixNano",
            "'soon'; expected a whole number",
        ),
    ],
)
def test_a_malformed_request_names_its_place(request_: Any, place: str, problem: str) -> None:
    with pytest.raises(FormatError, match="expected") as caught:
        list(decode_request(request_, path="t.json"))

    assert caught.value.path == "t.json"
    assert caught.value.place == place
    assert problem in caught.value.detail


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", ""),
        ("{\n", "line 2"),
        ('{"resourceSpans": []}\nnonsense\n', "line 2"),
        ('{"resourceSpans": []}\n{"resourceSpans": 5}\n', "line 2: resourceSpans"),
    ],
)
def test_a_malformed_file_names_the_file_and_the_line(
    tmp_path: Path, content: str, place: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)

    with pytest.raises(FormatError) as caught:
        list(read_otlp_file(path))

    assert caught.value.path == str(path)
    assert caught.value.place.startswith(place)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(read_otlp_file(tmp_path / "none.json"))


KEYS = [
    "resource",
    "scope",
    "status",
    "events",
    "attributes",
    "key",
    "value",
    "doubleValue",
    "arrayValue",
    "kvlistValue",
    "values",
    "code",
    "name",
    "links",
    "intValue",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_document_is_decoded_or_refused_with_a_format_error(content: Any) -> None:
    extra = content if isinstance(content, dict) else {"attributes": content}
    document = a_request(a_span(**extra))
    document["resourceSpans"][0].update(extra)
    document["resourceSpans"][0]["scopeSpans"][0].update(extra)

    with suppress(FormatError):
        list(decode_request(document))
