"""Special features of the Strands plugin; common behaviour is tested in the plugin contract."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import Status

from plugin_drivers.driver import ALL, AgentSpec, Tap, call, get_order, says, tapped
from plugin_drivers.strands import Strands


@pytest.fixture
def tap() -> Iterator[Tap[Strands]]:
    with tapped(Strands) as tap:
        yield tap


@pytest.fixture
def alone() -> Iterator[Tap[Strands]]:
    """The plugin without spans: each agent of a graph writes a trace of its own."""
    with tapped(Strands, differ=[ALL]) as tap:
        yield tap


def test_an_agent_called_by_a_function_that_is_a_tool_is_part_of_the_turn(
    tap: Tap[Strands],
) -> None:
    inner = tap.agent(
        says("", call("get_order", "n2", order_id="A")),
        says("Found."),
        name="researcher",
        tools=[get_order],
    )

    def research(question: str) -> str:
        """Ask the researcher."""
        return str(inner(question)).strip()

    boss = tap.agent(
        says("", call("research", "n1", question="find")), says("Good."), tools=[research]
    )

    tap.ask(boss, "Where?")

    turn = tap.turn()
    assert (turn["final"], turn["parents"]) == ("Good.", [None, "n1"])


def test_a_graph_is_one_turn(alone: Tap[Strands]) -> None:
    build, builder = alone.driver.build, GraphBuilder()
    builder.add_node(build(AgentSpec([says("Draft.")], name="writer")), "writer")
    builder.add_node(build(AgentSpec([says("Better.")], name="editor")), "editor")
    builder.add_edge("writer", "editor")
    builder.set_hook_providers([alone.driver.hooks])
    builder.set_max_node_executions(5)

    builder.build()("Write", invocation_state={"session_id": "s1"})

    turn = alone.turn()
    assert (turn["user"], turn["final"]) == ("Write", "Better.")
    assert turn["intermediate"] == ["Draft."]


def test_a_swarm_that_failed_without_raising_is_no_success(alone: Tap[Strands]) -> None:
    agent = alone.driver.build(AgentSpec([says("Draft.")], name="writer"))
    swarm = Swarm([agent], hooks=[alone.driver.hooks], max_iterations=0)

    swarm("Write")

    turn = alone.turn()
    assert swarm.state.completion_status is Status.FAILED
    assert turn["status"] == "error"


def test_a_structured_answer_is_the_final_response(alone: Tap[Strands]) -> None:
    class Verdict(BaseModel):
        """A structured answer."""

        ok: bool

    agent = alone.driver.build(AgentSpec([says("Let me see.", call("Verdict", "c1", ok=True))]))

    agent("Ok?", structured_output_model=Verdict)

    turn = alone.turn()
    assert (turn["final"], turn["status"]) == ('{"ok":true}', "ok")
    assert turn["intermediate"] == ["Let me see."]


def test_a_result_without_content_is_a_result(tap: Tap[Strands]) -> None:
    def clear() -> dict[str, Any]:
        """Clear the basket."""
        return {"status": "success", "content": []}

    tap.ask(tap.agent(says("", call("clear", "c1")), says("Done."), tools=[clear]), "Clear it")

    ((_, _, _, result),) = tap.turn()["tools"]
    assert result == []
