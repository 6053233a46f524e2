"""Run agents within this process: for tests and notebooks, whose agents have no name to import them by."""

import asyncio
import queue
import threading
from collections.abc import Mapping
from typing import Any

from evaltap.experiments.agents.base import Agent, Unit
from evaltap.experiments.agents.loading import agent_of, load_agent
from evaltap.experiments.mocks.catalogue import catalogue
from evaltap.experiments.plan import CaseSet, read_case, refuse
from evaltap.experiments.process import AgentEnd
from evaltap.experiments.pseudonyms import Inventions, restoring
from evaltap.experiments.tool_calls import MockChoice
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings, config_for
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import CaseData


class AgentThread(AgentEnd):
    """The agent on a thread of this process; it cannot survive an agent that ends the process."""

    def __init__(self, agent: object, settings: WorkerSettings) -> None:
        self.running, self.begun, self.has_ended = {}, set(), False
        inventions, config = Inventions(), config_for(settings)
        self._recorder = Recorder(
            config=config, redactor=restoring(inventions, configured_redactor(config))
        )
        try:
            adapted: Agent = agent_of(agent, self._recorder)
        except InputError:
            self._recorder.close()
            raise
        self.abilities = adapted.abilities
        self._worker = Worker.of(settings, adapted, self._recorder, inventions)
        self._room = asyncio.Semaphore(settings.concurrency)
        self._ended: queue.SimpleQueue[UnitEnd] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="evaltap-agents", daemon=True)
        self._thread.start()

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
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)


def run_case(
    agent: object,
    case: Mapping[str, Any],
    *,
    turn_seconds: float = 300.0,
    tools: MockChoice | None = None,
) -> CaseData:
    """Run an agent once on a case and return the case with what the agent did, as if it had been recorded.

    `agent` is a function, a factory, an object of a framework, or the text of `--agent`.  An agent that fails
    leaves a turn that failed.  The tool calls of a case from production are answered by its recording.
    Raises InputError for a case that cannot be run, for what is no agent, and for a tool call without a
    recorded result.
    """
    sink = MemorySink()
    inventions = Inventions()
    recorder = Recorder(sink=sink, redactor=restoring(inventions, None), sample_rate=1.0)
    adapted = load_agent(agent, recorder) if isinstance(agent, str) else agent_of(agent, recorder)
    given, tools = read_case(dict(case)), tools or MockChoice()
    refuse(given.eval_id, tools.problems(CaseSet("", (given,)), adapted.abilities))
    unit = Unit(
        eval_set_id=str(case.get("evalSetId") or ""),
        eval_id=given.eval_id,
        trial=1,
        attempt=1,
        run="",
        turns=given.turns,
        context=given.context,
        state=given.state,
        app_name=given.app_name,
        user_id=given.user_id,
        recording=given.recording,
        mocks=given.mocks,
    )
    policy = tools.policy([given])
    worker = Worker(
        adapted,
        recorder,
        inventions,
        turn_seconds=turn_seconds,
        policy=policy,
        tools=catalogue([given.recording]),
    )
    end = asyncio.run(worker.run(unit))
    recorder.close(10.0)
    if end.state == "missed":
        raise InputError(f"{given.eval_id}: {end.reason}")
    turns = [turn for one in sink.cases for turn in one["actualConversation"]]
    return {**case, "evalMode": "trace", "actualConversation": turns}
