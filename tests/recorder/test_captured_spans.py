"""Spans captured from real frameworks result in the turns of the driving script."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.recorder import conventions
from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.conventions import DIALECTS, read_span
from evaltap.recorder.conventions.reading import drop_empty_ids, merge
from evaltap.recorder.sources.otlp_files import read_cases
from evaltap.recorder.telemetry.otlp_json import read_otlp_file
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.reader import observe_trace
from support.corpora.span_facts import captures, differences, files_of


@pytest.mark.parametrize("name", captures())
def test_a_capture_gives_the_turns_of_its_script(name: str) -> None:
    cases = list(read_cases(files_of(name)))

    assert differences(name, cases) == []


def test_every_capture_names_its_framework_and_convention() -> None:
    sources = {name: next(iter(read_cases(files_of(name))))["source"] for name in captures()}

    assert {
        name.split("/")[0]: (source["framework"], source["convention"])
        for name, source in sources.items()
    } == {
        "adk-v2span": ("google-adk", "google-adk"),
        "langchain-openinference": ("langchain", "openinference"),
        "openai-agents-openinference": ("openai-agents", "openinference"),
        "pydantic-ai-v5": ("pydantic-ai", "pydantic-ai"),
        "strands-latest": ("strands", "otel-genai"),
    }


def test_tokens_are_counted_once_where_two_levels_state_them() -> None:
    (case,) = read_cases(files_of("strands-latest/single_tool"))
    (other,) = read_cases(files_of("pydantic-ai-v5/single_tool"))

    assert case["actualConversation"][0]["telemetry"]["models"] == ["scripted-1"]
    assert other["actualConversation"][0]["telemetry"]["inputTokens"] == 116
    assert other["actualConversation"][0]["telemetry"]["outputTokens"] == 16


def test_a_nested_agents_tools_belong_to_the_call_that_ran_it() -> None:
    (case,) = read_cases(files_of("adk-v2span/nested_agent_tool"))

    outer, inner = case["actualConversation"][0]["tools"]
    assert (outer["agent"], inner["agent"]) == ("boss", "researcher")
    assert inner["parentId"] == outer["id"] == "call_n1"


@settings(max_examples=60)
@given(name=st.sampled_from(captures()), seed=st.integers(0, 2**32))
def test_shuffled_and_repeated_spans_give_the_same_turns(name: str, seed: int) -> None:
    items = [item for path in files_of(name) for item in read_otlp_file(path)]
    chance = random.Random(seed)
    mixed = items + chance.choices([item for item in items if isinstance(item, Span)], k=3)
    chance.shuffle(mixed)

    assert turns_of(mixed) == turns_of(items)


def turns_of(items: Sequence[Span | LogRecord]) -> list[dict[str, Any]]:
    assembler = Assembler()
    traces = {item.trace_id for item in items if isinstance(item, Span)}
    cases = [
        case
        for trace_id in traces
        for run in observe_trace(
            [item for item in items if isinstance(item, Span) and item.trace_id == trace_id],
            [item for item in items if isinstance(item, LogRecord) and item.trace_id == trace_id],
        )
        for observation in run
        for case in assembler.feed(observation)
    ]
    return sorted(cases, key=lambda case: (case["creationTimestamp"], case["evalId"]))


SPANS = [
    item
    for name in captures()
    for path in files_of(name)
    for item in read_otlp_file(path)
    if isinstance(item, Span)
]
CONVENTIONS = Path(conventions.__file__).parent
NAMES = sorted(
    {key for span in SPANS for key in span.attributes}
    | {"all_messages_events", "gen_ai.prompt.0.content", "gen_ai.completion.0.content"}
    | {
        name
        for path in CONVENTIONS.glob("*.py")
        for name in re.findall(r'"([a-z_]+\.[\w.]*\w)"', path.read_text())
    }
)
"""Every attribute that a dialect may look at: what was captured, and the texts of the dialects."""


VALUES: tuple[str | int, ...] = ("", "tool", "trpc.agent", "pending_span", "[]", '{"a": 1}', 1)


@pytest.mark.slow
def test_no_dialect_that_is_not_asked_knows_anything() -> None:
    blank = replace(SPANS[0], name="x", scope="", attributes={}, events=())
    single = [replace(blank, attributes={name: value}) for name in NAMES for value in VALUES]

    for span in (*single, *(replace(span, events=()) for span in SPANS)):
        readings = [dialect.read(span, ()) for dialect in DIALECTS]
        told = merge(reading for reading in readings if reading is not None)
        asked = read_span(span)
        if told is not None and asked is not None and told.kind in ("model", "agent"):
            # What is left out or set right after the merge does not tell who was asked.
            told.input, told.output = asked.input, asked.output
        if told is not None:
            drop_empty_ids(told)

        assert asked == told, span.attributes
