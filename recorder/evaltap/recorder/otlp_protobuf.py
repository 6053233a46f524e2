"""OTLP in protobuf: the same requests as OTLP/JSON, read through the published message types.

The messages come from the package `opentelemetry-proto` (extra `collect`).  A request is turned into
the JSON form and read like any other, so there is one reader of spans, not two.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaltap.schemas.errors import FormatError


def decode_traces(data: bytes, *, path: str = "") -> dict[str, Any]:
    """Return an export request of traces in its JSON form; raise FormatError when it is none."""
    return _json(_parsed(ExportTraceServiceRequest(), data, path))


def decode_logs(data: bytes, *, path: str = "") -> dict[str, Any]:
    """Return an export request of logs in its JSON form; raise FormatError when it is none."""
    return _json(_parsed(ExportLogsServiceRequest(), data, path))


def decode_any(data: bytes, *, path: str = "") -> dict[str, Any]:
    """Return a request of whatever signal in its JSON form; raise FormatError when it is none.

    Nothing in a message says what it holds, and a message of one kind is seldom refused when it is
    read as another.  But a span has two ids where a metric has a name and a log record a time, so
    whichever reading finds its records is the right one.  Metrics are not looked into.
    """
    traces, metrics = ExportTraceServiceRequest(), ExportMetricsServiceRequest()
    if _try(traces, data) is not None and _has_spans(traces):
        return _json(traces)
    if _try(metrics, data) is not None and _has_metrics(metrics):
        return {"resourceMetrics": []}
    logs = ExportLogsServiceRequest()
    if _try(logs, data) is None or not _has_logs(logs):
        raise FormatError(
            "not an OTLP protobuf request of traces, logs or metrics; was it cut off?", path=path
        )
    return _json(logs)


def decode_file(data: bytes, *, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the requests of a file: one message, or several with four bytes of length before each."""
    for message in _messages(data):
        yield decode_any(message, path=path)


def _messages(data: bytes) -> list[bytes]:
    """Cut a file of length-prefixed messages; a file that does not add up is one message."""
    found, position = [], 0
    while position + 4 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        found.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return found if position == len(data) and len(data) > 4 else [data]


def _has_spans(request: ExportTraceServiceRequest) -> bool:
    spans = [
        span
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    return not spans or any(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)


def _has_metrics(request: ExportMetricsServiceRequest) -> bool:
    return all(
        metric.name and metric.WhichOneof("data")
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def _has_logs(request: ExportLogsServiceRequest) -> bool:
    return any(
        record.time_unix_nano or record.observed_time_unix_nano or record.HasField("body")
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    )


def _try(message: Message, data: bytes) -> Message | None:
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message


def _parsed(message: Message, data: bytes, path: str) -> Message:
    if _try(message, data) is None:
        name = type(message).__name__
        raise FormatError(f"not a protobuf {name}; was it cut off?", path=path)
    return message


def _json(message: Message) -> dict[str, Any]:
    document: dict[str, Any] = MessageToDict(message)
    return document
