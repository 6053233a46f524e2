"""Protobuf is read like its JSON form, and the type of a message is detected from its content."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from evaltap.recorder.telemetry.otlp_json import decode_message, decode_request
from evaltap.schemas.errors import FormatError
from support.builders.telemetry_log import collector_messages

TEXT = st.text(max_size=6)
SCALARS = (
    st.builds(AnyValue)
    | st.builds(AnyValue, string_value=TEXT)
    | st.builds(AnyValue, bool_value=st.booleans())
    | st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1))
    | st.builds(AnyValue, double_value=st.floats())
    | st.builds(AnyValue, bytes_value=st.binary(max_size=6))
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(st.builds(KeyValue, key=TEXT, value=inner), max_size=3)
    lists = st.lists(inner, max_size=3)
    return st.builds(AnyValue, array_value=st.builds(ArrayValue, values=lists)) | st.builds(
        AnyValue, kvlist_value=st.builds(KeyValueList, values=pairs)
    )


VALUES = st.recursive(SCALARS, _containers, max_leaves=8)
ATTRIBUTES = st.lists(st.builds(KeyValue, key=TEXT, value=VALUES), max_size=4)


@given(ATTRIBUTES, ATTRIBUTES, TEXT, st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2]))
def test_spans_are_read_as_from_json(
    attributes: Any, resource: Any, name: str, time_ns: int, code: Any
) -> None:
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    part.resource.attributes.extend(resource)
    scope = part.scope_spans.add()
    scope.scope.name = name
    span = scope.spans.add(
        trace_id=b"\1" * 16, span_id=b"\2" * 8, name=name, start_time_unix_nano=time_ns
    )
    span.status.code = code
    span.status.message = name
    span.attributes.extend(attributes)
    span.events.add(name=name, time_unix_nano=time_ns).attributes.extend(attributes)

    read = list(decode_request(decode_message(request.SerializeToString())))

    assert repr(read) == repr(list(decode_request(MessageToDict(request))))


@given(ATTRIBUTES, VALUES, TEXT, st.integers(1, 2**64 - 1))
def test_logs_are_read_as_from_json(attributes: Any, body: Any, name: str, time_ns: int) -> None:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.scope.name = name
    record = scope.log_records.add(observed_time_unix_nano=time_ns, trace_id=b"\1" * 16)
    record.body.CopyFrom(body)
    record.attributes.extend(attributes)

    read = list(decode_request(decode_message(request.SerializeToString())))

    assert repr(read) == repr(list(decode_request(MessageToDict(request))))


def test_what_a_collector_wrote_is_read_as_from_json() -> None:
    for message in collector_messages():
        kind: Any = ExportLogsServiceRequest
        if message.topic == "otlp_spans":
            kind = ExportTraceServiceRequest
        request = kind.FromString(message.value)

        read = list(decode_request(decode_message(message.value or b"")))

        assert read == list(decode_request(MessageToDict(request))) != []


def test_metrics_are_not_taken_for_logs_or_spans() -> None:
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="a").gauge.data_points.add(time_unix_nano=5, as_double=1.5)
    scope.metrics.add(name="b").histogram.data_points.add(count=3)

    assert decode_message(request.SerializeToString()) == {"resourceMetrics": []}


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_message_that_was_cut_off_is_refused(cut: int) -> None:
    (message, *_) = collector_messages()

    with pytest.raises(FormatError, match="is it truncated"):
        decode_message((message.value or b"")[:-cut])
