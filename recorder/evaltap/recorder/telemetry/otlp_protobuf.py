"""OTLP in protobuf: the same requests as OTLP/JSON, read through the published message types.

The messages come from the package `opentelemetry-proto` (extra `collect`). A request is converted
to the JSON form, so there is a single reader of spans.
"""

import base64
import math
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import FormatError

Request = TypeVar("Request", bound=Message)


def decode_traces(data: bytes) -> JsonObject:
    """Return a traces export request in its JSON form; raises FormatError when it is not one."""
    return _traces_json(_parsed(ExportTraceServiceRequest(), data))


def decode_logs(data: bytes) -> JsonObject:
    """Return a logs export request in its JSON form; raises FormatError when it is not one."""
    return _logs_json(_parsed(ExportLogsServiceRequest(), data))


def decode_any(data: bytes, *, path: str = "") -> JsonObject:
    """Return a request of any signal in its JSON form; raises FormatError when it is not one.

    Nothing in a message identifies its type, and parsing it as another type rarely fails. But a
    span has two ids where a metric has a name and a log record a time, so the parse that finds
    records is the right one. Metrics are not read.
    """
    traces, metrics = ExportTraceServiceRequest(), ExportMetricsServiceRequest()
    if _try(traces, data) and _has_spans(traces):
        return _traces_json(traces)
    if _try(metrics, data) and _has_metrics(metrics):
        return {"resourceMetrics": []}
    logs = ExportLogsServiceRequest()
    if not _try(logs, data) or not _has_logs(logs):
        raise FormatError(
            "not an OTLP protobuf request of traces, logs or metrics; is it truncated?", path=path
        )
    return _logs_json(logs)


def messages_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the messages of a file, each with a four-byte length prefix; the last may be truncated."""
    while prefix := file.read(4):
        yield file.read(int.from_bytes(prefix, "big"))


def trace_ids(data: bytes) -> set[str]:
    """Return the trace ids of the spans, or log records, of a request in lower-case hex."""
    traces, logs = ExportTraceServiceRequest(), ExportLogsServiceRequest()
    found: Iterable[Span | LogRecord] = ()
    if _try(traces, data) and _has_spans(traces):
        found = _spans(traces)
    elif _try(logs, data):
        found = _records(logs)
    return {one.trace_id.hex() for one in found}


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


def _records(request: ExportLogsServiceRequest) -> Iterator[LogRecord]:
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            yield from scope.log_records


def _has_spans(request: ExportTraceServiceRequest) -> bool:
    whole = [len(span.trace_id) == 16 and len(span.span_id) == 8 for span in _spans(request)]
    return not whole or any(whole)


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
        for record in _records(request)
    )


def _try(message: Message, data: bytes) -> bool:
    """Return whether the data is a message of this kind, which is then filled."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    return True


def _parsed(message: Request, data: bytes) -> Request:
    if not _try(message, data):
        raise FormatError(f"not a protobuf {type(message).__name__}; is it truncated?")
    return message


def _traces_json(request: ExportTraceServiceRequest) -> JsonObject:
    """Return the parts of a request that the OTLP/JSON reader uses.

    The library's own MessageToDict takes several times as long, because it uses reflection.
    """
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(part.resource.attributes)},
                "scopeSpans": [
                    {"scope": {"name": inner.scope.name}, "spans": list(map(_span, inner.spans))}
                    for inner in part.scope_spans
                ],
            }
            for part in request.resource_spans
        ]
    }


def _logs_json(request: ExportLogsServiceRequest) -> JsonObject:
    """See `_traces_json`."""
    return {
        "resourceLogs": [
            {
                "scopeLogs": [
                    {
                        "scope": {"name": inner.scope.name},
                        "logRecords": list(map(_log, inner.log_records)),
                    }
                    for inner in part.scope_logs
                ]
            }
            for part in request.resource_logs
        ]
    }


def _span(span: Span) -> JsonObject:
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "startTimeUnixNano": span.start_time_unix_nano,
        "endTimeUnixNano": span.end_time_unix_nano,
        "attributes": _attributes(span.attributes),
        "events": [
            {
                "name": event.name,
                "timeUnixNano": event.time_unix_nano,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ],
        "status": {"code": span.status.code, "message": span.status.message},
    }


def _log(record: LogRecord) -> JsonObject:
    return {
        "traceId": record.trace_id.hex(),
        "spanId": record.span_id.hex(),
        "timeUnixNano": record.time_unix_nano,
        "observedTimeUnixNano": record.observed_time_unix_nano,
        # Newer than the oldest supported version of the messages.
        "eventName": getattr(record, "event_name", ""),
        "body": _value(record.body),
        "attributes": _attributes(record.attributes),
    }


def _attributes(attributes: Iterable[KeyValue]) -> list[JsonObject]:
    # OTLP/JSON omits empty fields, so an attribute without a name is not one.
    return [{"key": item.key, "value": _value(item.value)} for item in attributes if item.key]


def _value(value: AnyValue) -> JsonObject:
    if (kind := value.WhichOneof("value")) is None:
        return {}
    content = getattr(value, kind)
    if kind == "array_value":
        return {"arrayValue": {"values": list(map(_value, content.values))}}
    if kind == "kvlist_value":
        return {"kvlistValue": {"values": _attributes(content.values)}}
    if kind == "bytes_value":
        return {"bytesValue": base64.b64encode(content).decode()}
    if kind == "double_value" and not math.isfinite(content):
        # As OTLP/JSON writes them.
        return {"doubleValue": _NOT_FINITE.get(content, "NaN")}
    return {_KINDS.get(kind, kind): content}


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_KINDS = {f"{one}_value": f"{one}Value" for one in ("string", "bool", "int", "double")}
