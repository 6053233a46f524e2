"""Google ADK in the plugin contract: agents with a scripted model, run by a `Runner`."""

import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from google.adk.agents import LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.llm_agent import ToolUnion
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from evaltap.recorder.plugins.adk import EvaltapPlugin
from plugin_drivers.driver import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    AgentSpec,
    AnyRecorder,
    Call,
    Driver,
    Step,
    pieces,
    told,
)
from plugin_drivers.global_spans import global_spans_to
from support.builders.witness import Witness

CONTENT_ON_SPANS = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}


class ScriptedModel(BaseLlm):
    """Answers each call with the next step of its script, when streaming first word by word."""

    model: str = "scripted-1"
    script: list[Any]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next step."""
        told(llm_request.contents)
        step: Step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        words = [types.Part(text=step.text)] if step.text else []
        for piece in pieces(step.text) if stream else ():
            yield LlmResponse(content=content([types.Part(text=piece)]), partial=True)
        calls = [
            types.FunctionCall(id=one.call_id, name=one.tool, args=dict(one.arguments))
            for one in step.calls
        ]
        yield LlmResponse(
            content=content([*words, *(types.Part(function_call=one) for one in calls)]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=INPUT_TOKENS, candidates_token_count=OUTPUT_TOKENS
            ),
        )


def content(parts: Sequence[types.Part], role: str = "model") -> types.Content:
    """Return a message."""
    return types.Content(role=role, parts=list(parts))


def tell(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, Any]:
    """Tell the model of a tool's error."""
    return {"status": "error", "error": str(error)}


class Adk(Driver):
    """Runs with the plugin; the spans are ADK's own."""

    name = "adk"
    unknown_tool = "Tool 'sell' not found"
    closes_cancelled = "next_message"
    failed_call = ({"status": "error", "error": "inventory down"}, {"type": "TOOL_ERROR"})

    def __init__(self, recorder: AnyRecorder) -> None:
        super().__init__(recorder)
        self.plugin = EvaltapPlugin(recorder=recorder)
        self.sessions = InMemorySessionService()

    def agent(self, spec: AgentSpec) -> Runner:
        app = App(name="shop", root_agent=self._agent(spec), plugins=[self.plugin])
        return Runner(app=app, session_service=self.sessions)

    def _agent(self, spec: AgentSpec) -> LlmAgent:
        tools: list[ToolUnion] = [*spec.tools]
        if spec.delegate is not None:
            tools.append(AgentTool(self._agent(spec.delegate)))
        return LlmAgent(
            name=spec.name,
            description=spec.name,
            instruction=spec.instruction or "Help.",
            model=ScriptedModel(script=list(spec.steps)),
            tools=tools,
            sub_agents=[self._agent(spec.successor)] if spec.successor is not None else [],
            on_tool_error_callback=None if spec.raises else tell,
        )

    async def ask(
        self, agent: Runner, text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        words = None
        async for event in await self.events(agent, text, session, stream=stream):
            parts = event.content.parts if event.content is not None and not event.partial else None
            words = (parts[0].text if parts else None) or words
        return words

    async def events(
        self,
        agent: Runner,
        text: str | list[types.Part],
        session: str = "s1",
        *,
        stream: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Send a message and return the events to come."""
        key: Any = {"app_name": "shop", "user_id": "u", "session_id": session}
        if await self.sessions.get_session(**key) is None:
            await self.sessions.create_session(**key)
        return agent.run_async(
            user_id="u",
            session_id=session,
            new_message=content([types.Part(text=text)] if isinstance(text, str) else text, "user"),
            run_config=RunConfig(
                streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE
            ),
        )

    @contextmanager
    def spans_to(self, witness: Witness) -> Iterator[None]:
        with patch.dict(os.environ, CONTENT_ON_SPANS), global_spans_to(witness):
            yield

    def with_picture(self, text: str, png: bytes) -> list[types.Part]:
        blob = types.Blob(mime_type="image/png", data=png)
        return [types.Part(text=text), types.Part(inline_data=blob)]

    def handover(self, call_id: str, to: str) -> Call:
        return Call(call_id, "transfer_to_agent", {"agent_name": to})
