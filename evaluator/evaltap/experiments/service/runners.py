"""The agent as the service calls it: once for each turn, with the same session for all turns of a case."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from evaltap.experiments.agents.functions import called
from evaltap.experiments.mocks.turn_mocks import GeneratorAnswer, GeneratorCall
from evaltap.experiments.service.capture import Event, error_text, final_message


@dataclass(frozen=True, slots=True)
class AgentCall:
    """One turn that an agent is to run."""

    user_id: str
    session_id: str
    message: Mapping[str, Any]
    """The user's message, as in the case."""
    state: Mapping[str, Any] | None = None
    """The run-time state: that of the case if it has one, otherwise that of the options."""
    context_messages: Sequence[Mapping[str, Any]] = ()
    """Messages before the conversation, at every turn: those of the options, then the case's."""
    instruction: str = ""
    """For a model that stands in for a tool: the prompt of the mock."""
    output_schema: Mapping[str, Any] | None = None
    """For such a model: the JSON Schema of the result, which goes into an event's `structuredOutput`."""
    schema_name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else was given to the service for the agent."""

    @property
    def text(self) -> str:
        """What the user says."""
        return str(self.message.get("content") or "")


Runner: TypeAlias = Callable[[AgentCall], Any]
"""An agent: returns its answer as a text, its turn as in a case, None for no answer, or its events, also as a
generator; sync (on a thread of its own) or async.  An exception fails the turn.  Its tools ask `TOOL_ANSWERS`
before they run, as those of `@tool` do.
"""

Session: TypeAlias = Callable[[AgentCall], AbstractAsyncContextManager[Runner]]
"""A runner may have this as `session`: called once for each case, it returns what runs its turns."""


@asynccontextmanager
async def session_of(runner: Runner, call: AgentCall) -> AsyncIterator[Runner]:
    """Return what runs the turns of one case: of the runner's `session`, or the runner itself."""
    session: Session | None = getattr(runner, "session", None)
    if session is None:
        yield runner
        return
    async with session(call) as turns:
        yield turns


async def events_of(runner: Runner, call: AgentCall) -> AsyncGenerator[Event | None, None]:
    """Run an agent and yield its events."""
    returned = await called(_in_full(runner), call)
    if returned is None or isinstance(returned, str):
        message = {"role": "assistant", "content": returned}
        yield {"done": True, "choices": [] if returned is None else [{"message": message}]}
    elif isinstance(returned, Mapping):
        yield {"turn": returned}
    elif hasattr(returned, "__aiter__"):
        async for event in returned:
            yield event
    else:
        for event in returned:
            yield event


def _in_full(runner: Runner) -> Runner:
    """Let a generator end on the thread on which it began."""
    of_object = getattr(type(runner), "__call__", None)  # noqa: B004  # an object's own method
    if inspect.iscoroutinefunction(runner) or inspect.iscoroutinefunction(of_object):
        return runner

    def run(call: AgentCall) -> Any:
        returned = runner(call)
        return [*returned] if isinstance(returned, Iterator) else returned

    return run


def generator_of(
    runner: Runner, new_id: Callable[[], str]
) -> Callable[[GeneratorCall], Awaitable[GeneratorAnswer]]:
    """Return what asks a runner for the results of mocked tools, each in a session of its own."""

    async def generate(asked: GeneratorCall) -> GeneratorAnswer:
        call = AgentCall(
            new_id(),
            new_id(),
            {"role": "user", "content": asked.message},
            instruction=asked.instruction,
            output_schema=asked.schema,
            schema_name=asked.schema_name,
        )
        text, structured = "", None
        async with aclosing(events_of(runner, call)) as events:
            async for event in events:
                if event is None:
                    continue
                if error := error_text(event):
                    raise RuntimeError(error)
                if event.get("structuredOutput") is not None:
                    structured = event["structuredOutput"]
                if (message := final_message(event)) is not None:
                    text = str(message.get("content") or "")
        return GeneratorAnswer(text, structured)

    return generate
