"""The copy of an SDK span: equal for the fast path and the general path."""

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
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
        fields = copy_fields(span)
        short = (*fields[:7], tuple(fields[7]), *fields[8:])
        assert short == _copy_public_fields(span) == copy_fields(Shown(span))


def test_the_events_of_an_ended_span_are_not_copied_on_the_agents_thread() -> None:
    kept = Kept()
    provider = TracerProvider(span_limits=SpanLimits(max_events=1_000))
    provider.add_span_processor(kept)
    with provider.get_tracer("t").start_as_current_span("root") as root:
        for number in range(1_000):
            root.add_event("said", {"number": number})
    [span] = kept.spans
    assert copy_fields(span)[7] is vars(span._events)["_dq"]


def test_the_events_of_an_open_span_are_copied() -> None:
    root = TracerProvider().get_tracer("t").start_span("root")
    root.add_event("first")
    fields = copy_fields(root)
    root.add_event("second")

    assert [event.name for event in span_of(fields).events] == ["first"]


def test_what_was_taken_down_does_not_change_with_the_span_and_reads_as_plain_data() -> None:
    _, root = some_spans()

    fields = copy_fields(root)
    plain = span_of(fields)

    assert plain.attributes == {"a": 1, "b": ["x", "y"]}
    assert [(event.name, event.attributes) for event in plain.events] == [("said", {"text": "hi"})]
    assert (plain.status_code, plain.status_message, plain.scope) == (2, "broken", "t")
    assert plain.attributes is not fields[6]
    assert span_of(fields, lambda scope, name, attributes: False).attributes == {}
