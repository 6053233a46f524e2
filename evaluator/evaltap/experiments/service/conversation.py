"""Run the turns of a case with an agent: given ones, or those that a simulated user says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from evaltap.experiments.mocks.declared import Side
from evaltap.experiments.mocks.turn_mocks import Generator, TurnMocks, turn_mocks
from evaltap.experiments.service.capture import CapturedTurn, TurnCapture
from evaltap.experiments.service.runners import AgentCall, Runner, events_of, session_of
from evaltap.experiments.service.simulation import (
    SimulatedConversation,
    SimulationError,
    SimulationStart,
    Simulator,
)
from evaltap.recorder.answering import TOOL_ANSWERS, ToolMiss
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

Turns = Sequence[CaseData | None]


class CaseFailed(Exception):
    """Raised when a case cannot go on; its text is the case's error message."""


@dataclass(slots=True)
class Conversation:
    """The turns of one case with one agent."""

    runner: Runner
    call: AgentCall
    """User, session, state and messages, which all turns share."""
    turn_seconds: float | None = None
    on_turn: Callable[[str, CaseData], None] | None = None
    """Called with the session after each turn that has ended well."""
    tool_mock: Mapping[str, Any] = field(default_factory=dict)
    """The mocks that the case declares for every turn, by side."""
    generator: Generator | None = None
    """Invents the results of mocks with an `llmGenerator`."""
    turns: list[CaseData | None] = field(default_factory=list)
    """Those that have ended well."""
    traces: list[Any] = field(default_factory=list)
    """The execution traces, also of a turn that failed."""
    ended_by: str = ""

    async def run(self, turns: Turns, side: Side) -> None:
        """Run turns with the mocks of one side; raise CaseFailed at the first that fails."""
        if not turns:
            raise CaseFailed("there are no turns to run")
        mocks = [
            (*(((one or {}).get("toolMock") or {}).get(side) or ()), *self._of_case(side))
            for one in turns
        ]
        answers = TurnMocks() if any(mocks) else None
        token = TOOL_ANSWERS.set(answers)
        try:
            async with self._session() as runner:
                for number, (turn, entries) in enumerate(zip(turns, mocks, strict=True), 1):
                    if turn is None or turn.get("userContent") is None:
                        raise CaseFailed(f"turn {number} has no user message")
                    if answers is not None:
                        answers.begin(self._mocks(entries, side))
                    await self._turn(runner, turn["userContent"], answers)
        finally:
            TOOL_ANSWERS.reset(token)

    async def simulate(self, simulator: Simulator, start: SimulationStart, side: Side) -> None:
        """Run what a simulated user says until it ends; raise CaseFailed."""
        try:
            user = simulator.start(start)
        except InputError as error:
            self.ended_by = "simulator_error"
            raise CaseFailed(f"the simulated user cannot start: {error}") from error
        answers = TurnMocks() if self._of_case(side) else None
        token = TOOL_ANSWERS.set(answers)
        try:
            async with self._session() as runner:
                await self._simulated(runner, user, answers, side)
        except SimulationError as error:
            self.turns, self.ended_by = [], "simulator_error"
            raise CaseFailed(str(error)) from error
        except CaseFailed:
            self.ended_by = "agent_error"
            raise
        finally:
            TOOL_ANSWERS.reset(token)
            await user.close()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Runner]:
        try:
            async with session_of(self.runner, self.call) as runner:
                yield runner
        except (CaseFailed, SimulationError):
            raise
        except Exception as error:  # of the agent, as it begins or ends
            raise CaseFailed(f"the agent failed: {type(error).__name__}: {error}") from error

    async def _simulated(
        self, runner: Runner, user: SimulatedConversation, answers: TurnMocks | None, side: Side
    ) -> None:
        answer = ""
        while (text := await user.next(answer)) is not None:
            if answers is not None:
                answers.begin(self._mocks(self._of_case(side), side))
            turn = await self._turn(runner, {"role": "user", "content": text}, answers)
            final = turn.get("finalResponse")
            if final is None:
                self.turns.pop()
                raise CaseFailed("the agent gave no final response to the simulated user")
            answer = str(final.get("content") or "")
        self.ended_by = user.ended_by

    async def _turn(
        self, runner: Runner, message: Mapping[str, Any], answers: TurnMocks | None = None
    ) -> CaseData:
        limit = asyncio.timeout(self.turn_seconds)
        try:
            async with limit:
                found = await captured(runner, replace(self.call, message=message))
        except ToolMiss as miss:
            raise CaseFailed(str(miss)) from miss
        except Exception as error:  # of the agent: it fails its case
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error  # whatever the agent has made of it
            if limit.expired():
                why = f"the agent did not answer within {self.turn_seconds:g} s"
                raise CaseFailed(why) from error
            raise CaseFailed(f"the agent failed: {type(error).__name__}: {error}") from error
        self.traces.append(found.turn.get("executionTrace"))
        if answers is not None and answers.missed:
            raise CaseFailed(str(answers.missed[0]))
        if found.error:
            raise CaseFailed(found.error)
        self.turns.append(found.turn)
        if self.on_turn is not None:
            self.on_turn(self.call.session_id, found.turn)
        return found.turn

    def _of_case(
        self, side: Side
    ) -> Sequence[Any]:  # entries of `toolMock`, here and below as JSON
        return self.tool_mock.get(side) or ()

    def _mocks(self, entries: Sequence[Any], side: Side) -> TurnMocks | None:
        try:
            return turn_mocks(entries, self.generator, side=side)
        except InputError as error:
            raise CaseFailed(f"tool mocks: {error}") from error


async def captured(runner: Runner, call: AgentCall) -> CapturedTurn:
    """Run one turn and return what its events tell; raises what the agent raises."""
    capture = TurnCapture(call.message)
    async with aclosing(events_of(runner, call)) as events:
        async for event in events:
            capture.add(event)
    return capture.end()
