"""The texts that a run states in addition to its models' messages: the user's text and the answer, or a
mark."""

import json
from typing import Any

import pytest

from support.builders.span_builders import TraceBuilder, words

KIND = "openinference.span.kind"
QUESTION, PROMPT = "Is it cold?", "Context: 3 degrees.\nQuestion: Is it cold?"


def model(prompt: str, answer: str | None) -> dict[str, Any]:
    """Return the attributes of a model call."""
    read = {"role": "user", "content": prompt}
    said = {"role": "assistant", "content": answer}
    return {KIND: "LLM"} | {
        f"llm.{side}_messages.0.message.{key}": value
        for side, message in (("input", read), ("output", said))
        for key, value in message.items()
        if value is not None
    }


def turn_of(root: str, *, entered: str, returned: str, said: str | None = "Yes.") -> dict[str, Any]:
    """Return the turn of a run that calls one model with a template around what entered it."""
    trace = TraceBuilder()
    run = trace.span("run", None, {KIND: root, "input.value": entered, "output.value": returned})
    trace.span("model", run, model(PROMPT, said))
    return trace.turn()


def test_a_template_around_what_entered_a_chain_leaves_open_which_the_user_wrote() -> None:
    turn = turn_of("CHAIN", entered=QUESTION, returned="Yes.")

    assert words(turn, "userContent") == PROMPT
    assert turn["capture"]["userContent"] == "ambiguous"


def test_what_was_retrieved_for_is_the_question() -> None:
    trace = TraceBuilder()
    run = trace.span("query", None, {KIND: "CHAIN", "input.value": QUESTION})
    trace.span("retrieve", run, {KIND: "RETRIEVER", "input.value": QUESTION})
    trace.span("model", run, model(PROMPT, "Yes."))

    turn = trace.turn()

    assert words(turn, "userContent") == QUESTION
    assert "userContent" not in turn["capture"]


def test_what_enters_an_agent_is_the_users_message() -> None:
    turn = turn_of("AGENT", entered=QUESTION, returned="Yes.")

    assert words(turn, "userContent") == QUESTION
    assert "userContent" not in turn["capture"]


@pytest.mark.parametrize("root", ["AGENT", "CHAIN"])
def test_a_run_that_returns_something_else_than_its_model_said_is_marked(root: str) -> None:
    turn = turn_of(root, entered=PROMPT, returned="[blocked by policy]")

    assert words(turn, "finalResponse") == "Yes."
    assert turn["capture"]["finalResponse"] == "ambiguous"


def test_a_run_that_returns_the_end_of_what_its_model_wrote_is_not_marked() -> None:
    turn = turn_of("CHAIN", entered=PROMPT, returned="Yes.", said="Thought: easy. Answer: Yes.")

    assert words(turn, "finalResponse") == "Yes."
    assert "finalResponse" not in turn["capture"]


@pytest.mark.parametrize("said", [None, ""])
def test_the_runs_answer_stands_where_the_model_call_shows_no_words(said: str | None) -> None:
    turn = turn_of("AGENT", entered=PROMPT, returned="Yes.", said=said)

    assert words(turn, "finalResponse") == "Yes."
    assert "finalResponse" not in turn["capture"]


def test_the_same_message_again_after_its_answer_is_another_turn() -> None:
    def messages(*said: tuple[str, str]) -> str:
        parts = [(role, [{"type": "text", "content": text}]) for role, text in said]
        return json.dumps([{"role": role, "parts": part} for role, part in parts])

    trace = TraceBuilder()
    root = trace.span("chat", None, {"gen_ai.operation.name": "invoke_workflow"})
    history: list[tuple[str, str]] = []
    for answer in ("First.", "Second."):
        history.append(("user", "Go on"))
        run = trace.span("invoke_agent a", root, {"gen_ai.operation.name": "invoke_agent"})
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": messages(*history),
            "gen_ai.output.messages": messages(("assistant", answer)),
        }
        trace.span("chat", run, chat)
        history.append(("assistant", answer))

    turns = [case["actualConversation"][0] for case in trace.turns()]

    assert [words(turn, "userContent") for turn in turns] == ["Go on", "Go on"]
    assert [words(turn, "finalResponse") for turn in turns] == ["First.", "Second."]


@pytest.mark.parametrize("answer", ["4", "true", '"4"', '{"sum": 4}'])
def test_an_answer_is_the_text_that_an_agent_returned_whatever_it_looks_like(answer: str) -> None:
    trace = TraceBuilder()
    about = {KIND: "AGENT", "input.value": "2 + 2?", "output.mime_type": "text/plain"}
    run = trace.span("agent", None, {**about, "output.value": answer})
    trace.span("add", run, {KIND: "TOOL", "tool.name": "add", "input.value": "{}"})

    turn = trace.turn()

    assert words(turn, "finalResponse") == answer.strip('"')
    assert "finalResponse" not in turn["capture"]


def test_an_answer_of_an_observation_may_be_a_number() -> None:
    observed = {"langfuse.observation.type": "agent", "langfuse.observation.input": "2 + 2?"}
    trace = TraceBuilder()
    trace.span("agent", None, {**observed, "langfuse.observation.output": "4"})

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("2 + 2?", "4")


def test_agents_side_by_side_that_show_no_model_are_turns_with_their_words() -> None:
    trace = TraceBuilder()
    root = trace.span("chat", None, {KIND: "CHAIN", "session.id": "s"})
    for asked, answer in (("2 + 2?", "4"), ("And 3 + 3?", "6")):
        stated = {"input.value": asked, "output.value": answer, "output.mime_type": "text/plain"}
        trace.span("agent", root, {KIND: "AGENT", **stated})

    turns = trace.turns()

    found = [case["actualConversation"][0] for case in turns]
    said = [(words(turn, "userContent"), words(turn, "finalResponse")) for turn in found]
    assert said == [("2 + 2?", "4"), ("And 3 + 3?", "6")]
