"""Chains and graphs of LangChain, read from the spans of three instrumentations."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.builders.span_builders import TraceBuilder, words

Attributes = Callable[[str, Any, Any], dict[str, Any]]


def openinference(kind: str, given: Any, returned: Any) -> dict[str, Any]:
    return {
        "openinference.span.kind": kind,
        "input.value": json.dumps(given),
        "output.value": json.dumps(returned),
    }


def langsmith(kind: str, given: Any, returned: Any) -> dict[str, Any]:
    return {
        "langsmith.span.kind": kind.lower(),
        "gen_ai.prompt": json.dumps(given),
        "gen_ai.completion": json.dumps(returned),
    }


def traceloop(kind: str, given: Any, returned: Any) -> dict[str, Any]:
    spelled = {"CHAIN": "workflow", "TOOL": "tool"}[kind]
    return {
        "traceloop.span.kind": spelled,
        "traceloop.entity.name": "entity",
        "traceloop.entity.input": json.dumps({"inputs": given}),
        "traceloop.entity.output": json.dumps(
            {"outputs": returned} if kind == "CHAIN" else {"output": returned}
        ),
    }


WAYS = pytest.mark.parametrize(
    "way", [openinference, langsmith, traceloop], ids=lambda w: w.__name__
)


@WAYS
@pytest.mark.parametrize("name", ["input", "question", "query"])
def test_the_users_words_are_those_before_the_template(way: Attributes, name: str) -> None:
    trace = TraceBuilder()
    trace.span("chain", None, way("CHAIN", {name: "Why?", "tone": "kind"}, {"messages": []}))
    assert words(trace.turn(), "userContent") == "Why?"


@pytest.mark.parametrize(
    ("variable", "user"),
    [("question", "Why?"), ("topic", "Answer kindly: Why?")],
    ids=["a question", "something else"],
)
def test_the_single_input_of_a_chain_is_the_question_if_its_template_says_so(
    variable: str, user: str
) -> None:
    kind = "openinference.span.kind"
    trace = TraceBuilder()
    root = trace.span("RunnableSequence", None, {kind: "CHAIN", "input.value": "Why?"})
    variables = json.dumps({variable: "Why?"})
    template = {kind: "PROMPT", "input.value": "Why?", "llm.prompt_template.variables": variables}
    trace.span("ChatPromptTemplate", root, template)
    prompt = "llm.input_messages.0.message"
    asked = {f"{prompt}.role": "user", f"{prompt}.content": "Answer kindly: Why?"}
    trace.span("model", root, {kind: "LLM", **asked})
    assert words(trace.turn(), "userContent") == user


@WAYS
def test_a_structured_response_is_the_answer(way: Attributes) -> None:
    messages = [{"type": "human", "content": "Ok?"}, {"type": "ai", "content": ""}]
    returned = {"messages": messages, "structured_response": {"ok": True, "why": "größer"}}
    trace = TraceBuilder()
    trace.span("graph", None, way("CHAIN", {"messages": messages[:1]}, returned))
    assert words(trace.turn(), "finalResponse") == '{"ok":true,"why":"größer"}'


def told(call_id: str, content: str) -> dict[str, Any]:
    return {"type": "tool", "data": {"content": content, "tool_call_id": call_id, "name": "t"}}


@WAYS
@pytest.mark.parametrize(
    ("update", "result"),
    [
        ({"messages": [told("c1", "noted")]}, "noted"),
        ({"messages": []}, None),
        ({"messages": [told("c1", "a"), told("c2", "b")]}, None),
        ([], None),
    ],
    ids=["one message", "no message", "which is not told", "no state"],
)
def test_what_a_command_tells_the_model_is_the_tools_result(
    way: Attributes, update: Any, result: str | None
) -> None:
    command = {"graph": None, "update": update, "resume": None, "goto": []}
    trace = TraceBuilder()
    root = trace.span("graph", None, way("CHAIN", {"input": "Go"}, {"messages": []}))
    trace.span("note", root, way("TOOL", {"x": 1}, command))
    (tool,) = trace.turn()["tools"]
    assert tool["result"] == (command if result is None else result)


def test_langchain_names_its_agent_in_the_metadata_of_a_span() -> None:
    trace = TraceBuilder()
    metadata = {"metadata": json.dumps({"lc_agent_name": "support", "thread_id": "s-1"})}
    root = trace.span(
        "g", None, openinference("CHAIN", {"input": "Go"}, {"messages": []}) | metadata
    )
    trace.span("note", root, openinference("TOOL", {"x": 1}, "done") | metadata)
    (tool,) = trace.turn()["tools"]
    assert tool["agent"] == "support"
