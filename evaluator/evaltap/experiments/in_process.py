"""Run agents within this process: for tests and notebooks, whose agents have no name to import them by."""

import asyncio
import queue
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaltap.evaluator.cases.turn import run_failure
from evaltap.experiments.agents.base import Abilities, Agent, Unit
from evaltap.experiments.agents.loading import agent_of, load_agent
from evaltap.experiments.mocks.catalogue import catalogue
from evaltap.experiments.partners import Partners, User, inventor_problems, partners_of
from evaltap.experiments.plan import CaseSet, Plan, read_case, refuse
from evaltap.experiments.process import AgentEnd
from evaltap.experiments.pseudonyms import Inventions, restoring
from evaltap.experiments.tool_calls import MockChoice
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings, record_crash, recorder_of
from evaltap.recorder import MemorySink, Recorder
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError


class AgentThread(AgentEnd):
    """The agent on a thread of this process; it cannot survive an agent that ends the process."""

    def __init__(
        self,
        agent: object,
        settings: WorkerSettings,
        user: object = None,
        expected_agent: object = None,
    ) -> None:
        self.running, self.begun, self.has_ended = {}, set(), False
        inventions = Inventions()
        self._recorder, redactor = recorder_of(settings, inventions)
        self._partners = Partners()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="evaltap-agents", daemon=True)
        self._thread.start()
        try:
            adapted: Agent = agent_of(agent, self._recorder)
            others = partners_of(
                settings.user and (user or settings.user),
                settings.expected_agent and expected_agent,
                gets=settings.expected_gets,
            )
            self._partners = asyncio.run_coroutine_threadsafe(others, self._loop).result()
        except InputError:
            self.close()
            raise
        self.abilities = adapted.abilities
        self._worker = Worker(
            adapted,
            self._recorder,
            settings,
            inventions,
            partners=self._partners,
            redactor=redactor,
        )
        self._room = asyncio.Semaphore(settings.concurrency)
        self._ended: queue.SimpleQueue[UnitEnd] = queue.SimpleQueue()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def start(self, unit: Unit) -> None:
        """Give the agent a unit."""
        self.running[unit.run, unit.eval_id] = unit
        asyncio.run_coroutine_threadsafe(self._run(unit), self._loop)

    async def _run(self, unit: Unit) -> None:
        async with self._room:
            self._ended.put(await self._worker.run(unit))

    def take(self, seconds: float) -> list[tuple[Unit, UnitEnd]]:
        """Return the units that have ended, waiting for the first."""
        found = []
        try:
            end = self._ended.get(timeout=seconds)
            while True:
                found.append((self.running.pop((end.run, end.eval_id)), end))
                end = self._ended.get_nowait()
        except queue.Empty:
            return found

    def finish(self) -> None:
        """Say that no more units come."""

    def death(self) -> str:
        """Never called: it lives as long as this process."""
        return "ended"

    def close(self) -> None:
        """Close the recorder; what an abandoned agent still does is not recorded."""
        self._recorder.close()
        self._partners.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)


def run_case(
    agent: object,
    case: Mapping[str, Any],
    *,
    turn_seconds: float = 300.0,
    tools: MockChoice | None = None,
    user: object = None,
    expected_agent: object = None,
) -> CaseData:
    """Run an agent once on a case and return the case with what the agent did, as if it had been recorded.

    `agent` is a function, a factory, an object of a framework, or the text of `--agent`; so is `user`, who
    plays the user of a `conversationScenario` (by default the model of EVALTAP_JUDGE_MODEL), and
    `expected_agent`, which gives the expected turns where the case wants that.  An agent that fails leaves a
    turn that failed.  The tool calls of a case from production are answered by its recording.  Raises
    InputError for a case that cannot be run, for what is no agent, for a tool call without a recorded result,
    and for a simulated user or an agent of expected turns that fails.
    """
    sink = MemorySink()
    inventions = Inventions()
    recorder = Recorder(sink=sink, redactor=restoring(inventions, None), sample_rate=1.0)
    adapted = load_agent(agent, recorder) if isinstance(agent, str) else agent_of(agent, recorder)
    given, tools = read_case(dict(case)), tools or MockChoice()
    cases = CaseSet(str(case.get("evalSetId") or ""), (given,))
    played = (
        (_user_of(user) if given.scenario else None),
        (expected_agent if given.refers else None),
    )
    _check(cases, adapted.abilities, tools, *played)
    unit = replace(Plan("", cases, 1, "", "").unit(given, 1, 1), run="")
    settings = WorkerSettings(
        turn_seconds=turn_seconds,
        policy=tools.policy([given]),
        tools=catalogue([given.recording], given.declared),
    )

    async def ran() -> UnitEnd:
        partners = await partners_of(*played)
        worker = Worker(adapted, recorder, settings, inventions, partners=partners)
        try:
            return await worker.run(unit)
        finally:
            partners.close()

    end = asyncio.run(ran())
    recorder.flush(10.0)
    done = [turn for one in sink.cases for turn in one["actualConversation"]]
    if end.state == "crashed" and not any(map(run_failure, done)):
        record_crash(recorder, unit, end.reason, len(done))
    recorder.close(10.0)
    if end.state in ("missed", "invalid"):
        raise InputError(f"{given.eval_id}: {end.reason}")
    turns = [turn for one in sink.cases for turn in one["actualConversation"]]
    found = {**case, "evalMode": "trace", "actualConversation": turns}
    for planned in ("conversationScenario", "expectedRunnerEnabled"):
        found.pop(planned, None)
    return found | ({"conversation": list(end.expected)} if end.expected else {})


def _check(
    cases: CaseSet, abilities: Abilities, tools: MockChoice, user: object, expected_agent: object
) -> None:
    """Raise InputError that lists what keeps the case from being run."""
    (given,) = cases.cases
    problems = tools.problems(cases, abilities)
    if isinstance(user, User):
        problems += user.problems(has_budget=False)
    problems += inventor_problems(cases.cases, tools.policy(cases.cases), has_budget=False)
    if given.refers and expected_agent is None:
        problems.append("its expected turns come from another agent; give expected_agent")
    refuse(given.eval_id, problems)


def _user_of(user: object) -> object:
    return User() if user is None else User.named(user) if isinstance(user, str) else user
