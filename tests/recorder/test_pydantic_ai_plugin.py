"""Special features of the pydantic-ai plugin; common behaviour is tested in the plugin contract."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel
from pydantic_ai import DeferredToolRequests
from pydantic_ai.exceptions import CallDeferred, ToolFailed

from plugin_drivers.driver import ALL, AgentSpec, Tap, call, get_order, says, tapped
from plugin_drivers.pydantic_ai import PydanticAI, in_stock


class Verdict(BaseModel):
    """A structured answer."""

    ok: bool


@pytest.fixture
def tap() -> Iterator[Tap[PydanticAI]]:
    with tapped(PydanticAI) as tap:
        yield tap


@pytest.fixture
def alone() -> Iterator[Tap[PydanticAI]]:
    """The plugin without spans, for what they cannot tell."""
    with tapped(PydanticAI, differ=[ALL]) as tap:
        yield tap


def test_a_retry_that_the_tool_asks_for_is_a_failed_call(tap: Tap[PydanticAI]) -> None:
    agent = tap.agent(
        says("", call("in_stock", "c1", sku="x9")),
        says("", call("in_stock", "c2", sku="X9")),
        says("Three."),
        tools=[in_stock],
    )

    tap.ask(agent, "In stock?")

    turn = tap.turn()
    assert turn["errors"] == [{"type": "ModelRetry", "message": "sku must be upper case"}, None]
    assert turn["tools"][1][3] == "3"


def test_a_call_with_wrong_arguments_is_a_failed_call(tap: Tap[PydanticAI]) -> None:
    agent = tap.agent(
        says("", call("in_stock", "c1", wrong=1)),
        says("", call("in_stock", "c2", sku="X9")),
        says("Three."),
        tools=[in_stock],
    )

    tap.ask(agent, "In stock?")

    turn = tap.turn()
    assert turn["tools"][0][:3] == ("c1", "in_stock", {"wrong": 1})
    assert turn["errors"][0]["type"].endswith(".ValidationError")


def test_a_call_of_an_unknown_tool_is_a_failed_call(alone: Tap[PydanticAI]) -> None:
    agent = alone.agent(says("", call("sell", "c1", sku="X9")), says("I cannot."), tools=[in_stock])

    alone.ask(agent, "Sell it")

    turn = alone.turn()
    (sold,) = turn["tools"]
    assert sold[:3] == ("c1", "sell", {"sku": "X9"})
    assert turn["errors"] == [{"message": sold[3]}]
    assert (turn["final"], turn["status"]) == ("I cannot.", "ok")


def test_a_failing_agent_inside_a_tool_fails_its_call_only(tap: Tap[PydanticAI]) -> None:
    inner = tap.agent(ValueError("lost"), name="researcher")

    async def research(question: str) -> str:
        """Ask the researcher."""
        try:
            return str((await inner.run(question)).output)
        except ValueError as error:
            raise ToolFailed(str(error)) from error

    boss = tap.agent(
        says("", call("research", "n1", question="find")), says("Sorry."), tools=[research]
    )

    tap.ask(boss, "Where is A?")

    turn = tap.turn()
    assert (turn["status"], turn["final"]) == ("ok", "Sorry.")
    assert turn["errors"] == [{"type": "pydantic_ai.exceptions.ToolFailedError", "message": "lost"}]


def test_a_structured_answer_is_the_final_response_and_no_tool_call(tap: Tap[PydanticAI]) -> None:
    steps = [
        says("", call("get_order", "c1", order_id="A")),
        says("", call("final_result", "c2", ok=True)),
    ]
    agent = tap.driver.build(AgentSpec(steps, [get_order]), output_type=Verdict)

    tap.ask(agent, "Ok?")

    turn = tap.turn()
    assert turn["final"] == '{"ok":true}'
    assert [tool[1] for tool in turn["tools"]] == ["get_order"]


def test_a_deferred_call_has_no_result_and_is_no_error(tap: Tap[PydanticAI]) -> None:
    def approve(order_id: str) -> str:
        """Wait for a human."""
        raise CallDeferred

    spec = AgentSpec([says("", call("approve", "c1", order_id="A"))], [approve])

    tap.ask(tap.driver.build(spec, output_type=[str, DeferredToolRequests]), "Refund A")

    (case,) = tap.recorder.cases
    (tool,) = case["actualConversation"][0]["tools"]
    assert tool["capture"] == {"result": "missing"}
    assert "error" not in tool
