"""Agents of frameworks and plain functions as runners: what they do is recorded as in production."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from evaltap.experiments.agents.base import Abilities, Conversation, Unit, answer_of
from evaltap.experiments.agents.functions import FactoryAgent
from evaltap.experiments.agents.loading import agent_of, load_agent
from evaltap.experiments.pseudonyms import Inventions, restoring
from evaltap.experiments.service.runners import AgentCall, Runner
from evaltap.recorder import Recorder
from evaltap.recorder.answering import TOOL_ANSWERS
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.wire.record import DecodedCase, WireRecord, decode_record

_FLUSH_SECONDS: Final = 30.0
_SET: Final = "evaluation"


class RecordedAgent:
    """A runner of whatever `evaltap run` runs: a function `(messages)` or `(messages, turn)`, a factory, an
    object of a framework, or the text of `--agent`.

        AgentEvaluator("my-app", RecordedAgent(langgraph_agent), stores=stores)

    The turns have what the recorder sees: tools with errors and durations, intermediate responses, tokens.
    `request` and `result` are the JSON template and the path to the answer of an `http://` agent.  Raises
    InputError for what is no agent.  `close` ends the recorder.
    """

    def __init__(self, agent: object, *, request: Json = None, result: str = "") -> None:
        self._sink = _LastTurns()
        self._recorder = Recorder(
            sink=self._sink,
            redactor=restoring(Inventions(), None),
            sample_rate=1.0,
            sample_rules="",
            sample_max_per_minute=0.0,
            flush_interval_seconds=0.01,
            disabled=False,
        )
        try:
            self._agent = (
                load_agent(agent, self._recorder, request=request, result=result)
                if isinstance(agent, str)
                else agent_of(agent, self._recorder)
            )
        except InputError:
            self._recorder.close()
            raise

    @property
    def takes_state(self) -> bool:
        """Whether the agent can be given a session's state; one that plays a user does without."""
        return self._agent.abilities.state

    @property
    def abilities(self) -> Abilities:
        """What the agent can be given; of a factory known after `look`."""
        return self._agent.abilities

    async def look(self) -> None:
        """Let a factory make one agent, to know its abilities."""
        if isinstance(self._agent, FactoryAgent):
            await self._agent.look()

    async def __call__(self, call: AgentCall) -> Any:
        """Run a single turn in a session of its own."""
        async with self.session(call) as turn:
            return await turn(call)

    @asynccontextmanager
    async def session(self, call: AgentCall) -> AsyncIterator[Runner]:
        """Return what runs the turns of one case."""
        abilities = self._agent.abilities
        if call.context_messages and not abilities.context:
            raise ConfigurationError("the agent takes no context messages; leave them out")
        if call.state and not abilities.state:
            raise ConfigurationError("the agent takes no state; leave sessionInput.state out")
        if TOOL_ANSWERS.get() is not None and not abilities.mocks:
            raise ConfigurationError("the agent's tools cannot be mocked; leave toolMock out")
        unit = Unit(
            eval_set_id=_SET,
            eval_id=call.session_id,
            trial=1,
            attempt=1,
            run=call.session_id,
            turns=(),
            context=tuple(dict(one) for one in call.context_messages),
            state=call.state,
            user_id=call.user_id,
        )
        conversation = Conversation(unit)
        with self._recorder.run_labels(
            run=unit.run, trial=1, attempt=1, eval_set_id=_SET, eval_id=unit.eval_id
        ):
            async with self._agent.session(unit) as session:

                async def turn(asked: AgentCall) -> CaseData:
                    answer = await answer_of(session, conversation.ask(asked.text))
                    conversation.answered(answer)
                    return await asyncio.to_thread(self._recorded, unit.eval_id)

                try:
                    yield turn
                finally:
                    self._sink.turns.pop(unit.eval_id, None)

    def close(self) -> None:
        """End the recorder."""
        self._recorder.close()

    def _recorded(self, eval_id: str) -> CaseData:
        """Return the turn that has just ended."""
        self._recorder.flush(_FLUSH_SECONDS)
        if eval_id not in self._sink.turns:
            raise InputError("the turn was not recorded")
        return self._sink.turns.pop(eval_id)


class _LastTurns:
    """A sink that keeps the last turn of each case."""

    def __init__(self) -> None:
        self.turns: dict[str, CaseData] = {}

    def append(self, records: Sequence[WireRecord]) -> None:
        for record in records:
            item = decode_record(record)
            turns = item.case.get("actualConversation") if isinstance(item, DecodedCase) else None
            if isinstance(item, DecodedCase) and turns:
                self.turns[item.case["evalId"]] = dict(turns[-1])

    def flush(self, timeout_seconds: float) -> bool:
        return True

    def backlog(self) -> int:
        return 0

    def close(self) -> None:
        """Do nothing."""
