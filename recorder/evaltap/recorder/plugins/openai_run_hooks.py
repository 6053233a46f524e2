"""OpenAI Agents SDK with tracing off: run hooks that record one run.

    with EvaltapRun(recorder, session_id="s-1") as hooks:
        await Runner.run(agent, "Where is A-100?", hooks=hooks)

Source: `agents.lifecycle.RunHooks` in openai-agents 0.24. The hooks report no errors; the `with`
block catches them. With tracing on, the trace processor sees more.
"""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from agents import Agent, RunContextWrapper, RunHooks, Tool
from agents.items import ModelResponse, TResponseInputItem
from agents.tool_context import ToolContext

from evaltap.recorder.observation import Origin
from evaltap.recorder.plugins.openai_loop import Loop
from evaltap.recorder.plugins.support import guarded, text_of
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import tokens
from evaltap.schemas.chat.evidence import without_block

Context: TypeAlias = RunContextWrapper[Any]  # Any: the caller's own context
AnyAgent: TypeAlias = Agent[Any]  # as above

ORIGIN = Origin(framework="openai-agents", convention="openai-agents-hooks")


class EvaltapRun(RunHooks[Any]):
    """Record one run as one turn of an eval case; create one per run.

    An agent used as a tool appears only as a call: the SDK does not pass hooks on to it.
    """

    def __init__(
        self,
        recorder: Observing,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._recorder = recorder
        self._session_id, self._user_id = session_id, user_id
        self._clock = clock
        self._loop: Loop | None = None

    def __enter__(self) -> "EvaltapRun":
        """Begin the turn."""
        guarded(self, self._begin)
        return self

    def __exit__(self, _: object, error: BaseException | None, *more: object) -> None:
        """End the turn: ok, failed, or incomplete when the run was cancelled."""
        guarded(self, self._end, error)

    async def on_llm_start(
        self,
        context: Context,
        agent: AnyAgent,
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Record a model's input."""
        guarded(self, self._input_received, input_items, system_prompt)

    async def on_llm_end(self, context: Context, agent: AnyAgent, response: ModelResponse) -> None:
        """Record a model's message and usage."""
        guarded(self, self._responded, agent, response)

    async def on_tool_end(
        self, context: Context, agent: AnyAgent, tool: Tool, result: object
    ) -> None:
        """Record a tool's result, or the failure message sent to the model."""
        guarded(self, self._returned, context, tool, result)

    async def on_agent_end(self, context: object, agent: AnyAgent, output: object) -> None:
        """Record the run's result."""
        guarded(self, self._finished, output)

    def _begin(self) -> None:
        self._loop = Loop(
            ObservedRun(
                self._recorder,
                ORIGIN,
                session_id=self._session_id,
                user_id=self._user_id,
                clock=self._clock,
            )
        )

    def _end(self, error: BaseException | None) -> None:
        if self._loop is None:
            return
        if error is not None:
            self._loop.run.end_with(error)
        else:
            self._loop.end()

    def _input_received(self, items: object, instructions: str | None) -> None:
        if self._loop is not None:
            self._loop.record_input(items, instructions)

    def _responded(self, agent: AnyAgent, response: ModelResponse) -> None:
        if self._loop is None:
            return
        model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
        usage = response.usage
        cached = usage.input_tokens_details.cached_tokens
        used = tokens(usage.input_tokens, usage.output_tokens, cached)
        self._loop.run.model_called(
            model if isinstance(model, str) else None,
            tokens=used,
            agent=agent.name,
        )
        self._loop.record_output(response.output, agent.name)

    def _returned(self, context: object, tool: Tool, result: object) -> None:
        if self._loop is None or not isinstance(context, ToolContext):
            return
        key = call_id = context.tool_call_id
        for call in [one for one in self._loop.pending if one.call_id == call_id]:
            self._loop.pending.remove(call)
            key = call.key
        self._loop.run.tool_returned(key, without_block(result))

    def _finished(self, output: object) -> None:
        if self._loop is not None:
            self._loop.run.framework_result(text_of(output))
