"""Spans and log events of CloudWatch, as AWS's distribution of OpenTelemetry (ADOT) and AgentCore write them.

Sources: the log groups `aws/spans` (spans) and `otel-rt-logs` (bodies with `input` and `output` messages),
as single records, as `events` of `aws logs filter-log-events`, and as `results` of Logs Insights.  ADOT moves
the message events of a span into a log event; here they become message events again.
"""

from collections.abc import Iterator, Mapping

from evaltap.recorder.telemetry.flat_spans import decoded, mapping, otlp_value, pairs
from evaltap.schemas.data import JsonObject

_EVENTS = {
    "assistant": "gen_ai.assistant.message",
    "system": "gen_ai.system.message",
    "tool": "gen_ai.tool.message",
    "user": "gen_ai.user.message",
}
_CHOICE = "gen_ai.choice"
_STATUS = {"ERROR": 2, "OK": 1}


def is_cloudwatch(document: object) -> bool:
    """Check whether a document is a record, or a page of log events with at least one."""
    return any(map(_is_record, records_in(document)))


def are_cloudwatch(items: list[object]) -> bool:
    """Check whether a list has records; rows of Logs Insights may also be an agent's own lines."""
    return any(map(is_cloudwatch, items)) and all(
        is_cloudwatch(one) or not {"@message", "ingestionTime"}.isdisjoint(mapping(one))
        for one in items
    )


def as_otlp(document: object) -> JsonObject:
    """Return the OTLP/JSON request with the spans and log events of a document."""
    spans: list[JsonObject] = []
    logs: list[JsonObject] = []
    for record in filter(_is_record, records_in(document)):
        scope = {"name": str(mapping(record.get("scope")).get("name") or "")}
        resource = {"attributes": pairs(mapping(record.get("resource")).get("attributes"))}
        if _is_span(record):
            spans.append(
                {"resource": resource, "scopeSpans": [{"scope": scope, "spans": [_span(record)]}]}
            )
        else:
            held = [*_message_events(record)]
            logs.append({"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": held}]})
    return {"resourceSpans": spans, "resourceLogs": logs}


def records_in(document: object) -> Iterator[JsonObject]:
    """Yield the records in a document: itself, messages of log events, rows of Logs Insights."""
    held = mapping(document)
    listed = held.get("events", held.get("results"))
    for one in listed if isinstance(listed, list) else [document]:
        if isinstance(one, list):  # a row of Logs Insights
            fields = {str(cell.get("field")): cell.get("value") for cell in map(mapping, one)}
            one = {"message": fields.get("@message")}
        shown = mapping(one).get("@message")
        text = mapping(one).get("message", shown)
        record = decoded(text) if isinstance(text, str) else one if shown is None else shown
        if isinstance(record, dict):
            yield record


def _is_record(record: JsonObject) -> bool:
    if not all(
        isinstance(record.get(name), str) and record[name] for name in ("traceId", "spanId")
    ):
        return False
    return _is_span(record) or {"body", "timeUnixNano"} <= record.keys()


def _is_span(record: JsonObject) -> bool:
    return {"name", "startTimeUnixNano"} <= record.keys()


def _span(record: JsonObject) -> JsonObject:
    status = mapping(record.get("status"))
    code = str(status.get("code") or "").upper()
    events = record.get("events")
    kept = ("traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano")
    return {
        **{key: record.get(key) for key in kept},
        "attributes": pairs(record.get("attributes")),
        "events": [
            {**one, "attributes": pairs(one.get("attributes"))}
            for one in (events if isinstance(events, list) else ())
            if isinstance(one, dict)
        ],
        "status": {"code": _STATUS.get(code, 0), "message": status.get("message") or ""},
    }


def _message_events(record: JsonObject) -> Iterator[JsonObject]:
    """Yield a log record for each message in a body, in order."""
    body = mapping(record.get("body"))
    times = ("timeUnixNano", "observedTimeUnixNano")
    known = {key: record[key] for key in ("traceId", "spanId", *times) if key in record}
    about = pairs(record.get("attributes"))
    if {"content", "tool_calls", "message"} & body.keys():
        yield {**known, "eventName": _event(record), "attributes": about, "body": otlp_value(body)}
    for key in ("input", "output"):
        said = mapping(body.get(key)).get("messages")
        for message in map(mapping, said if isinstance(said, list) else ()):
            content = message.get("content")
            given = content if isinstance(content, Mapping) else {"content": content}
            name = _EVENTS.get(str(message.get("role")), "")
            if key == "output":
                name = _CHOICE
                given = given if "message" in given else {"message": given}
            yield {**known, "eventName": name, "attributes": about, "body": otlp_value(given)}


def _event(record: JsonObject) -> str:
    """Return the name of the event of a message, which some versions of ADOT leave out."""
    body, stated = record["body"], mapping(record.get("attributes")).get("event.name")
    if stated in (*_EVENTS.values(), _CHOICE):
        return str(stated)
    if "message" in body:
        return _CHOICE
    role = "assistant" if body.get("tool_calls") else "tool" if "id" in body else ""
    return _EVENTS.get(role, "")
