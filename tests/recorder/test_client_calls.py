"""A model call that LangChain's instrumentation and the client's traced apart belongs to one turn."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span

from evaltap.recorder.sources.otlp_files import read_cases
from evaltap.recorder.sources.span_processor import CaseSpanProcessor
from support.builders.inline_recorder import InlineRecorder
from support.builders.span_builders import words

KIND = "openinference.span.kind"


class Agent:
    """Two instrumentations of one provider; LangChain's spans are never the current span."""

    def __init__(self) -> None:
        self.recorder = InlineRecorder()
        provider = TracerProvider()
        provider.add_span_processor(CaseSpanProcessor(recorder=self.recorder))
        self.exported = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self.exported))
        self.langchain = provider.get_tracer("openinference.instrumentation.langchain")
        self.client = provider.get_tracer("openinference.instrumentation.openai")

    @contextmanager
    def run(self, question: str) -> Iterator[Span]:
        """Trace a run."""
        span = self.langchain.start_span(
            "LangGraph", context=Context(), attributes={KIND: "CHAIN", "input.value": question}
        )
        yield span
        span.end()

    def call(self, run: Span, question: str, answer: str, *, tokens: int = 10) -> None:
        """Trace a model call of a run, by both."""
        within = otel.set_span_in_context(run)
        attributes = model(question, answer, tokens)
        outer = self.langchain.start_span("ChatOpenAI", context=within, attributes=attributes)
        self.direct_call(question, answer, tokens=tokens)
        outer.end()

    def direct_call(self, question: str, answer: str, *, tokens: int = 10) -> None:
        """Trace a model call by the client only."""
        attributes = model(question, answer, tokens)
        self.client.start_span("ChatCompletion", context=Context(), attributes=attributes).end()

    def turns(self) -> list[tuple[str | None, str | None, int]]:
        """Return question, answer and tokens of the turns, in order of time."""
        self.recorder.flush()
        found = sorted(self.recorder.cases, key=lambda case: case["creationTimestamp"])
        return [
            (
                words(turn, "userContent"),
                words(turn, "finalResponse"),
                turn["telemetry"]["inputTokens"],
            )
            for case in found
            for turn in case["actualConversation"]
        ]


def facts(cases: Iterable[Mapping[str, Any]]) -> list[tuple[str | None, str | None, int]]:
    """Return question, answer and tokens of turns, in order of time."""
    return [
        (words(turn, "userContent"), words(turn, "finalResponse"), turn["telemetry"]["inputTokens"])
        for case in sorted(cases, key=lambda case: case["creationTimestamp"])
        for turn in case["actualConversation"]
    ]


def model(question: str, answer: str, tokens: int) -> dict[str, Any]:
    return {
        KIND: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": question,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
        "llm.token_count.prompt": tokens,
        "llm.token_count.completion": 5,
    }


def test_a_call_traced_twice_is_one_turn_with_its_tokens_once() -> None:
    agent = Agent()
    with agent.run("Hi") as run:
        agent.call(run, "Hi", "Hello.")
        agent.recorder.flush()  # the client's trace is over, the run's is not

    assert agent.turns() == [("Hi", "Hello.", 10)]


def test_a_direct_call_during_a_run_stays_a_turn() -> None:
    agent = Agent()
    with agent.run("Hi") as run:
        agent.direct_call("Is this spam?", "No.", tokens=3)
        agent.call(run, "Hi", "Hello.")

    assert agent.turns() == [("Hi", "Hello.", 10), ("Is this spam?", "No.", 3)]


@pytest.mark.parametrize("answer", ["Done.", "The same."])
def test_concurrent_runs_keep_their_calls(answer: str) -> None:
    agent = Agent()
    with agent.run("one") as one:
        with agent.run("two") as two:
            agent.call(one, "one", answer)
            agent.call(two, "two", answer)
            agent.call(two, "two", answer)
        agent.call(one, "one", answer)

    assert agent.turns() == [("one", answer, 20), ("two", answer, 20)]


def test_a_call_is_held_no_longer_than_the_runs_that_may_contain_it() -> None:
    agent = Agent()
    with agent.run("first") as first:
        agent.direct_call("alone", "yes")
        agent.recorder.flush()
        assert agent.turns() == []
        with agent.run("later") as later:
            agent.call(first, "first", "done")
            first.end()
            agent.recorder.flush()
            assert ("alone", "yes", 10) in agent.turns()
            agent.call(later, "later", "done")


def test_calls_without_such_a_run_are_turns_at_once() -> None:
    agent = Agent()
    agent.direct_call("one", "1")

    assert agent.turns() == [("one", "1", 10)]


def test_a_run_that_is_cut_off_at_the_end_releases_its_calls() -> None:
    agent = Agent()
    with agent.run("endless"):
        agent.direct_call("alone", "yes")
        agent.recorder.flush()
        agent.recorder.close()

        assert ("alone", "yes", 10) in agent.turns()


def test_calls_in_a_file_belong_to_their_runs_too(tmp_path: Path) -> None:
    agent = Agent()
    agent.direct_call("before", "1")
    for question in ("one", "two", "three"):
        with agent.run(question) as run:
            agent.call(run, question, "Done.")
            agent.call(run, question, "Done.")
    agent.direct_call("after", "2")
    file = tmp_path / "traces.pb"
    file.write_bytes(encode_spans(agent.exported.get_finished_spans()).SerializeToString())

    assert facts(read_cases([file])) == [
        ("before", "1", 10),
        ("one", "Done.", 20),
        ("two", "Done.", 20),
        ("three", "Done.", 20),
        ("after", "2", 10),
    ]
