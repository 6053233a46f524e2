"""pydantic-ai in the plugin contract: agents with a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from pydantic_ai import Agent, AgentRunResult, InstrumentationSettings, ModelRetry
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

from evaltap.recorder.plugins.pydantic_ai import EvaltapCapability
from plugin_drivers.driver import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    AgentSpec,
    AnyRecorder,
    Driver,
    Says,
    Step,
    Tool,
    pieces,
    told,
)
from support.builders.witness import Witness


def model(*steps: Step) -> FunctionModel:
    """Return a model that answers each call with the next step, at once or word by word."""
    left = list(steps)

    def next_step() -> Says:
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told(messages)
        step = next_step()
        words = [TextPart(step.text)] if step.text else []
        calls = [ToolCallPart(one.tool, dict(one.arguments), one.call_id) for one in step.calls]
        used = RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        return ModelResponse(parts=[*words, *calls], usage=used)

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        step = next_step()
        for piece in pieces(step.text):
            yield piece
        for place, one in enumerate(step.calls):
            arguments = json.dumps(one.arguments)
            yield {place: DeltaToolCall(one.tool, arguments, tool_call_id=one.call_id)}

    return FunctionModel(answer, stream_function=stream)


def ask(agent: Agent[Any, Any], text: str, **options: Any) -> AgentRunResult[Any]:
    """Run an agent in an event loop of its own, which is closed afterwards."""
    return asyncio.run(agent.run(text, **options))


def in_stock(sku: str) -> str:
    """Check the stock."""
    if sku.islower():
        raise ModelRetry("sku must be upper case")
    if sku == "X0":
        raise RuntimeError("inventory down")
    return "3"


class PydanticAI(Driver):
    """Runs agents with the capability; the spans are the framework's own."""

    name = "pydantic_ai"
    request_argument = "question"
    unknown_tool = "Unknown tool name: 'sell'"
    failed_call = (
        "inventory down",
        {"type": "pydantic_ai.exceptions.ToolFailedError", "message": "inventory down"},
    )

    def __init__(self, recorder: AnyRecorder) -> None:
        super().__init__(recorder)
        self.capability = EvaltapCapability(recorder=recorder)
        self._histories: dict[str, Any] = {}

    def agent(self, spec: AgentSpec) -> Agent[Any, Any]:
        return self.build(spec)

    def build(self, spec: AgentSpec, **options: Any) -> Agent[Any, Any]:
        """Build an agent with some more options of `Agent`."""
        tools = [*spec.tools] if spec.raises else [telling(tool) for tool in spec.tools]
        if spec.delegate is not None:
            tools.append(self._delegate(spec.delegate))
        capabilities = [self.capability]
        return Agent(
            model(*spec.steps),
            name=spec.name,
            instructions=spec.instruction,
            tools=tools,
            capabilities=capabilities,
            **options,
        )

    def _delegate(self, spec: AgentSpec) -> Tool:
        inner = self.agent(spec)

        async def ask(question: str) -> str:
            return str((await inner.run(question)).output)

        ask.__name__ = spec.name
        return ask

    async def ask(
        self, agent: Agent[Any, Any], text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        known = self._histories.get(session)
        options: Any = {"conversation_id": session, "message_history": known}
        if not stream:
            result = await agent.run(text, **options)
            self._histories[session] = result.all_messages()
            return str(result.output)
        async with agent.run_stream(text, **options) as streamed:
            async for _ in streamed.stream_text():
                pass
        return None

    def with_picture(self, text: str, png: bytes) -> Any:
        return [text, BinaryContent(png, media_type="image/png")]

    @contextmanager
    def spans_to(self, witness: Witness) -> Iterator[None]:
        Agent.instrument_all(InstrumentationSettings(tracer_provider=witness.provider))
        yield
        Agent.instrument_all(False)


def telling(tool: Tool) -> Tool:
    """Return a tool that has the model told of its errors."""
    if iscoroutinefunction(tool):
        return tool

    @wraps(tool)
    def tried(*arguments: Any, **named: Any) -> Any:
        try:
            return tool(*arguments, **named)
        except RuntimeError as error:
            raise ToolFailed(str(error)) from error

    return tried
