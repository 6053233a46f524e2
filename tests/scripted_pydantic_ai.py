"""A scripted model and tools for real pydantic-ai agents."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, AgentRunResult, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

Step = list[ModelResponsePart] | Exception


def scripted(*steps: Step) -> FunctionModel:
    """Return a model that answers each call with the next step, at once or word by word."""
    left = list(steps)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return ModelResponse(parts=step)

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        for number, part in enumerate(answer(messages, info).parts):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "
            elif isinstance(part, ToolCallPart):
                yield {number: DeltaToolCall(part.tool_name, json.dumps(part.args))}
                yield {number: DeltaToolCall(tool_call_id=part.tool_call_id)}

    return FunctionModel(answer, stream_function=stream)


def ask(agent: Agent[Any, Any], text: str, **options: Any) -> AgentRunResult[Any]:
    """Run an agent in an event loop of its own, which is closed afterwards."""
    return asyncio.run(agent.run(text, **options))


def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "total": 42.5}


def in_stock(sku: str) -> str:
    """Check the stock."""
    if sku.islower():
        raise ModelRetry("sku must be upper case")
    if sku == "X0":
        raise RuntimeError("inventory down")
    return "3"


def called(name: str, call_id: str, **arguments: Any) -> ToolCallPart:
    """Return a tool call of the model."""
    return ToolCallPart(name, arguments, call_id)
