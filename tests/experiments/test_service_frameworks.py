"""The service runs agents of every framework, mocks their tools, and captures what the recorder records."""

from collections.abc import Iterator
from typing import Any

import agents as openai_agents
import pytest

from evaltap.experiments.service import AgentEvaluator, RecordedAgent
from evaltap.experiments.stores import memory_stores
from plugin_drivers import ClaudeAgent
from plugin_drivers.driver import AgentSpec, Driver, call, get_order, says
from support.worlds.framework_runs import FRAMEWORKS, agent_for_a_run


@pytest.fixture
def tracing_of_openai_agents() -> Iterator[None]:
    yield
    openai_agents.set_trace_processors([])
    openai_agents.set_tracing_disabled(False)


def shop() -> AgentSpec:
    script = [says("", call("get_order", "c1", order_id="A")), says("Delivered."), says("Bye.")]
    return AgentSpec(script, tools=[get_order], instruction="You know all orders.")


def turn(said: str, answer: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer}
    return {"userContent": {"role": "user", "content": said}, "finalResponse": message, **more}


@pytest.mark.usefixtures("tracing_of_openai_agents")
@pytest.mark.parametrize("kind", FRAMEWORKS, ids=lambda kind: kind.name)
def test_an_agent_of_a_framework_is_evaluated(kind: type[Driver]) -> None:
    stores = memory_stores()
    stores.sets.create("shop", "orders")
    tools = [{"name": "get_order", "arguments": {"order_id": "A"}}]
    mocks = {"actual": [{"name": "get_order", "result": {"status": "mocked"}}]}
    first = turn("Where is A?", "Delivered.", tools=tools, toolMock=mocks)
    conversation = [first, turn("Thanks", "Bye.")]
    case = {"evalId": "c", "conversation": conversation, "sessionInput": {"userId": "u"}}
    stores.sets.add_case("shop", "orders", case)
    same: dict[str, Any] = {"name": {}, "arguments": {}}
    for metric in (
        {"metricName": "final_response_avg_score", "criterion": {"finalResponse": {"text": {}}}},
        {
            "metricName": "tool_trajectory_avg_score",
            "criterion": {"toolTrajectory": {"defaultStrategy": same}},
        },
    ):
        stores.metrics.add("shop", "orders", {"threshold": 1, **metric})
    runner = RecordedAgent(agent_for_a_run(kind, shop, ["Where is A?", "Thanks"]))

    found = AgentEvaluator("shop", runner, stores=stores).evaluate("orders")

    runner.close()
    result = found.eval_cases[0].eval_case_results[0]
    if kind is ClaudeAgent:  # its own tools cannot be mocked: it is refused, and nothing runs
        assert "is run by Claude Code" in result.error_message
        return
    assert result.final_eval_status == "passed", result.error_message
    turns = [one.actual_invocation for one in result.eval_metric_result_per_invocation]
    assert turns[0] is not None
    assert turns[0].tools[0] is not None
    assert "mocked" in str(turns[0].tools[0].result)
