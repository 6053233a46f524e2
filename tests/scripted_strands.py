"""A scripted model and tools for real Strands agents."""

import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from strands import Agent, tool
from strands.models.model import Model

Step = list[dict[str, Any]] | Exception
"""Content blocks of one answer, or what the model raises."""


class ScriptedModel(Model):
    """Answers each call with the next step of its script, word by word."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)

    def get_config(self) -> Any:
        """Return the name of the model."""
        return {"model_id": "scripted-1"}

    def update_config(self, **model_config: Any) -> None:
        """Have nothing to configure."""

    async def structured_output(
        self, output_model: Any, prompt: Any, system_prompt: str | None = None, **kwargs: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Give no structured output."""
        yield {}

    async def stream(self, messages: Any, *arguments: Any, **options: Any) -> AsyncIterable[Any]:
        """Yield the events of the next step."""
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        yield {"messageStart": {"role": "assistant"}}
        for block in step:
            start = {k: v for k, v in block.items() if k == "toolUse"}
            use = start.get("toolUse")
            begin = {"toolUse": {k: use[k] for k in ("name", "toolUseId")}} if use else {}
            yield {"contentBlockStart": {"start": begin}}
            if use:
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": use["input"]}}}}
            else:
                for number, word in enumerate(block["text"].split(" ")):
                    text = word if number == 0 else f" {word}"
                    yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
        reason = "tool_use" if any("toolUse" in block for block in step) else "end_turn"
        yield {"messageStop": {"stopReason": reason}}
        usage = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def say(text: str) -> dict[str, Any]:
    """Return words of the model."""
    return {"text": text}


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call of the model."""
    return {"toolUse": {"name": name, "toolUseId": call_id, "input": json.dumps(arguments)}}


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


def agent_of(*steps: Step, name: str = "support", session: str = "s1", **options: Any) -> Agent:
    """Return an agent whose model follows the script."""
    return Agent(
        model=ScriptedModel(*steps),
        name=name,
        callback_handler=None,
        trace_attributes={"session.id": session},
        **options,
    )
