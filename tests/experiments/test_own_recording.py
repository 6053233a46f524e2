"""An agent that meets its own recording does what it did, in every framework, and runs no tool."""

import asyncio
from pathlib import Path
from typing import Any

import agents as openai_agents
import pytest

from evaltap.experiments.agents.loading import agent_of
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings
from plugin_drivers import ClaudeAgent
from plugin_drivers.driver import AgentSpec, Driver, call, says
from support.worlds.framework_runs import FRAMEWORKS, Runs, agent_for_a_run, unit_of, without_ids
from support.worlds.replayed_agents import Shop

KINDS = [kind for kind in FRAMEWORKS if kind is not ClaudeAgent]  # its scripted CLI runs no tools
STEPS = (
    says("", call("sell", "c1", sku="A"), call("sell", "c2", sku="B")),
    says("", call("sell", "c3", sku="A")),
    says("Sold three."),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_unchanged_agent_is_faithful_and_its_case_is_the_same(
    kind: type[Driver], tmp_path: Path
) -> None:
    shop = Shop(tmp_path)

    def agent() -> Any:
        return agent_for_a_run(kind, lambda: AgentSpec(STEPS, tools=shop.tools()), [])

    live = Runs()
    (end,) = live.run(agent(), unit_of("Sell A, B and A"))
    assert end.state == "ended"
    (recorded,) = live.cases()
    effects = shop.effects()
    assert len(effects) == 3
    openai_agents.set_trace_processors([])

    again = Runs()
    unit = unit_of("Sell A, B and A", recording=recording_of(recorded))

    async def replay() -> UnitEnd:
        adapted = agent_of(agent(), again.recorder)
        settings = WorkerSettings(turn_seconds=30, policy=MockPolicy())
        return await Worker(adapted, again.recorder, settings).run(unit)

    end = asyncio.run(replay())
    (replayed,) = again.cases()
    openai_agents.set_trace_processors([])
    openai_agents.set_tracing_disabled(False)

    assert end.state == "ended"
    assert end.mocks is not None
    [turn] = end.mocks["turns"]
    assert turn["hits"] == {"sell": 3}
    assert (turn["misses"], turn["unused"], turn["real"]) == ([], [], [])
    assert shop.effects() == effects, "no tool ran again"
    assert without_ids(replayed) == without_ids(recorded)
