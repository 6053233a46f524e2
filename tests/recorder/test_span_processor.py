"""The span processor over the real SDK: from ended spans to turns, without disturbing the agent."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import attach, detach
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from evaltap.recorder import CaseSpanProcessor, MemorySink, Recorder
from evaltap.recorder.observation import ModelCalled
from evaltap.recorder.sources.span_processor import CaseLogProcessor
from evaltap.recorder.telemetry.spans import Span
from evaltap.recorder.traces.buffer import TraceLimits
from evaltap.recorder.traces.source import TraceSource, without_unread_attributes
from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import DecodedCase, decode_record
from support.builders.inline_recorder import InlineRecorder
from support.builders.span_builders import words
from support.builders.waiting import wait_for

AGENT = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "support",
    "gen_ai.conversation.id": "s1",
}


def message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def chat(question: str, answer: str) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": message("user", question),
        "gen_ai.output.messages": message("assistant", answer),
    }


def run_agent(provider: TracerProvider, question: str = "Hi", answer: str = "Hello.") -> None:
    tracer = provider.get_tracer("test")
    with (
        tracer.start_as_current_span("POST /chat", attributes={"http.route": "/chat"}),
        tracer.start_as_current_span("invoke_agent support", attributes=AGENT),
        tracer.start_as_current_span("chat m", attributes=chat(question, answer)),
    ):
        pass


def processed(recorder: InlineRecorder) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder))
    return provider


def test_a_run_is_recorded_on_the_log_through_the_real_recorder(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(str(log)))

    run_agent(provider)
    provider.shutdown()

    opened = open_log(log, mode="read")
    records = [decode_record(record) for _, record in opened.read(0, 100)]
    opened.close()
    cases = [item.case for item in records if isinstance(item, DecodedCase)]
    (turn,) = cases[0]["actualConversation"]
    assert len(cases) == 1
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")
    assert turn["telemetry"]["status"] == "ok"


def test_force_flush_puts_what_has_ended_on_the_log_without_waiting_for_quiet() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder))
    run_agent(provider)

    assert provider.force_flush()

    assert [case["evalId"] for case in sink.cases] == ["s1"]
    recorder.close()


NEVER_QUIET = TraceLimits(quiet_seconds=3600)


def test_a_turn_seen_from_beginning_to_end_is_written_without_a_wait_for_quiet() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder, limits=NEVER_QUIET))
    run_agent(provider)

    wait_for(lambda: bool(sink.cases))

    (case,) = sink.cases
    assert case["actualConversation"][0]["telemetry"]["status"] == "ok"
    recorder.close()
    assert len(sink.cases) == 1


def test_a_log_record_behind_its_turn_revises_it_and_counts_as_a_revision() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    provider, logs = TracerProvider(), LoggerProvider()
    processor = CaseSpanProcessor(recorder=recorder, limits=NEVER_QUIET)
    provider.add_span_processor(processor)
    logs.add_log_record_processor(processor.log_processor())  # type: ignore[arg-type]  # by its shape
    span = provider.get_tracer("test").start_span(
        "chat m", attributes={"gen_ai.operation.name": "chat"}
    )
    span.end()
    wait_for(lambda: bool(sink.cases))

    logs.get_logger("test").emit(
        event_name="gen_ai.client.inference.operation.details",
        context=set_span_in_context(span),
        attributes={"gen_ai.output.messages": json.loads(message("assistant", "Hello."))},
    )
    provider.force_flush()

    first, second = (case["actualConversation"][0] for case in sink.cases)
    assert (words(first, "finalResponse"), words(second, "finalResponse")) == (None, "Hello.")
    assert first["invocationId"] == second["invocationId"]
    assert [case["source"]["revision"] for case in sink.cases] == [1, 2]
    counters = recorder.counters()
    assert (counters.recorded, counters.delivered) == (2, 2)
    recorder.close()


def test_what_sampling_left_out_at_first_is_kept_when_a_late_span_says_why() -> None:
    sink = MemorySink()
    rules = json.dumps([{"name": "errors", "keep": 1, "error": True}])
    recorder = Recorder(sink=sink, sample_rate=0.0, sample_rules=rules, sample_hold_seconds=0.0)
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder, limits=NEVER_QUIET))
    tracer = provider.get_tracer("test")
    root = tracer.start_span("invoke_agent support", attributes=AGENT)
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order"}
    late = tracer.start_span("execute_tool get_order", set_span_in_context(root), attributes=tool)
    root.end()
    wait_for(lambda: recorder.counters().recorded == 1)

    late.set_status(Status(StatusCode.ERROR, "timed out"))
    late.end()
    provider.force_flush()

    (case,) = sink.cases
    assert (case["source"]["revision"], case["source"]["samplingReason"]) == (2, "errors")
    counters = recorder.counters()
    assert (counters.recorded, dict(counters.dropped)) == (2, {"sampled_out": 1})
    recorder.close()


def test_turns_below_one_remote_trace_are_turns_of_their_own() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder, limits=NEVER_QUIET))
    remote = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    for number in range(3):
        token = attach(set_span_in_context(NonRecordingSpan(remote)))
        run_agent(provider, f"question {number}")
        detach(token)
        wait_for(lambda number=number: len(sink.cases) == number + 1)  # type: ignore[misc]

    recorder.close()

    asked = [words(case["actualConversation"][0], "userContent") for case in sink.cases]
    assert asked == ["question 0", "question 1", "question 2"]
    assert {case["source"]["revision"] for case in sink.cases} == {1}


def test_the_recorder_that_was_passed_in_is_not_closed_with_the_provider() -> None:
    recorder = InlineRecorder()
    provider = processed(recorder)
    run_agent(provider)

    provider.shutdown()

    assert not recorder.closed
    assert len(recorder.cases) == 1


def test_a_run_that_has_not_ended_at_shutdown_is_incomplete() -> None:
    recorder = InlineRecorder()
    provider = processed(recorder)
    tracer = provider.get_tracer("test")
    root = tracer.start_span("invoke_agent support", attributes=AGENT)
    context = set_span_in_context(root)
    tracer.start_span("chat m", context, attributes=chat("Hi", "One moment.")).end()

    recorder.close()

    (case,) = recorder.cases
    (turn,) = case["actualConversation"]
    assert case["source"]["closeReason"] == "shutdown"
    assert (case["evalId"], turn["telemetry"]["status"]) == ("s1", "incomplete")


def test_a_run_below_a_remote_parent_is_recorded() -> None:
    recorder = InlineRecorder()
    provider = processed(recorder)
    remote = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    context = set_span_in_context(NonRecordingSpan(remote))
    provider.get_tracer("test").start_span("invoke_agent a", context, attributes=AGENT).end()

    recorder.flush()

    assert [case["evalId"] for case in recorder.cases] == ["s1"]


def test_a_late_span_revises_the_turn() -> None:
    recorder = InlineRecorder()
    provider = processed(recorder)
    tracer = provider.get_tracer("test")
    root = tracer.start_span("invoke_agent support", attributes=AGENT)
    context = set_span_in_context(root)
    background = tracer.start_span("chat m", context, attributes=chat("Hi", "Hello."))
    root.end()
    recorder.flush()
    background.end()

    recorder.flush()

    first, second = recorder.cases
    assert (first["source"]["revision"], second["source"]["revision"]) == (1, 2)
    (turn,) = second["actualConversation"]
    assert turn["invocationId"] == first["actualConversation"][0]["invocationId"]
    assert words(turn, "finalResponse") == "Hello."
    assert "finalResponse" not in first["actualConversation"][0]


def test_a_root_that_comes_after_its_run_was_read_keeps_the_turn() -> None:
    source, recorder = TraceSource(), InlineRecorder()
    recorder.register(source)
    provider = TracerProvider()
    ended: list[ReadableSpan] = []
    provider.add_span_processor(Collect(ended))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span(
        "run", attributes={"gen_ai.operation.name": "invoke_workflow"}
    ):
        run_agent(provider)
    *early, late = ended
    for span in early:
        recorder.submit(source, span)
    recorder._feed(item for trace in [source.close()] for item in trace)

    recorder.submit(source, late)
    recorder.flush()

    invocations = {case["actualConversation"][0]["invocationId"] for case in recorder.cases}
    assert len(invocations) == 1
    assert recorder.cases[-1]["source"]["revision"] == 2


def test_a_step_of_a_run_that_never_ended_is_not_a_turn_that_went_well() -> None:
    recorder = InlineRecorder()
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder))
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    kind = "openinference.span.kind"
    called = {
        kind: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
    }
    # Attributes are set at the end, so the graph, which is cut off, has none.
    with tracer.start_as_current_span("LangGraph"):
        with tracer.start_as_current_span("model", attributes={kind: "CHAIN"}):
            tracer.start_span("ChatOpenAI", attributes=called).end()
        recorder.close()

    (case,) = recorder.cases
    (turn,) = case["actualConversation"]
    assert turn["telemetry"]["status"] == "incomplete"
    assert case["source"]["closeReason"] == "shutdown"


class Collect(CaseSpanProcessor):
    """Keeps the spans that ended."""

    def __init__(self, ended: list[ReadableSpan]) -> None:
        super().__init__(recorder=InlineRecorder())
        self.ended = ended

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


def test_content_in_log_records_reaches_the_turn() -> None:
    recorder = InlineRecorder()
    provider = TracerProvider()
    processor = CaseSpanProcessor(recorder=recorder)
    provider.add_span_processor(processor)
    logs = LoggerProvider()
    logs.add_log_record_processor(processor.log_processor())  # type: ignore[arg-type]  # by its shape
    tracer = provider.get_tracer("test")
    bare = {"gen_ai.operation.name": "chat"}
    with (
        tracer.start_as_current_span("invoke_agent support", attributes=AGENT),
        tracer.start_as_current_span("chat m", attributes=bare),
    ):
        logs.get_logger("test").emit(
            event_name="gen_ai.client.inference.operation.details",
            attributes={
                key: json.loads(value)
                for key, value in chat("Hi", "Hello.").items()
                if key.endswith("messages")
            },
        )

    recorder.flush()

    (turn,) = recorder.cases[0]["actualConversation"]
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")


def test_spans_that_are_not_about_agents_are_held_without_their_attributes() -> None:
    provider = TracerProvider()
    ended: list[ReadableSpan] = []
    provider.add_span_processor(Collect(ended))
    run_agent(provider)
    source = TraceSource()

    for span in ended:
        source.process(span)

    (trace,) = source.buffer.drain()
    assert [bool(span.attributes) for span in trace.spans] == [True, True, False]
    assert without_unread_attributes(trace.spans[0]) is trace.spans[0]


def test_a_turn_of_a_trace_that_was_too_large_is_incomplete() -> None:
    recorder = InlineRecorder()
    provider = TracerProvider()
    limits = TraceLimits(max_spans=1)
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder, limits=limits))

    run_agent(provider)
    recorder.flush()

    (case,) = recorder.cases
    assert case["source"]["closeReason"] == "evicted"
    assert case["actualConversation"][0]["telemetry"]["status"] == "incomplete"


class Broken(InlineRecorder):
    """A recorder of which every method fails."""

    def submit(self, source: Any, item: Any) -> None:
        raise OSError("no")

    def flush(self, timeout_seconds: float | None = None) -> bool:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_the_agent() -> None:
    recorder = Broken()
    provider = processed(recorder)

    run_agent(provider)
    provider.force_flush()
    provider.shutdown()

    assert {fault.split(":")[0] for fault in recorder.faults} == {
        "CaseSpanProcessor.on_start",
        "CaseSpanProcessor.on_end",
        "CaseSpanProcessor.force_flush",
    }


def test_a_broken_recorder_does_not_disturb_logging() -> None:
    recorder = Broken()

    CaseLogProcessor(recorder, TraceSource()).on_emit(object())

    assert recorder.faults == ["CaseLogProcessor.on_emit: OSError('no')"]


class Unreadable(dict[str, Any]):
    """Attributes that no convention can read."""

    def get(self, key: str, default: Any = None) -> Any:
        raise LookupError("unreadable")


def test_a_trace_that_cannot_be_read_costs_no_other_and_is_reported() -> None:
    source = TraceSource()
    bad = Span("01" * 16, "01" * 8, "x", 1, 2, attributes=Unreadable({"gen_ai.x": 1}))
    good = Span("02" * 16, "02" * 8, "invoke_agent a", 1, 2, attributes=AGENT)
    seen = []

    with pytest.raises(LookupError, match="unreadable"):  # noqa: PT012
        for item in (bad, good):
            source.process(item)
        for observation in source.close():
            seen.append(observation)

    assert {observation.run_id for observation in seen} == {f"{'02' * 16}-{'02' * 8}"}


@pytest.mark.parametrize("item", [object(), None, 7])
def test_an_unknown_item_is_nothing(item: object) -> None:
    assert list(TraceSource().process(item)) == []


@pytest.mark.slow
def test_a_trace_of_ten_thousand_spans_is_read_in_time() -> None:
    provider, ended = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(ended))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("invoke_agent a", attributes=AGENT):
        for _ in range(1_000):
            with tracer.start_as_current_span(
                "chat m", attributes={"gen_ai.operation.name": "chat"}
            ):
                for _ in range(9):
                    attributes = {"http.request.method": "GET", "url.full": "https://x.example"}
                    with tracer.start_as_current_span("GET", attributes=attributes):
                        pass
    source = TraceSource(TraceLimits(quiet_seconds=0))

    began = time.thread_time()
    for item in ended.get_finished_spans():
        source.process(item)
    events = [event for run in source.tick(10**18) for event in run.events]
    seconds = time.thread_time() - began

    assert sum(isinstance(event, ModelCalled) for event in events) == 1_000
    # Some 0.2 s on an idle machine; what is quadratic takes minutes.
    assert seconds < 2.0
