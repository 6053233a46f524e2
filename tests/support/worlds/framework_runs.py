"""Units run by agents of the frameworks, in this process and recorded in memory.

Agents are those of the plugin contract: real, with scripted models.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import agents as openai_agents
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

from evaltap.experiments.agents.base import Unit
from evaltap.experiments.agents.functions import FactoryAgent
from evaltap.experiments.agents.loading import agent_of
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.observation import ContextMessage, Observation, RunStarted, UserMessage
from plugin_drivers import (
    Adk,
    ClaudeAgent,
    LangChain,
    OpenAIAgents,
    OpenAIRunHooks,
    PydanticAI,
    Strands,
)
from plugin_drivers import scripted_claude as claude
from plugin_drivers.driver import AgentSpec, Driver

FRAMEWORKS: Sequence[type[Driver]] = [
    Adk, ClaudeAgent, LangChain, OpenAIAgents, OpenAIRunHooks, PydanticAI, Strands,
]  # fmt: skip


def unit_of(*turns: str, **more: Any) -> Unit:
    return Unit(
        "golden", more.pop("eval_id", "c-1"), trial=2, attempt=1, run="x1.2", turns=turns, **more
    )


class WatchedRecorder(Recorder):
    """Keeps what the recorder leaves out of a later turn, as the turns before it say the same."""

    def __init__(self, sink: MemorySink) -> None:
        super().__init__(sink=sink, flush_interval_seconds=0.01)
        self.seen: list[Observation] = []

    def observe(self, observation: Observation) -> None:
        self.seen.append(observation)
        super().observe(observation)

    def conversations(self) -> dict[str, list[list[str]]]:
        """Return what the model was told before each turn of a case, and the turn's message."""
        cases = {
            one.run_id: one.labels.eval_id
            for one in self.seen
            if isinstance(one, RunStarted) and one.labels is not None
        }
        told: dict[str, list[str]] = {run: [] for run in cases}
        for one in self.seen:
            if isinstance(one, UserMessage) or (
                isinstance(one, ContextMessage) and one.role != "system"
            ):
                told[one.run_id].append(str(one.content))
        found: dict[str, list[list[str]]] = {}
        for run, texts in told.items():
            found.setdefault(str(cases[run]), []).append(sorted(texts))
        return found


class Runs:
    """A recorder in memory, and the experiment's part that runs units with it."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.recorder = WatchedRecorder(self.sink)

    def cases(self) -> list[dict[str, Any]]:
        self.recorder.close()
        faults = self.recorder.counters().faults
        assert not faults, f"the plugin met {faults}"
        return sorted(self.sink.cases, key=lambda case: float(case["creationTimestamp"]))

    def run(self, found: Any, *units: Unit, turn_seconds: float = 30.0) -> list[UnitEnd]:
        """Run units concurrently with an agent, as the agent's process does."""

        async def all_of_them() -> list[UnitEnd]:
            agent = agent_of(found, self.recorder)
            if isinstance(agent, FactoryAgent):
                await agent.look()
            worker = Worker(agent, self.recorder, WorkerSettings(turn_seconds=turn_seconds))
            return [*await asyncio.gather(*(worker.run(unit) for unit in units))]

        return asyncio.run(all_of_them())


def agent_for_a_run(kind: type[Driver], make: Callable[[], AgentSpec], turns: Sequence[str]) -> Any:
    """Return what `--agent` would name: the agent, or a factory of it; the user's plugin stays in it."""
    own = Recorder(sink=MemorySink(), disabled=True)
    driver = kind(own)
    made = driver.agent(make())
    if isinstance(driver, Adk):
        return made.agent
    if isinstance(driver, ClaudeAgent):
        cli = claude.ScriptedCli("s", 1, (made.turn() for _ in turns))
        return lambda: ClaudeSDKClient(ClaudeAgentOptions(), transport=cli)
    if isinstance(driver, OpenAIRunHooks):
        openai_agents.set_tracing_disabled(True)
    return made


def without_ids(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case without ids, times and labels."""
    (turn,) = case["actualConversation"]
    source = {k: v for k, v in case["source"].items() if k not in _OF_THE_RUN}
    session = {k: v for k, v in case["sessionInput"].items() if k not in ("appName", "userId")}
    return {
        "source": source,
        "sessionInput": session,
        "turn": _stripped({k: v for k, v in turn.items() if k != "invocationId"}),
    }


_OF_THE_RUN = ("run", "trial", "attempt")
_VOLATILE = ("creationTimestamp", "startTime", "durationMs", "latencyMs", "traceId", "rootSpanId")


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _stripped(v) for k, v in value.items() if k not in _VOLATILE}
    return [_stripped(one) for one in value] if isinstance(value, list) else value
