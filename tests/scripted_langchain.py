"""A scripted chat model and tools for real LangChain agents and LangGraph graphs."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

Step = AIMessage | Exception


class ScriptedModel(BaseChatModel):
    """Answers each call with the next step of its script, at once or word by word."""

    steps: list[Any]
    model_name: str = "scripted-1"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """Know what to call without being told."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return ChatResult(generations=[ChatGeneration(message=step)])


class StreamingModel(ScriptedModel):
    """The same, word by word."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        step = self.steps.pop(0)
        chunks = [
            tool_call_chunk(
                name=one["name"], args=json.dumps(one["args"]), id=one["id"], index=number
            )
            for number, one in enumerate(step.tool_calls)
        ]
        words = step.content.split(" ") if step.content else []
        for number, word in enumerate(words):
            text = word if number == 0 else f" {word}"
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))
        message = AIMessageChunk(content="", tool_call_chunks=chunks, chunk_position="last")
        yield ChatGenerationChunk(message=message)


def scripted(*steps: Step) -> ScriptedModel:
    """Return a model that follows the script."""
    return ScriptedModel(steps=list(steps))


def say(text: str = "", *calls: dict[str, Any]) -> AIMessage:
    """Return an answer of the model: words, tool calls, or both."""
    usage = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}
    return AIMessage(text, tool_calls=list(calls), usage_metadata=usage)


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call of the model."""
    return {"name": name, "id": call_id, "args": arguments}


@tool
def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "total": 42.5}


@tool
def in_stock(sku: str) -> str:
    """Check the stock."""
    if sku == "X0":
        raise RuntimeError("inventory down")
    return "3"
