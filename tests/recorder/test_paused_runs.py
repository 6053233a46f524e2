"""A run that waits for a person, and goes on in another trace, is one turn: agents of real frameworks."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import agents
import pytest
from agents import Agent as OpenAIAgent
from agents import (
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    function_tool,
)
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import Runner as AdkRunner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai.types import FunctionCall, FunctionResponse, Part
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

from evaltap.recorder.plugins.openai_run_hooks import EvaltapRun
from plugin_drivers.adk import Adk
from plugin_drivers.adk import ScriptedModel as AdkModel
from plugin_drivers.driver import ALL, AgentSpec, Tap, call, says, tapped
from plugin_drivers.langchain import LangChain, memory, model, user
from plugin_drivers.openai_agents import OpenAIAgents, client
from plugin_drivers.pydantic_ai import PydanticAI

QUESTION = "Refund A"
LOOKED = ("c0", "look", {"order_id": "A"}, "open")


def script(closing: str = "Refunded.") -> list[Any]:
    """Return what a model says that looks, wants to refund, and closes with some words."""
    return [
        says("Let me look.", call("look", "c0", order_id="A")),
        says("", call("refund", "c1", amount=5)),
        says(closing),
    ]


def look(order_id: str) -> str:
    """Look up an order."""
    return "open"


def paid(amount: int) -> str:
    """Refund."""
    return f"yes: {amount}"


# -- LangGraph ---------------------------------------------------------------------------------------


@pytest.fixture
def graphs() -> Iterator[Tap[LangChain]]:
    with tapped(LangChain) as tap:
        yield tap


@tool
def refund(amount: int) -> str:
    """Refund once a person agrees."""
    return f"{interrupt({'amount': amount})}: {amount}"


def agent_with_approval(closing: str = "Refunded.") -> Any:
    return create_agent(model(*script(closing)), [tool(look), refund], checkpointer=memory())


@pytest.mark.parametrize(("said", "closing"), [("yes", "Refunded."), ("no", "I may not.")])
def test_a_graph_that_a_person_resumes_is_one_turn(
    graphs: Tap[LangChain], said: str, closing: str
) -> None:
    agent, config = agent_with_approval(closing), graphs.driver.config()

    agent.invoke(user(QUESTION), config)
    agent.invoke(Command(resume=said), config)

    turn = graphs.turn()
    assert (turn["user"], turn["final"], turn["status"]) == (QUESTION, closing, "ok")
    assert turn["tools"] == [LOOKED, ("c1", "refund", {"amount": 5}, f"{said}: 5")]
    assert turn["intermediate"] == ["Let me look."]


EDITED = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 3}}}
REVIEWS: list[tuple[Any, int, str]] = [
    ({"type": "approve"}, 5, "yes: 5"),
    (EDITED, 3, "yes: 3"),
    ({"type": "reject", "message": "No."}, 5, "No."),
]


@pytest.mark.parametrize(("decision", "amount", "result"), REVIEWS, ids=["yes", "edited", "no"])
def test_a_call_that_langchains_middleware_has_reviewed_is_told_as_it_was_made(
    decision: Any, amount: int, result: str
) -> None:
    # The spans do not tell that a rejected call is marked as an error.
    with tapped(LangChain, differ=["errors"]) as tap:
        review = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
        steps = [says("", call("pay", "c1", amount=5)), says("So be it.")]
        agent = create_agent(
            model(*steps), [tool("pay")(paid)], checkpointer=memory(), middleware=[review]
        )

        agent.invoke(user(QUESTION), tap.driver.config())
        agent.invoke(Command(resume={"decisions": [decision]}), tap.driver.config())

        turn = tap.turn()
    ((_, _, arguments, returned),) = turn["tools"]
    assert (turn["final"], arguments) == ("So be it.", {"amount": amount})
    assert returned.endswith(result)


def test_a_graph_that_nobody_resumes_has_paused(graphs: Tap[LangChain]) -> None:
    agent_with_approval().invoke(user(QUESTION), graphs.driver.config())

    turn = graphs.turn()
    assert (turn["final"], turn["status"], turn["errors"]) == (None, "ok", [None, None])
    for recorder in (graphs.witness.by_plugin, graphs.witness.by_spans):
        assert recorder.cases[-1]["source"]["closeReason"] == "paused"


def test_a_step_of_a_graph_that_asks_a_person_does_not_end_the_turn(graphs: Tap[LangChain]) -> None:
    writer = model(says("A draft."), says("A letter."))

    def write(state: MessagesState) -> Any:
        return {"messages": [writer.invoke(state["messages"])]}

    def review(state: MessagesState) -> Any:
        return {"messages": [("system", str(interrupt("Good?")))]}

    graph = StateGraph(MessagesState)
    for name, step in (("write", write), ("review", review), ("send", write)):
        graph.add_node(name, step)
    for edge in ((START, "write"), ("write", "review"), ("review", "send"), ("send", END)):
        graph.add_edge(*edge)
    compiled, config = graph.compile(checkpointer=memory()), graphs.driver.config()

    compiled.invoke(user("Write to Ann"), config)
    compiled.invoke(Command(resume="yes"), config)

    turn = graphs.turn()
    assert (turn["user"], turn["final"]) == ("Write to Ann", "A letter.")
    assert turn["intermediate"] == ["A draft."]


def test_a_user_who_asks_again_instead_of_approving_has_two_turns() -> None:
    with tapped(LangChain, differ=[ALL]) as tap:
        steps = [says("", call("refund", "call_0", amount=5))] * 2
        agent = create_agent(model(*steps), [refund], checkpointer=memory())
        config = tap.driver.config()

        agent.invoke(user(QUESTION), config)
        agent.invoke(user(QUESTION), config)

        assert [(turn["user"], turn["final"]) for turn in tap.turns()] == [(QUESTION, None)] * 2


def test_a_graph_that_another_process_resumes_has_the_question_and_the_earlier_calls() -> None:
    saved, steps = memory(), script()

    with tapped(LangChain) as first:
        agent = create_agent(model(*steps[:2]), [tool(look), refund], checkpointer=saved)
        agent.invoke(user(QUESTION), first.driver.config())
    with tapped(LangChain) as second:
        agent = create_agent(model(steps[2]), [tool(look), refund], checkpointer=saved)
        agent.invoke(Command(resume="yes"), second.driver.config())

        turn = second.turn()
        assert (turn["user"], turn["final"]) == (QUESTION, "Refunded.")
        assert turn["tools"] == [LOOKED, ("c1", "refund", {"amount": 5}, "yes: 5")]


# -- OpenAI Agents -----------------------------------------------------------------------------------


@pytest.fixture
def openai() -> Iterator[Tap[OpenAIAgents]]:
    # OpenInference writes no spans of a run that goes on in this process.
    with tapped(OpenAIAgents, differ=[ALL]) as tap:
        yield tap


@function_tool(name_override="refund", needs_approval=True)
def refund_if_approved(amount: int) -> str:
    """Refund."""
    return f"yes: {amount}"


def decided(state: RunState[Any], *, approved: bool) -> None:
    for item in state.get_interruptions():
        (state.approve if approved else state.reject)(item)


OUTCOMES = [
    (True, "yes: 5", "Refunded."),
    (False, "Tool execution was not approved.", "I may not."),
]


@pytest.mark.parametrize("api", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
@pytest.mark.parametrize(("approved", "result", "closing"), OUTCOMES)
def test_a_run_state_that_goes_on_is_one_turn(
    openai: Tap[OpenAIAgents], api: Any, approved: bool, result: str, closing: str
) -> None:
    tools: list[Any] = [function_tool(look), refund_if_approved]
    agent: OpenAIAgent[Any] = OpenAIAgent(
        "support", model=api("scripted-1", client(*script(closing))), tools=tools
    )
    grouped = RunConfig(group_id="s1")

    async def talk() -> None:
        paused = (await Runner.run(agent, QUESTION, run_config=grouped)).to_state().to_json()
        state: RunState[Any] = await RunState.from_json(agent, paused)
        decided(state, approved=approved)
        await Runner.run(agent, state, run_config=grouped)

    asyncio.run(talk())

    turn = openai.turn()
    assert (turn["user"], turn["final"], turn["session"]) == (QUESTION, closing, "s1")
    assert turn["tools"] == [LOOKED, ("c1", "refund", {"amount": 5}, result)]
    assert openai.recorder.cases[-1]["source"]["revision"] == 2


@pytest.mark.parametrize(("approved", "result", "closing"), OUTCOMES)
def test_a_run_state_that_goes_on_with_run_hooks_is_one_turn(
    openai: Tap[OpenAIAgents], approved: bool, result: str, closing: str
) -> None:
    tools: list[Any] = [function_tool(look), refund_if_approved]
    steps = client(*script(closing))
    agent: OpenAIAgent[Any] = OpenAIAgent(
        "support", model=OpenAIResponsesModel("scripted-1", steps), tools=tools
    )
    off = RunConfig(tracing_disabled=True)
    agents.set_trace_processors([])

    async def talk() -> None:
        with EvaltapRun(openai.recorder, session_id="s1") as hooks:
            first = await Runner.run(agent, QUESTION, hooks=hooks, run_config=off)
        state = first.to_state()
        decided(state, approved=approved)
        with EvaltapRun(openai.recorder, session_id="s1") as hooks:
            await Runner.run(agent, state, hooks=hooks, run_config=off)

    asyncio.run(talk())

    turn = openai.turn()
    assert (turn["user"], turn["final"]) == (QUESTION, closing)
    assert turn["tools"] == [LOOKED, ("c1", "refund", {"amount": 5}, result)]


# -- Google ADK --------------------------------------------------------------------------------------


@pytest.fixture
def adk() -> Iterator[Tap[Adk]]:
    with tapped(Adk, differ=["errors"]) as tap:
        yield tap


def runner_of(tap: Tap[Adk], steps: list[Any], refund: Any) -> Any:
    agent = LlmAgent(
        name="support",
        model=AdkModel(script=list(steps)),
        tools=[look, refund],
        instruction="Help.",
    )
    app = App(name="shop", root_agent=agent, plugins=[tap.driver.plugin])
    return AdkRunner(app=app, session_service=tap.driver.sessions)


async def asked(tap: Tap[Adk], runner: Any, given: Any) -> FunctionCall | None:
    """Send a message; return the call that waits for a person."""
    waiting = None
    async for event in await tap.driver.events(runner, given):
        for call_ in event.get_function_calls():
            if call_.id in (event.long_running_tool_ids or ()):
                waiting = call_
    return waiting


def reply(to: FunctionCall | None, **given: Any) -> list[Part]:
    """Return the message with which a person decides on a call."""
    assert to is not None
    return [Part(function_response=FunctionResponse(id=to.id, name=to.name, response=given))]


def ticket(amount: int) -> dict[str, Any]:
    """Ask for a refund."""
    return {"status": "pending"}


ADK_TOOLS: list[tuple[Any, dict[str, Any], Any]] = [
    (FunctionTool(paid, require_confirmation=True), {"confirmed": True}, "yes: 5"),
    (
        FunctionTool(paid, require_confirmation=True),
        {"confirmed": False},
        {"error": "This tool call is rejected."},
    ),
    (LongRunningFunctionTool(ticket), {"status": "approved"}, {"status": "approved"}),
]


@pytest.mark.parametrize(("refund", "decision", "result"), ADK_TOOLS, ids=["yes", "no", "long"])
@pytest.mark.parametrize("says_so", [True, False])
def test_an_invocation_that_goes_on_is_one_turn(
    adk: Tap[Adk], refund: Any, decision: dict[str, Any], result: Any, says_so: bool
) -> None:
    """A long-running tool may have the agent say that it waits; a confirmation does not."""
    waits = [says("I wait." if says_so else "")] if refund.name == "ticket" else []
    first, _, last = script()
    steps = [first, says("", call(refund.name, "c1", amount=5)), *waits, last]

    async def talk() -> None:
        runner = runner_of(adk, steps, refund)
        waiting = await asked(adk, runner, QUESTION)
        await asked(adk, runner, reply(waiting, **decision))

    asyncio.run(talk())

    turn = adk.turn()
    assert (turn["user"], turn["final"]) == (QUESTION, "Refunded.")
    assert turn["tools"] == [LOOKED, ("c1", refund.name, {"amount": 5}, result)]
    assert turn["intermediate"] == ["Let me look.", *(["I wait."] if waits and says_so else [])]


def test_an_invocation_that_another_process_goes_on_with_replaces_what_has_paused() -> None:
    """Both records have the id of the invocation; a store takes the later revision."""
    refund, sessions = FunctionTool(paid, require_confirmation=True), InMemorySessionService()
    first, _, last = script()

    async def talk() -> None:
        with tapped(Adk, differ=["errors"]) as tap:
            tap.driver.sessions = sessions
            steps = [first, says("", call("paid", "c1", amount=5))]
            waiting = await asked(tap, runner_of(tap, steps, refund), QUESTION)
            paused = tap.recorder.cases[-1]
        with tapped(Adk, differ=["errors"]) as tap:
            tap.driver.sessions = sessions
            await asked(tap, runner_of(tap, [last], refund), reply(waiting, confirmed=True))
            turn, case = tap.turn(), tap.recorder.cases[-1]
        ids = [one["actualConversation"][0]["invocationId"] for one in (paused, case)]
        assert ids[0] == ids[1]
        assert paused["source"]["revision"] < case["source"]["revision"]
        assert (turn["user"], turn["final"]) == (QUESTION, "Refunded.")
        assert turn["tools"] == [LOOKED, ("c1", "paid", {"amount": 5}, "yes: 5")]

    asyncio.run(talk())


# -- Pydantic AI -------------------------------------------------------------------------------------


@pytest.fixture
def pydantic() -> Iterator[Tap[PydanticAI]]:
    with tapped(PydanticAI) as tap:
        yield tap


def asks(amount: int) -> str:
    """Refund once a person agrees."""
    raise ApprovalRequired


def elsewhere(amount: int) -> str:
    """Refund in the user's browser."""
    raise CallDeferred


Decision = Callable[[], DeferredToolResults]
DECISIONS: list[tuple[Any, Decision, str]] = [
    (asks, lambda: DeferredToolResults(approvals={"c1": ToolDenied("Not now.")}), "Not now."),
    (elsewhere, lambda: DeferredToolResults(calls={"c1": "done"}), "done"),
]


@pytest.mark.parametrize(("refund", "decision", "result"), DECISIONS, ids=["denied", "external"])
@pytest.mark.parametrize("has_session", [True, False])
def test_deferred_tools_with_their_results_are_one_turn(
    pydantic: Tap[PydanticAI], refund: Any, decision: Decision, result: str, has_session: bool
) -> None:
    refund.__name__ = "refund"
    spec = AgentSpec(script(), [look, refund])
    agent = pydantic.driver.build(spec, output_type=[str, DeferredToolRequests])
    session: Any = {"conversation_id": "s1"} if has_session else {}

    async def talk() -> None:
        paused = await agent.run(QUESTION, **session)
        known, results = paused.all_messages(), decision()
        await agent.run(message_history=known, deferred_tool_results=results, **session)

    asyncio.run(talk())

    turn = pydantic.turn()
    assert (turn["user"], turn["final"]) == (QUESTION, "Refunded.")
    assert turn["tools"] == [LOOKED, ("c1", "refund", {"amount": 5}, result)]
    assert turn["intermediate"] == ["Let me look."]


def test_a_call_that_a_person_changes_has_the_arguments_that_it_was_made_with(
    pydantic: Tap[PydanticAI],
) -> None:
    agent = pydantic.driver.build(
        AgentSpec(script(), [look]), output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain(requires_approval=True)
    def refund(amount: int) -> str:
        """Refund."""
        return f"yes: {amount}"

    async def talk() -> None:
        paused = await agent.run(QUESTION, conversation_id="s1")
        known = paused.all_messages()
        results = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"amount": 3})})
        await agent.run(message_history=known, deferred_tool_results=results, conversation_id="s1")

    asyncio.run(talk())

    assert pydantic.turn()["tools"][1][3] == "yes: 3"


def test_a_user_who_asks_again_has_two_turns(pydantic: Tap[PydanticAI]) -> None:
    steps = [
        says("", call("refund", "call_0", amount=5)),
        says("", call("refund", "call_0", amount=5)),
    ]
    asks.__name__ = "refund"
    agent = pydantic.driver.build(AgentSpec(steps, [asks]), output_type=[str, DeferredToolRequests])

    async def talk() -> None:
        for _ in range(2):
            await agent.run(QUESTION, conversation_id="s1")

    asyncio.run(talk())

    assert [(turn["user"], turn["final"]) for turn in pydantic.turns()] == [(QUESTION, None)] * 2


def test_a_run_that_goes_on_in_another_process_has_the_question_and_the_earlier_calls() -> None:
    async def talk() -> None:
        with tapped(PydanticAI) as first:
            spec = AgentSpec(script(), [look, elsewhere])
            agent = first.driver.build(spec, output_type=[str, DeferredToolRequests])
            paused = await agent.run(QUESTION, conversation_id="s1")
        with tapped(PydanticAI) as second:
            spec = AgentSpec(script()[2:], [look, elsewhere])
            agent = second.driver.build(spec, output_type=[str, DeferredToolRequests])
            results = DeferredToolResults(calls={"c1": "done"})
            known = paused.all_messages()
            await agent.run(
                message_history=known, deferred_tool_results=results, conversation_id="s1"
            )
            turn = second.turn()
            assert (turn["user"], turn["final"]) == (QUESTION, "Refunded.")
            assert turn["tools"] == [LOOKED, ("c1", "refund", {"amount": 5}, "done")]

    elsewhere.__name__ = "refund"
    asyncio.run(talk())
