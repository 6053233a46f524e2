"""The demo's agent: Google ADK, with the script in place of a model."""

import asyncio
import logging
import os
import warnings
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from evaltap.cli.demo.script import SESSIONS, TOOLS, Exchange, Step

APP = "support"
USER = "user-1"


class ScriptedModel(BaseLlm):
    """Answers each request with the next step of the script."""

    model: str = "scripted-1"
    steps: list[Any]
    session_id: str = ""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next step, with the usage that a model would report."""
        number = len(self.steps)
        parts = _parts(self.steps.pop(0), f"{self.session_id}-{number}")
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=40 + 10 * len(llm_request.contents), candidates_token_count=12
            ),
        )


def _parts(step: Step, prefix: str) -> list[types.Part]:
    if isinstance(step, str):
        return [types.Part(text=step)]
    return [
        types.Part(
            function_call=types.FunctionCall(
                id=f"call-{prefix}-{index}", name=call.name, args=dict(call.arguments)
            )
        )
        for index, call in enumerate(step)
    ]


def run_sessions(plugins: list[BasePlugin]) -> None:
    """Run every session of the script through a real ADK runner with these plugins."""
    # ADK writes message content to its spans only with these settings; nothing leaves the process.
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ADK announces its experimental features
        asyncio.run(_run_all(plugins))


async def _run_all(plugins: list[BasePlugin]) -> None:
    for session_id, exchanges in SESSIONS.items():
        await run_session(session_id, exchanges, plugins)


async def run_session(
    session_id: str, exchanges: Sequence[Exchange], plugins: list[BasePlugin]
) -> None:
    """Run one session through a real ADK runner."""
    steps = [step for exchange in exchanges for step in exchange.steps]
    agent = LlmAgent(
        name="support_agent",
        model=ScriptedModel(steps=steps, session_id=session_id),
        instruction="You help customers with their orders.",
        tools=list(TOOLS.values()),
    )
    sessions = InMemorySessionService()
    await sessions.create_session(app_name=APP, user_id=USER, session_id=session_id)
    runner = Runner(app_name=APP, agent=agent, session_service=sessions, plugins=plugins)
    for exchange in exchanges:
        message = types.Content(role="user", parts=[types.Part(text=exchange.user)])
        async for _ in runner.run_async(user_id=USER, session_id=session_id, new_message=message):
            pass
