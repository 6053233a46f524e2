"""Spans captured from real frameworks give the turns that the driving script made."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.recorder.assembler import Assembler
from evaltap.recorder.files import read_cases
from evaltap.recorder.otlp import read_otlp_file
from evaltap.recorder.telemetry import LogRecord, Span
from evaltap.recorder.trace import observe_trace
from span_facts import captures, differences, files_of


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
