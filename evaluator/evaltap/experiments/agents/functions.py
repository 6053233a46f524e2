"""Plain functions as agents: `(messages)` or `(messages, turn)`, sync or async, and factories of them.

A callable without required parameters is a factory: it is called for each unit, and what it returns is the
agent. If that is a context manager, or has `aclose` or `close`, it ends with the unit.
"""

import asyncio
import contextvars
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from evaltap.experiments.agents.base import (
    Abilities,
    Agent,
    AgentError,
    AgentSession,
    Asked,
    Unit,
    install_imported,
)
from evaltap.experiments.agents.plain import TIME_IS_UP, record_served, turn_of
from evaltap.recorder import Recorder
from evaltap.recorder.answering import TOOL_ANSWERS, ToolMiss

_LOOK_SECONDS: Final = 60.0
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def required_parameters(function: Callable[..., Any]) -> int:
    """Return how many arguments a call must have; 1 for a callable that does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(one.default is one.empty and one.kind in _POSITIONAL for one in parameters) or sum(
        one.kind is one.VAR_POSITIONAL for one in parameters
    )


class FunctionSession:
    """A conversation with a function, which has no memory but the messages that it is given."""

    def __init__(
        self, function: Callable[..., Any], recorder: Recorder, *, takes_turn: bool
    ) -> None:
        self._function = function
        self._recorder = recorder
        self._takes_turn = takes_turn

    async def answer(self, asked: Asked) -> str | None:
        """Call the function within a recorded turn; its return value is the answer."""
        with turn_of(self._recorder, asked) as turn:
            given = (asked.messages, turn) if self._takes_turn else (asked.messages,)
            try:
                returned = await called(self._function, *given)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                is_ours = task is not None and task.cancelling() > 0
                why = TIME_IS_UP if is_ours else "the agent raised CancelledError"
                raise AgentError(why) from None
            if returned is None and turn.answers == 1:
                return turn.answer
            if turn.answers or returned is None:
                found = "answered twice" if turn.answers else "returned nothing"
                raise AgentError(f"the agent {found}; expected one answer, as a text")
            if not isinstance(returned, str):
                raise AgentError(
                    f"the agent returned {type(returned).__name__}; expected its answer, as a text"
                )
            if not turn.tools:  # an agent within the function has called them
                record_served(turn)
            turn.respond(returned)
            return returned


class FunctionAgent:
    """A function, or a factory that makes one for each unit."""

    abilities = Abilities(context=True, mocks=True)
    """Context messages are among the messages; state is recorded, and read from `turn` by nobody.  Tools are
    those of `turn.run_tool` and `@tool`.
    """

    def __init__(self, function: Callable[..., Any], recorder: Recorder) -> None:
        self._function = function
        self._recorder = recorder
        self._takes_turn = _takes_turn(function)

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation with the function."""
        if TOOL_ANSWERS.get() is not None:
            install_imported()
        yield FunctionSession(self._function, self._recorder, takes_turn=self._takes_turn)


class FactoryAgent:
    """A factory, called for each unit; `adapter` turns what it returns into an agent, or says that only what
    it yields as a context manager can be one, by None.
    """

    def __init__(
        self, factory: Callable[[], Any], adapter: Callable[[Any, bool], Agent | None]
    ) -> None:
        self._factory = factory
        self._adapter = adapter
        self.abilities = Abilities(state=True, context=True, mocks=True)
        """What is not known before `look`: a unit whose agent cannot take it crashes."""

    async def look(self) -> None:
        """Make one agent to know its abilities; what goes wrong is told of the units."""
        with suppress(Exception, asyncio.CancelledError, ToolMiss):
            async with asyncio.timeout(_LOOK_SECONDS), self._made() as agent:
                self.abilities = agent.abilities

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Make an agent and return a conversation with it; both end with the block."""
        async with self._made() as agent, agent.session(unit) as session:
            yield session

    @asynccontextmanager
    async def _made(self) -> AsyncIterator[Agent]:
        async with AsyncExitStack() as stack:
            made = await called(self._factory)
            if (agent := self._adapter(made, False)) is not None:
                yield agent
                return
            if hasattr(made, "__aenter__"):
                made = await stack.enter_async_context(made)
            elif hasattr(made, "__enter__"):
                made = stack.enter_context(made)
            elif (
                close := getattr(made, "aclose", None) or getattr(made, "close", None)
            ) is not None:
                stack.push_async_callback(_closed, close)
            agent = self._adapter(made, True)
            assert agent is not None  # the adapter raises instead
            yield agent


async def _closed(close: Callable[[], Any]) -> None:
    await called(close)


def _takes_turn(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = sum(one.kind in _POSITIONAL for one in parameters)
    return places >= 2 or any(one.kind is one.VAR_POSITIONAL for one in parameters)


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function: an async one here, any other on a thread of its own, which may be abandoned.

    A thread inherits the context.  A copy of the process that a fork in the function made ends when it
    returns.
    """
    process = os.getpid()
    of_object = getattr(type(function), "__call__", None)  # noqa: B004  # an object's own method
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_object):
        returned = await function(*arguments)
    else:
        returned = await _on_a_thread(function, *arguments)
        if isinstance(returned, Awaitable):
            returned = await returned
    if os.getpid() != process:
        os._exit(0)
    return returned


async def _on_a_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context, process = contextvars.copy_context(), os.getpid()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():  # abandoned
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # of the agent: passed on to the unit, whatever it is
            failure = error
            if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt):
                failure = AgentError(f"the agent raised {type(error).__name__}: {error}")
        if os.getpid() != process:
            os._exit(0)
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop has ended: nobody waits for an abandoned agent
            return

    threading.Thread(target=run, name="evaltap-agent", daemon=True).start()
    return await done
