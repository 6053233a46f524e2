"""Tokens from a provider's cache: recorded by model, and included in the input for all providers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.tokens import Tokens, of_anthropic, tokens
from support.builders.span_builders import TraceBuilder

KIND = "openinference.span.kind"
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-4-5"}
USED = {"gen_ai.usage.input_tokens": 1130, "gen_ai.usage.output_tokens": 5}
LANGFUSE = {
    "langfuse.observation.type": "generation",
    "langfuse.observation.model.name": "claude-sonnet-4-5",
}
EXPECTED = {
    "model": "claude-sonnet-4-5",
    "inputTokens": 1130,
    "outputTokens": 5,
    "cachedTokens": 1000,
    "cacheWriteTokens": 100,
}


@pytest.mark.parametrize(
    "attributes",
    [
        CHAT | USED | {"gen_ai.usage.cache_read.input_tokens": 1000,
                       "gen_ai.usage.cache_creation.input_tokens": 100},
        CHAT | USED | {"gen_ai.usage.cache_read_input_tokens": 1000,
                       "gen_ai.usage.cache_write_input_tokens": 100},
        CHAT | USED | {"gen_ai.usage.details.cache_read_tokens": 1000,
                       "gen_ai.usage.details.cache_write_tokens": 100},
        # Not counted to the input: more than it, or needed to make up the total.
        CHAT | {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 5,
                "gen_ai.usage.cache_read_input_tokens": 1000,
                "gen_ai.usage.cache_creation_input_tokens": 100},
        {KIND: "LLM", "llm.model_name": "claude-sonnet-4-5", "llm.token_count.prompt": 1130,
         "llm.token_count.completion": 5, "llm.token_count.prompt_details.cache_read": 1000,
         "llm.token_count.prompt_details.cache_write": 100},
        LANGFUSE | {"langfuse.observation.usage_details": json.dumps(
            {"input": 30, "output": 5, "input_cache_read": 1000, "input_cache_creation": 100})},
    ],
)  # fmt: skip
def test_spans_of_any_convention(attributes: Mapping[str, Any]) -> None:
    trace = TraceBuilder()
    root = trace.span("run", None, {KIND: "AGENT", "input.value": "Hi"})
    trace.span("model", root, attributes)

    telemetry = trace.turn()["telemetry"]

    assert telemetry["usage"] == [EXPECTED]
    assert telemetry["inputTokens"] == 1130


@pytest.mark.parametrize(("total", "expected"), [(470, 320), (None, 320), (170, 20)])
def test_langfuses_usage_types_are_apart_unless_the_total_says_otherwise(
    total: int | None, expected: int
) -> None:
    usage = {"input": 100, "input_cached_tokens": 50, "output": 20, "output_reasoning_tokens": 300}
    stated = usage if total is None else usage | {"total": total}
    trace = TraceBuilder()
    root = trace.span("run", None, {KIND: "AGENT", "input.value": "Hi"})
    details = {"langfuse.observation.usage_details": json.dumps(stated)}
    trace.span("model", root, LANGFUSE | details)

    telemetry = trace.turn()["telemetry"]

    assert (telemetry["inputTokens"], telemetry["outputTokens"]) == (150, expected)


def test_a_stated_total_tells_whether_the_cache_is_counted_to_the_input() -> None:
    assert tokens(2000, 5, 1000, total=2005) == Tokens(2000, 5, 1000, None)
    assert tokens(2000, 5, 1000, total=3005) == Tokens(3000, 5, 1000, None)
    assert tokens(2000, 5, True, -3) == Tokens(2000, 5)
    assert of_anthropic(None) == Tokens(None, None)


def test_recorded_by_hand() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(user="Hi") as turn:
        turn.model("claude-sonnet-4-5", input_tokens=1130, output_tokens=5, cache_read_tokens=1000,
                   cache_write_tokens=100)  # fmt: skip
        turn.respond("Hello")
    recorder.close()

    (case,) = sink.cases
    assert case["actualConversation"][0]["telemetry"]["usage"] == [EXPECTED]


def test_an_intermediate_text_does_not_hide_what_came_from_the_cache() -> None:
    sink = MemorySink()
    with Recorder(sink=sink) as recorder, recorder.turn(user="Hi") as turn:
        turn.model("claude-sonnet-4-5", input_tokens=1130, output_tokens=5, cache_read_tokens=1000,
                   cache_write_tokens=100)  # fmt: skip
        turn.model(text="Let me see.")
        turn.respond("Hello")

    (case,) = sink.cases
    (turn_,) = case["actualConversation"]
    assert turn_["intermediateResponses"][0]["content"] == "Let me see."
    assert turn_["telemetry"]["usage"] == [EXPECTED]


def test_without_a_cache_nothing_more_is_written() -> None:
    trace = TraceBuilder()
    root = trace.span("run", None, {KIND: "AGENT", "input.value": "Hi"})
    trace.span("model", root, CHAT | USED | {"gen_ai.usage.cache_read.input_tokens": 0})

    assert "usage" not in trace.turn()["telemetry"]


def test_claude_code_counts_its_cache_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = {"input_tokens": 30, "output_tokens": 5, "cache_read_input_tokens": 1000,
             "cache_creation_input_tokens": 100}  # fmt: skip
    said = {"id": "m", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage,
            "content": [{"type": "text", "text": "Hello"}]}  # fmt: skip
    lines = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Hi"}},
        # A message has a line for each of its blocks, with its usage so far in each.
        {
            "type": "assistant",
            "uuid": "u2",
            "parentUuid": "u1",
            "message": said | {"content": [], "usage": usage | {"output_tokens": 1}},
        },
        {"type": "assistant", "uuid": "u3", "parentUuid": "u2", "message": said},
    ]
    transcript = tmp_path / "s.jsonl"
    shared = {"sessionId": "s-1", "timestamp": "2026-11-24T10:00:00Z", "version": "2.0", "cwd": "/"}
    transcript.write_text("\n".join(json.dumps(shared | line) for line in lines))

    assert main(["record", "claude-code", str(transcript), "--out", str(tmp_path / "o.json")]) == 0

    (case,) = json.loads((tmp_path / "o.json").read_text())["evalCases"]
    assert case["actualConversation"][0]["telemetry"]["usage"] == [EXPECTED]


def test_large_calls_of_a_model_are_listed_one_by_one_as_their_price_depends_on_their_size() -> (
    None
):
    sink = MemorySink()
    with Recorder(sink=sink) as recorder:
        for session, size in (("small", 10), ("large", 50_000)):
            with recorder.turn(session_id=session, user="hi") as turn:
                turn.model("gemini-2.5-pro", input_tokens=size, output_tokens=1)
                turn.model("gemini-2.5-pro", input_tokens=size, output_tokens=1)

    small, large = (case["actualConversation"][0]["telemetry"] for case in sink.cases)
    call = {"model": "gemini-2.5-pro", "inputTokens": 50_000, "outputTokens": 1}
    assert ("usage" in small, large["usage"]) == (False, [call, call])
    assert (large["inputTokens"], large["models"]) == (100_000, ["gemini-2.5-pro"])


def test_tokens_of_which_a_part_is_missing_are_unknown() -> None:
    def tokens_of(second: dict[str, Any], error: str | None = None) -> int | None:
        trace = TraceBuilder()
        root = trace.span("run", None, {KIND: "AGENT", "input.value": "Hi"})
        trace.span("model", root, CHAT | USED)
        trace.span("model", root, CHAT | second, error=error)
        found: int | None = trace.turn()["telemetry"].get("inputTokens")
        return found

    assert tokens_of(USED) == 2260
    assert tokens_of({}) is None
    assert tokens_of({}, error="rate limit") == 1130, "a failed call used none"


@pytest.mark.parametrize("tokens", [{"input_tokens": 10, "output_tokens": 1}, {}])
def test_a_part_of_the_cost_is_not_told_as_the_cost(tokens: dict[str, Any]) -> None:
    sink = MemorySink()
    with Recorder(sink=sink) as recorder, recorder.turn(session_id="s", user="hi") as turn:
        turn.model("own", input_tokens=10, output_tokens=1, cost_usd=0.5)
        turn.model("other", **tokens)

    (case,) = sink.cases
    assert "costUsd" not in case["actualConversation"][0]["telemetry"]
