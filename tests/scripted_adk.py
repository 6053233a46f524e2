"""Google ADK agents driven by a script instead of a model, and ways to run them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

Step = Sequence[types.Part] | Exception


def say(text: str) -> types.Part:
    """Return words of the model."""
    return types.Part(text=text)


def call(name: str, call_id: str, **arguments: Any) -> types.Part:
    """Return a tool call of the model."""
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=dict(arguments)))


class ScriptedModel(BaseLlm):
    """Answers each call with the next step of its script; an exception is raised."""

    model: str = "scripted-1"
    script: list[Any]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next step; when streaming, first word by word."""
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=11, candidates_token_count=5
        )
        words = step[0].text.split(" ") if stream and step[0].text else []
        for number, word in enumerate(words):
            piece = word if number == 0 else f" {word}"
            yield LlmResponse(content=types.Content(role="model", parts=[say(piece)]), partial=True)
        yield LlmResponse(
            content=types.Content(role="model", parts=list(step)), usage_metadata=usage
        )


def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "status": "delivered", "total": 42.5}


def get_weather(city: str, units: str = "C") -> str:
    """Tell the weather."""
    return {"Paris": "14C rain", "Tokyo": "22C sunny"}[city]


def flaky(sku: str) -> str:
    """Check the stock, and fail."""
    raise RuntimeError(f"inventory backend down for {sku}")


def soft(sku: str) -> dict[str, Any]:
    """Check the stock, and say that it failed."""
    return {"status": "error", "error": f"inventory backend down for {sku}"}


def scripted(*steps: Step, name: str = "support_agent", **options: Any) -> LlmAgent:
    """Return an agent whose model follows the script."""
    return LlmAgent(
        name=name, model=ScriptedModel(script=list(steps)), instruction="Help.", **options
    )


class Conversation:
    """One agent with its runner and sessions."""

    def __init__(self, agent: LlmAgent, plugins: list[BasePlugin], app: str = "shop") -> None:
        self.app = app
        self.sessions = InMemorySessionService()
        self.runner = Runner(
            app=App(name=app, root_agent=agent, plugins=plugins), session_service=self.sessions
        )

    async def ask(self, session_id: str, text: str, *, stream: bool = False) -> None:
        """Send one user message and read all events; what the agent raises comes through."""
        async for _ in await self.events(session_id, text, stream=stream):
            pass

    async def events(
        self, session_id: str, text: str, *, stream: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Send one user message and return the events to come."""
        known = await self.sessions.get_session(
            app_name=self.app, user_id="u-1", session_id=session_id
        )
        if known is None:
            await self.sessions.create_session(
                app_name=self.app, user_id="u-1", session_id=session_id
            )
        mode = StreamingMode.SSE if stream else StreamingMode.NONE
        return self.runner.run_async(
            user_id="u-1",
            session_id=session_id,
            new_message=types.Content(role="user", parts=[say(text)]),
            run_config=RunConfig(streaming_mode=mode),
        )

    def say_all(self, session_id: str, *texts: str, stream: bool = False) -> None:
        """Send messages one after the other, in a new event loop."""

        async def talk() -> None:
            for text in texts:
                await self.ask(session_id, text, stream=stream)

        asyncio.run(talk())
