"""Simulated users: a model that plays the user of a `conversationScenario` by its plan."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from evaltap.evaluator.cases.costs import cost_of
from evaltap.experiments.service.capture import COMPLETION, Event, error_text, final_message
from evaltap.experiments.service.kept_session import KeptSession
from evaltap.experiments.service.runners import AgentCall, Runner, events_of
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import ConversationScenario

TRIAL: Final = "trial"
"""The run option by which the simulator's runner is told the trial of the case, from 1."""
_CLOSE_SECONDS: Final = 2.0


class SimulationError(Exception):
    """Raised when the simulated user does not say anything usable: not the agent's fault."""


@dataclass(frozen=True, slots=True)
class SimulationStart:
    """The case whose user is to be simulated."""

    eval_case_id: str
    scenario: ConversationScenario
    session_id: str
    """Of the agent that the user talks to."""
    state: Mapping[str, Any] | None = None
    trial: int = 1
    """Which repeat of the case this is."""


class SimulatedConversation(Protocol):
    """One conversation of a simulated user."""

    @property
    def ended_by(self) -> str:
        """Why it ended: stop_signal or limit; empty while it goes on."""
        ...

    async def next(self, last_response: str) -> str | None:
        """Return what the user says to the agent's last answer, empty at the start; None at the end.

        Raises SimulationError.
        """

    async def close(self) -> None:
        """Release what belongs to the conversation."""


class Simulator(Protocol):
    """Simulates users."""

    def start(self, start: SimulationStart) -> SimulatedConversation:
        """Begin the conversation of a case; raise InputError for a scenario that cannot be played."""
        ...


class UserSimulator:
    """Simulates users with any runner.  What is given here comes before the scenario's own.

    A blank `stop_signal` takes the scenario's away; `max_turns` 0 means no limit.  `system_prompt` returns
    the model's instruction for a scenario.  A blank reply is asked for again, `retries` times.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        stop_signal: str | None = None,
        max_turns: int | None = None,
        system_prompt: Callable[[ConversationScenario], str] | None = None,
        user_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        session_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        retries: int = 0,
    ) -> None:
        if max_turns is not None and max_turns < 0:
            raise InputError(f"max_turns is {max_turns}; expected 0 (no limit) or more")
        self._runner = runner
        self._stop_signal, self._max_turns = stop_signal, max_turns
        self._system_prompt = system_prompt or default_system_prompt
        self._user_id, self._session_id = user_id, session_id
        self._retries = retries

    def start(self, start: SimulationStart) -> "PlayedUser":
        given = start.scenario
        signal = given.stop_signal if self._stop_signal is None else self._stop_signal
        limit = given.max_allowed_invocations if self._max_turns is None else self._max_turns
        scenario = given.model_copy(
            update={"stop_signal": signal.strip(), "max_allowed_invocations": limit or 0}
        )
        if problem := scenario_problem(scenario):
            raise InputError(problem)
        prompt = self._system_prompt(scenario)
        if not prompt.strip():
            raise InputError("the simulator's system prompt is blank")
        call = AgentCall(
            self._user_id(),
            self._session_id(),
            {},
            state=dict(start.state or {}) if getattr(self._runner, "takes_state", True) else None,
            context_messages=({"role": "system", "content": prompt},),
            options={TRIAL: start.trial},
        )
        if not call.user_id or not call.session_id:
            raise InputError("the simulator's user id or session id is blank")
        return PlayedUser(self._runner, scenario, call, self._retries)


class PlayedUser:
    """One conversation of a `UserSimulator`."""

    ended_by = ""
    cost_usd = 0.0
    """What the runner has cost, as far as its turns tell."""

    def __init__(
        self, runner: Runner, scenario: ConversationScenario, call: AgentCall, retries: int
    ) -> None:
        self._runner, self._scenario, self._call = runner, scenario, call
        self._session: KeptSession | None = None
        self._retries = retries
        self._said = 0

    async def next(self, last_response: str) -> str | None:
        """Return what the user says to the agent's last answer; None at the end."""
        limit = self._scenario.max_allowed_invocations
        if limit and self._said >= limit:
            self.ended_by = "limit"
            return None
        if not self._said and self._scenario.starting_prompt:
            text = self._scenario.starting_prompt
        else:
            text = await self._reply(last_response)
        signal = self._scenario.stop_signal
        is_first = not self._said and bool(self._scenario.starting_prompt)
        if signal and not is_first and text.strip().casefold() == signal.casefold():
            self.ended_by = "stop_signal"
            return None
        self._said += 1
        return text

    async def close(self) -> None:
        """End the session; one that hangs is abandoned."""
        if self._session is not None:
            self._session.close()
            await asyncio.wait({self._session.task}, timeout=_CLOSE_SECONDS)

    async def _reply(self, last_response: str) -> str:
        """Return what the model says, which is not blank."""
        for _ in range(1 + self._retries):
            try:
                call = replace(self._call, message={"role": "user", "content": last_response})
                self._session = self._session or KeptSession(self._runner, self._call)
                text = self._said_in(await self._session.use(partial(_events, call=call)))
            except SimulationError:
                raise
            except Exception as error:  # of the user's model
                raise SimulationError(
                    f"the simulator failed: {type(error).__name__}: {error}"
                ) from error
            if text.strip():
                return text
        raise SimulationError("the simulator said nothing; expected a message or the stop signal")

    def _said_in(self, events: Sequence[Event | None]) -> str:
        """Return the reply: the root's before those of others, and errors before replies."""
        told = [*filter(None, events)]
        self.cost_usd += sum(map(_cost, told))
        if errors := [*filter(None, map(error_text, told))]:
            raise SimulationError(f"the simulator failed: {'; '.join(errors)}")
        root, replies = "", {}
        for event in told:
            said, ends = event.get("invocationId") or "", event.get("object") == COMPLETION
            if said and (not root or (ends and event.get("done"))):
                root = said
            message, is_whole = final_message(event), "turn" in event
            if is_whole or message is not None:
                place = COMPLETION if is_whole or ends else said
                replies[place] = str((message or {}).get("content") or "")
        return next(filter(None, map(replies.get, (COMPLETION, root, ""))), "")


def _cost(event: Event) -> float:
    turn = event.get("turn") or {}
    return cost_of(turn.get("telemetry") or {}) or 0.0


async def _events(turns: Runner, call: AgentCall) -> list[Event | None]:
    async with aclosing(events_of(turns, call)) as events:
        return [event async for event in events]


def scenario_problem(scenario: ConversationScenario) -> str:
    """Return why a scenario cannot be played; empty if it can."""
    limit = scenario.max_allowed_invocations or 0
    if not scenario.conversation_plan.strip():
        return "the conversationPlan is blank; say what the user wants"
    if limit < 0:
        return f"maxAllowedInvocations is {limit}; expected 0 (no limit) or more"
    if not scenario.stop_signal.strip() and not limit:
        return "nothing ends the conversation; give stopSignal or a limit"
    if scenario.driver not in ("", "actual", "expected"):
        return f"unknown driver {scenario.driver!r}; expected actual or expected"
    return ""


def default_system_prompt(scenario: ConversationScenario) -> str:
    """Return the instruction of a model that plays the user of a scenario."""
    rules = [
        "Write exactly one message, in the words that this user would naturally use.",
        "The plan below is what you go by first.",
        "Keep to the goal, the limits and what was said before.",
        "Choose the step that helps most: answer a question, give a missing detail, ask for the next action,"
        " correct a mistake.",
        "Be brief, but say enough for the assistant to go on.",
        "Give no reasoning, do not mention the plan, and never write several turns.",
    ]
    if scenario.stop_signal:
        rules.append(
            f"Once the goal is reached, write this and nothing else: {scenario.stop_signal}"
        )
    parts = [
        "You play the user in a test of an assistant.",
        "Write the one message that brings the user closest to the goal.",
        "You are given the assistant's latest reply; it is empty when the conversation begins.",
        "\n".join(f"- {one}" for one in rules),
    ]
    if scenario.starting_prompt:
        parts.append(f"The user has begun with this message:\n{scenario.starting_prompt}")
    parts.append(f"The plan:\n{scenario.conversation_plan}")
    return "\n\n".join(parts)
