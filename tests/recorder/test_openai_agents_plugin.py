"""Special features of the openai-agents plugin; common behaviour is tested in the plugin contract."""

import asyncio
from collections.abc import Iterator

import agents
import httpx2
import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from plugin_drivers.driver import ALL, Step, Tap, call, get_order, says, tapped
from plugin_drivers.openai_agents import OpenAIAgents, OpenAIRunHooks, client, completion


def chat_model(*steps: Step) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("scripted-1", client(*steps))


@pytest.fixture
def tap() -> Iterator[Tap[OpenAIAgents]]:
    with tapped(OpenAIAgents) as tap:
        yield tap


@pytest.fixture
def alone() -> Iterator[Tap[OpenAIAgents]]:
    """The plugin without spans, for what they cannot tell."""
    with tapped(OpenAIAgents, differ=[ALL]) as tap:
        yield tap


@pytest.mark.parametrize("stream", [False, True])
def test_the_chat_completions_api_tells_the_same(tap: Tap[OpenAIAgents], stream: bool) -> None:
    steps = [says("Let me see.", call("get_order", "c1", order_id="A")), says("Delivered.")]
    agent = Agent("support", model=chat_model(*steps), tools=[function_tool(get_order)])

    tap.ask(agent, "Where is A?", stream=stream)

    turn = tap.turn()
    assert (turn["user"], turn["final"]) == ("Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, get_order("A"))]
    assert turn["intermediate"] == ["Let me see."]


def test_a_handoff_by_the_chat_completions_api_has_a_result(tap: Tap[OpenAIAgents]) -> None:
    billing = Agent("billing", model=chat_model(says("Paid.")))
    first = chat_model(says("", call("transfer_to_billing", "c1")))

    tap.ask(Agent("support", model=first, handoffs=[billing]), "Did I pay?")

    turn = tap.turn()
    assert turn["tools"] == [("c1", "transfer_to_billing", {}, '{"assistant": "billing"}')]
    assert turn["final"] == "Paid."


@pytest.mark.parametrize("kind", [OpenAIAgents, OpenAIRunHooks])
def test_the_text_block_that_an_mcp_server_returns_is_its_text(kind: type[OpenAIAgents]) -> None:
    @function_tool
    def get_weather(city: str) -> object:
        return {"type": "text", "text": f"Sunny in {city}"}

    steps = [says("", call("get_weather", "c1", city="Rome")), says("It is sunny.")]

    with tapped(kind) as tap:
        tap.ask(Agent("support", model=chat_model(*steps), tools=[get_weather]), "Weather?")
        turn = tap.turn()

    assert turn["tools"] == [("c1", "get_weather", {"city": "Rome"}, "Sunny in Rome")]


def test_an_endpoint_that_reports_no_usage_leaves_the_tokens_unknown(
    tap: Tap[OpenAIAgents],
) -> None:
    answer = {key: value for key, value in completion(says("Hello.")).items() if key != "usage"}
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=answer))
    silent = AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=transport))

    tap.ask(Agent("support", model=OpenAIChatCompletionsModel("scripted-1", silent)), "Hi")

    turn = tap.turn()
    assert (turn["final"], turn["tokens"]) == ("Hello.", (None, None))


def test_two_runs_in_one_trace_are_two_turns(alone: Tap[OpenAIAgents]) -> None:
    async def talk() -> None:
        with agents.trace("support", group_id="s1"):
            await Runner.run(alone.agent(says("One.")), "First")
            await Runner.run(alone.agent(says("Two.")), "Second")

    asyncio.run(talk())

    assert [(turn["session"], turn["user"], turn["final"]) for turn in alone.turns()] == [
        ("s1", "First", "One."),
        ("s1", "Second", "Two."),
    ]


def test_without_content_the_structure_is_recorded_and_the_rest_is_missing(
    alone: Tap[OpenAIAgents],
) -> None:
    agent = alone.agent(
        says("", call("get_order", "c1", order_id="A")), says("Delivered."), tools=[get_order]
    )
    config = RunConfig(group_id="s1", trace_include_sensitive_data=False)

    asyncio.run(Runner.run(agent, "Where?", run_config=config))

    (case,) = alone.recorder.cases
    (turn,) = case["actualConversation"]
    assert turn["capture"] == {"userContent": "missing", "finalResponse": "missing"}
    (tool,) = turn["tools"]
    assert (tool["name"], "id" in tool) == ("get_order", False)
    assert tool["capture"] == {"id": "missing", "arguments": "missing", "result": "missing"}


def test_arguments_that_are_no_json_are_kept_as_the_model_wrote_them(
    alone: Tap[OpenAIAgents],
) -> None:
    broken = completion(says("", call("get_order", "c1")))
    (asked,) = broken["choices"][0]["message"]["tool_calls"]
    asked["function"]["arguments"] = '{"order_id": '
    answers = iter([broken, completion(says("Sorry."))])
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=next(answers)))
    unsteady = AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=transport))
    model = OpenAIChatCompletionsModel("scripted-1", unsteady)

    alone.ask(Agent("support", model=model, tools=[function_tool(get_order)]), "Where?")

    turn = alone.turn()
    (asked_for,) = turn["tools"]
    assert asked_for[:3] == ("c1", "get_order", '{"order_id": ')
    assert turn["errors"] != [None]


def test_equal_parallel_calls_keep_their_results_whichever_ends_first(
    tap: Tap[OpenAIAgents],
) -> None:
    begun: list[asyncio.Event] = []

    @function_tool
    async def tick(n: int) -> str:
        begun.append(asyncio.Event())
        place = len(begun)
        if place == 1:  # the first call ends last
            await begun[0].wait()
        elif place == 3:
            begun[0].set()
        return f"the {place}."

    calls = [call("tick", f"c{place}", n=1) for place in (1, 2, 3)]
    steps = [says("", *calls), says("Done.")]

    tap.ask(Agent("support", model=chat_model(*steps), tools=[tick]), "Go")

    results = [(one[0], one[3]) for one in tap.turn(parallel=True)["tools"]]
    assert results == [("c1", "the 1."), ("c2", "the 2."), ("c3", "the 3.")]
