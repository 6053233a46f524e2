"""Strands Agents in the plugin contract, with and without an event loop."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import contextmanager
from typing import Any

from strands import Agent, tool
from strands.models.model import Model
from strands.multiagent import Swarm

from evaltap.recorder.plugins.strands import EvaltapHooks
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
        told(messages)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        yield {"messageStart": {"role": "assistant"}}
        if step.text:
            yield {"contentBlockStart": {"start": {}}}
            for piece in pieces(step.text):
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
            yield {"contentBlockStop": {}}
        for one in step.calls:
            begun = {"name": one.tool, "toolUseId": one.call_id}
            yield {"contentBlockStart": {"start": {"toolUse": begun}}}
            arguments_text = {"input": json.dumps(one.arguments)}
            yield {"contentBlockDelta": {"delta": {"toolUse": arguments_text}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if step.calls else "end_turn"}}
        usage = {
            "inputTokens": INPUT_TOKENS,
            "outputTokens": OUTPUT_TOKENS,
            "totalTokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


class Strands(Driver):
    """Runs agents and swarms with the hooks; the spans are the framework's own."""

    name = "strands"
    request_argument = "input"
    handover_result = "Handing off to billing: yours"
    unknown_tool = "Unknown tool: sell"
    model_error = "strands.types.exceptions.EventLoopException"
    failed_call = (
        "Error: RuntimeError - inventory down",
        {"type": "RuntimeError", "message": "inventory down"},
    )

    def __init__(self, recorder: AnyRecorder) -> None:
        super().__init__(recorder)
        self.hooks = EvaltapHooks(recorder=recorder)

    def agent(self, spec: AgentSpec) -> Agent | Swarm:
        if spec.successor is None:
            return self.build(spec)
        return Swarm([self.build(spec), self.build(spec.successor)], hooks=[self.hooks])

    def build(self, spec: AgentSpec) -> Agent:
        """Build an agent that is no team."""
        tools: list[Any] = [*map(tool, spec.tools)]
        if spec.delegate is not None:
            tools.append(self.build(spec.delegate))
        return Agent(
            model=ScriptedModel(*spec.steps),
            name=spec.name,
            system_prompt=spec.instruction,
            tools=tools,
            hooks=[self.hooks],
            callback_handler=None,
        )

    async def ask(
        self, agent: Agent | Swarm, text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        options: Any = in_session(agent, session)
        if not stream:
            return str(await agent.invoke_async(text, **options)).strip()
        async for _ in agent.stream_async(text, **options):
            pass
        return None

    @contextmanager
    def spans_to(self, witness: Witness) -> Iterator[None]:
        with global_spans_to(witness):
            yield

    def result(self, value: Any) -> Any:
        return json.dumps(value)

    def with_picture(self, text: str, png: bytes) -> Any:
        return [{"text": text}, {"image": {"format": "png", "source": {"bytes": png}}}]

    def handover(self, call_id: str, to: str) -> Call:
        return Call(call_id, "handoff_to_agent", {"agent_name": to, "message": "yours"})


class BlockingStrands(Strands):
    """The same by a plain call of the agent, as programs without an event loop make it."""

    name = "strands_blocking"

    async def ask(
        self, agent: Agent | Swarm, text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        def run() -> str:
            options: Any = in_session(agent, session)
            return str(agent(text, **options)).strip()

        return await asyncio.to_thread(run)


def in_session(agent: Agent | Swarm, session: str) -> dict[str, Any]:
    """Return the options that name the session; of an agent, set it where the spans see it too."""
    if isinstance(agent, Agent):
        agent.trace_attributes["session.id"] = session
        return {}
    return {"invocation_state": {"session_id": session}}
