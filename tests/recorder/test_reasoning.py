"""Models' reasoning is recorded if configured, and otherwise nowhere."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.genai import types

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.plugins.adk import EvaltapPlugin
from evaltap.recorder.plugins.langchain_values import reasoning_of
from evaltap.recorder.sources.otlp_files import read_cases
from evaltap.schemas.formats.case import EvalCase

THOUGHT = "The user means order A. Ask ann@example.com."


def recorded(**settings: Any) -> dict[str, Any]:
    sink = MemorySink()
    recorder = Recorder(sink=sink, **settings)
    with recorder.turn(session_id="s", user="Where?") as turn:
        turn.model("m", text="Let me see.", reasoning=THOUGHT)
        turn.model("m", reasoning=THOUGHT)
        turn.respond("There.", reasoning=THOUGHT)
    assert recorder.close()
    assert recorder.counters().faults == 0
    (case,) = sink.cases
    assert EvalCase.model_validate(case)
    data: dict[str, Any] = case["actualConversation"][0]
    return data


def test_thoughts_are_not_recorded_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    off = recorded()
    monkeypatch.setenv("EVALTAP_CAPTURE_REASONING", "1")
    on = recorded()

    assert "means order A" not in json.dumps(off)
    assert off["intermediateResponses"] == [{"role": "assistant", "content": "Let me see."}]
    assert "reasoning_content" not in off["finalResponse"]
    thought = on["finalResponse"]["reasoning_content"]
    assert thought.startswith("The user means order A.")
    assert "ann@example.com" not in thought
    assert on["intermediateResponses"] == [
        {"role": "assistant", "content": "Let me see.", "reasoning_content": thought},
        {"role": "assistant", "content": "", "reasoning_content": thought},
    ]
    assert "capture" not in on


def test_thoughts_go_with_the_content() -> None:
    assert "means order" not in json.dumps(recorded(capture_reasoning=True, capture_content=False))


def otlp(output: list[Any]) -> dict[str, Any]:
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Where?"}]),
        "gen_ai.output.messages": json.dumps(output),
    }
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "name": "chat m",
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in given.items()],
    }  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize(
    "thought",
    [
        {"type": "reasoning", "content": "Hm."},
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"text": "Hm.", "thought": True},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    ],
)
def test_thoughts_in_spans(thought: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "traces.otlp.json"
    said = {"role": "assistant", "parts": [thought, {"type": "text", "content": "There."}]}
    file.write_text(json.dumps(otlp([said])))

    (off,) = read_cases([file])
    monkeypatch.setenv("EVALTAP_CAPTURE_REASONING", "1")
    (on,) = read_cases([file])

    answer = {"role": "assistant", "content": "There."}
    assert off["actualConversation"][0]["finalResponse"] == answer
    assert on["actualConversation"][0]["finalResponse"] == {**answer, "reasoning_content": "Hm."}


def test_thoughts_of_langchain() -> None:
    from langchain_core.messages import AIMessage

    block = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    blocks = AIMessage([block, {"type": "text", "text": "There."}])
    added = AIMessage("There.", additional_kwargs={"reasoning_content": "Hm."})

    assert [reasoning_of(one) for one in (blocks, added, AIMessage("There."))] == [
        "Hm.",
        "Hm.",
        None,
    ]


@pytest.mark.parametrize("asked_for", [False, True])
def test_thoughts_of_adk(asked_for: bool) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService

    class Thinking(BaseLlm):
        model: str = "m"

        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            parts = [types.Part(text="Hm.", thought=True), types.Part(text="There.")]
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    async def ask() -> None:
        sessions = InMemorySessionService()
        await sessions.create_session(app_name="shop", user_id="u", session_id="s")
        agent = LlmAgent(name="a", model=Thinking(model="m"))
        app = App(name="shop", root_agent=agent, plugins=[EvaltapPlugin(recorder=recorder)])
        message = types.Content(role="user", parts=[types.Part(text="Where?")])
        runner = Runner(app=app, session_service=sessions)
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
            pass

    sink = MemorySink()
    recorder = Recorder(sink=sink, capture_reasoning=asked_for)
    asyncio.run(ask())
    recorder.close()

    (case,) = sink.cases
    answer = case["actualConversation"][0]["finalResponse"]
    assert answer["content"] == "There."
    assert answer.get("reasoning_content") == ("Hm." if asked_for else None)
