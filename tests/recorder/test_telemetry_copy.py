"""The copy of an SDK span: equal for the fast path and the general path."""

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Status, StatusCode

from evaltap.recorder.telemetry.sdk import _copy_public_fields, copy_fields, span_of


class Shown:
    """A span with nothing but what the SDK shows."""

    def __init__(self, span: ReadableSpan) -> None:
        self.name, self.parent, self.status = span.name, span.parent, span.status
        self.start_time, self.end_time = span.start_time, span.end_time
        self.attributes, self.events = span.attributes, span.events
        self.instrumentation_scope, self.resource = span.instrumentation_scope, span.resource
        self.get_span_context = span.get_span_context


class Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def some_spans() -> list[ReadableSpan]:
    kept = Kept()
    provider = TracerProvider()
    provider.add_span_processor(kept)
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("root", attributes={"a": 1, "b": ("x", "y")}) as root:
        with tracer.start_as_current_span("bare"):
            pass
        root.add_event("said", {"text": "hi"})
        root.set_status(Status(StatusCode.ERROR, "broken"))
    return kept.spans


def test_the_short_way_takes_down_what_the_sdk_shows() -> None:
    for span in some_spans():
        assert copy_fields(span) == _copy_public_fields(span) == copy_fields(Shown(span))


def test_what_was_taken_down_does_not_change_with_the_span_and_reads_as_plain_data() -> None:
    _, root = some_spans()

    fields = copy_fields(root)
    plain = span_of(fields)

    assert plain.attributes == {"a": 1, "b": ["x", "y"]}
    assert [(event.name, event.attributes) for event in plain.events] == [("said", {"text": "hi"})]
    assert (plain.status_code, plain.status_message, plain.scope) == (2, "broken", "t")
    assert plain.attributes is not fields[6]
    assert span_of(fields, lambda scope, name, attributes: False).attributes == {}
