"""The other side of a run: what is said to the agent, and the turns that it is compared with.

What is said are the turns of the case, or what a simulated user says; an agent of its own may give the
expected turns.  A failure of either is not the agent's: it raises `PartnerError`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from evaltap.evaluator.cases.costs import cost_of
from evaltap.experiments.agents.base import Unit
from evaltap.experiments.mocks.tape import Tape
from evaltap.experiments.partners import MOST_TURNS, Partners
from evaltap.experiments.service.runners import AgentCall
from evaltap.experiments.service.simulation import PlayedUser, SimulationError, SimulationStart
from evaltap.experiments.user_check import Exchange
from evaltap.recorder.answering import TOOL_ANSWERS
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import ConversationScenario

EndedBy: TypeAlias = Literal[
    "stop_signal", "limit", "agent_error", "tool_miss", "simulator_error", "reference_error"
]
"""Why a simulated conversation ended; reference_error: the agent that gives the expected turns failed."""
_WHO: Final = {
    "simulator_error": "the simulated user",
    "reference_error": "the agent that gives the expected turns",
}


class PartnerError(Exception):
    """The simulated user, or the agent that gives the expected turns, did not do its part."""

    def __init__(self, ended_by: EndedBy, why: str) -> None:
        super().__init__(why)
        self.ended_by: EndedBy = ended_by


@dataclass(slots=True)
class Dialogue:
    """What is said in one unit; use `start`, `next` until None, `finish`, and `close` in any case."""

    unit: Unit
    partners: Partners
    turn_seconds: float
    tape: Tape | None = None
    """Answers the tool calls of the agent that gives the expected turns; None lets them run."""
    redactor: Redactor | None = None
    """For the expected turns."""
    expected: list[CaseData] = field(default_factory=list)
    ended_by: str = ""
    """Why a simulated conversation ended; empty for given turns."""
    _said: list[str] = field(default_factory=list)
    _heard: list[str] = field(default_factory=list)
    """The replies to what a simulated user said."""
    _scenario: ConversationScenario | None = None
    _given: Iterator[str] = field(default_factory=lambda: iter(()))
    _user_is_done: bool = False
    """Whether all that the user says is known."""
    _user: PlayedUser | None = None
    _usd: float = 0.0

    @property
    def cost_usd(self) -> float:
        """What user and reference have cost so far, as far as it is known."""
        invented = self.tape.invented_usd if self.tape else 0.0
        return self._usd + invented + (self._user.cost_usd if self._user else 0.0)

    async def start(self) -> None:
        """Begin; with the driver `expected`, the user first talks to the agent that gives the reference.

        Turns beside a scenario are said first, as they are; then the user goes on.
        """
        self._given = iter(self.unit.turns)
        if self.unit.scenario is None:
            return
        self._scenario = ConversationScenario.model_validate(self.unit.scenario)
        self._user = self._played(self._scenario)
        if self._scenario.driver == "expected":
            await self._refer(self._simulated)
            self._given, self._user_is_done = iter(self._said), True

    async def next(self, answer: str) -> str | None:
        """Return what is said to the agent after its last answer; None at the end."""
        text = next(self._given, None)
        if text is not None or self._user is None or self._user_is_done:
            return text
        return await self._simulated(answer)

    async def finish(self) -> None:
        """Check the user, if that is wanted; let the other agent answer what was said, if the case wants
        its turns as the expected ones.
        """
        await self._check()
        if not self.unit.expects:
            self.expected = []
        elif not self.expected:
            said = iter(self._said if self._user_is_done else [*self.unit.turns, *self._said])

            async def given(_: str) -> str | None:
                return next(said, None)

            await self._refer(given)

    async def close(self) -> None:
        """Release the user."""
        if self._user is not None:
            await self._user.close()

    async def _check(self) -> None:
        check, scenario = self.partners.check, self._scenario
        if check is None or scenario is None:
            return
        talk = [Exchange(*one) for one in zip(self._said, self._heard, strict=False)]
        left = self.ended_by == "stop_signal"
        try:
            fault, usd = await asyncio.to_thread(check.fault, scenario, talk, left=left)
        except Exception as error:  # not the agent's, whatever it is
            fault, usd = f"it could not be made: {type(error).__name__}: {error}", 0.0
        self._usd += usd
        if fault:
            raise PartnerError("simulator_error", f"the check of the simulated user: {fault}")

    def _played(self, scenario: ConversationScenario) -> PlayedUser:
        assert self.partners.user is not None  # otherwise the experiment was refused
        limit = scenario.max_allowed_invocations or MOST_TURNS
        start = SimulationStart(
            self.unit.eval_id,
            scenario.model_copy(update={"max_allowed_invocations": limit}),
            self.unit.session_id,
            self.unit.state,
            self.unit.trial,
        )
        try:
            return self.partners.user.start(start)
        except InputError as error:
            raise PartnerError(
                "simulator_error", f"the simulated user cannot start: {error}"
            ) from error

    async def _simulated(self, answer: str) -> str | None:
        assert self._user is not None  # made by `start`
        if self._said:
            self._heard.append(answer)
        try:
            text: str | None = await self._in_time(self._user.next(answer), "simulator_error")
        except SimulationError as error:
            raise PartnerError("simulator_error", str(error)) from error
        self.ended_by = self._user.ended_by
        if text is not None:
            self._said.append(text)
        return text

    async def _refer(self, said: Callable[[str], Awaitable[str | None]]) -> None:
        """Run the other agent; in a task of its own, so that its labels and mocks reach nothing else."""
        await asyncio.create_task(self._referred(said))

    async def _referred(self, said: Callable[[str], Awaitable[str | None]]) -> None:
        assert self.partners.expected is not None  # otherwise the experiment was refused
        TOOL_ANSWERS.set(self.tape)
        unit, turns, answer = self.unit, list[CaseData](), ""
        session = f"{unit.session_id}-expected"
        call = AgentCall(unit.user_id, session, {}, unit.state, unit.context)
        try:
            async with self.partners.expected.session(call) as agent:
                while (text := await said(answer)) is not None:
                    if self.tape is not None:
                        self.tape.begin()
                    asked = replace(call, message={"role": "user", "content": text})
                    turn = await self._in_time(agent(asked), "reference_error")
                    if self.tape is not None:
                        self.tape.end()
                    turns.append(turn)
                    self._usd += cost_of(turn.get("telemetry") or {}) or 0.0
                    answer = str((turn.get("finalResponse") or {}).get("content") or "")
        except PartnerError:
            raise
        except Exception as error:  # of the other agent, whatever it is
            raise PartnerError(
                "reference_error",
                f"{_WHO['reference_error']} failed: {type(error).__name__}: {error}",
            ) from error
        self.expected = self._redacted(turns)

    def _redacted(self, turns: list[CaseData]) -> list[CaseData]:
        if self.redactor is None:
            return turns
        if (found := self.redactor({"conversation": turns})) is None:
            raise PartnerError("reference_error", "the expected turns could not be redacted")
        kept: list[CaseData] = found[0]["conversation"]
        return kept

    async def _in_time(self, work: Awaitable[Any], late: EndedBy) -> Any:
        limit = asyncio.timeout(self.turn_seconds)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"{_WHO[late]} did not answer within {self.turn_seconds:g} s"
            raise PartnerError(late, why) from None
