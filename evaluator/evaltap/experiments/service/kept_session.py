"""A session with an agent that outlives the calls that use it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from evaltap.experiments.service.runners import AgentCall, Runner, session_of
from evaltap.recorder.answering import TOOL_ANSWERS

Found = TypeVar("Found")


class KeptSession:
    """A session in a task of its own: it opens there, does its turns one after another, and closes there.

    It closes when nobody has asked for `idle_seconds`, or at `close`.  Answers to the tool calls of an agent
    under test do not reach it.
    """

    def __init__(self, runner: Runner, call: AgentCall, idle_seconds: float | None = None) -> None:
        self._asked: asyncio.Queue[tuple[Callable[[Runner], Awaitable[Any]], asyncio.Future[Any]]]
        self._asked = asyncio.Queue()
        self._idle_seconds = idle_seconds
        self.task = asyncio.create_task(self._serve(runner, call))

    async def use(self, work: Callable[[Runner], Awaitable[Found]]) -> Found:
        """Return what `work` returns, given what runs the session's turns; raises what it raises."""
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((work, done))
        either: set[asyncio.Future[Any]] = {done, self.task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            done.cancel()
            self.task.result()  # raises why the session could not be opened
            raise RuntimeError("the session has ended")
        return done.result()

    def close(self) -> None:
        """Close the session, soon."""
        self.task.cancel()

    async def _serve(self, runner: Runner, call: AgentCall) -> None:
        TOOL_ANSWERS.set(None)
        async with session_of(runner, call) as turns:
            while True:
                try:
                    async with asyncio.timeout(self._idle_seconds):
                        work, done = await self._asked.get()
                except TimeoutError:
                    return
                try:
                    found = await work(turns)
                except Exception as error:  # of the agent
                    if not done.done():
                        done.set_exception(error)
                else:
                    if not done.done():
                        done.set_result(found)
