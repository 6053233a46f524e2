"""The LangChain handler and OpenInference's spans tell the same turns of real agents and graphs."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from openinference.instrumentation.langchain import LangChainInstrumentor
from pydantic import BaseModel

from evaltap.recorder.plugins.langchain import EvaltapHandler
from inline_recorder import InlineRecorder
from scripted_langchain import Step, StreamingModel, call, get_order, in_stock, say, scripted
from witness import Witness, facts_of

ORDER = '{"order_id": "A", "total": 42.5}'


class Verdict(BaseModel):
    """A structured answer."""

    ok: bool


@pytest.fixture
def witness() -> Iterator[Witness]:
    found = Witness()
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=found.provider)
    yield found
    instrumentor.uninstrument()


@pytest.fixture
def recorder() -> Iterator[InlineRecorder]:
    """A plugin alone, for what the spans tell otherwise."""
    found = InlineRecorder()
    yield found
    assert found.faults == []


def agent_of(*steps: Step, tools: Any = (), **options: Any) -> Any:
    options = {"name": "support", "checkpointer": InMemorySaver(), **options}
    return create_agent(scripted(*steps), list(tools), **options)


def config(recorder: InlineRecorder, thread: str = "s1", **metadata: Any) -> Any:
    return {
        "callbacks": [EvaltapHandler(recorder=recorder)],
        "configurable": {"thread_id": thread},
        "metadata": metadata,
    }


def user(text: str) -> Any:
    return {"messages": [("user", text)]}


def test_one_tool(witness: Witness) -> None:
    agent = agent_of(
        say("Let me see.", call("get_order", "c1", order_id="A")),
        say("Delivered."),
        tools=[get_order],
    )

    agent.invoke(user("Where is A?"), config(witness.by_plugin))

    turn = witness.turn()
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]
    assert (turn["intermediate"], turn["agents"]) == (["Let me see."], ["support"])
    telemetry = witness.by_plugin.cases[0]["actualConversation"][0]["telemetry"]
    assert (telemetry["inputTokens"], telemetry["outputTokens"]) == (22, 10)


def test_parallel_tools(witness: Witness) -> None:
    agent = agent_of(
        say("", call("get_order", "p1", order_id="A"), call("get_order", "p2", order_id="B")),
        say("Both."),
        tools=[get_order],
    )

    agent.invoke(user("Where?"), config(witness.by_plugin))

    assert [tool[0] for tool in witness.turn(parallel=True)["tools"]] == ["p1", "p2"]


def test_a_tool_error_that_the_model_is_told_of_is_a_failed_call(witness: Witness) -> None:
    agent = agent_of(
        say("", call("in_stock", "c1", wrong="X")),
        say("", call("in_stock", "c2", sku="X9")),
        say("Three."),
        tools=[in_stock],
    )

    agent.invoke(user("In stock?"), config(witness.by_plugin))

    turn = witness.turn()
    assert turn["tools"][0][3].startswith("Error invoking tool 'in_stock'")
    assert turn["errors"][0]["type"].endswith(".ValidationError")
    assert turn["tools"][1] == ("c2", "in_stock", {"sku": "X9"}, "3")
    assert (turn["final"], turn["status"]) == ("Three.", "ok")


def test_a_tool_message_with_status_error_is_a_failed_call(witness: Witness) -> None:
    @tool
    def check(tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Report a failure."""
        return ToolMessage("down", tool_call_id=tool_call_id, status="error")

    agent = agent_of(say("", call("check", "c1")), say("Sorry."), tools=[check])

    agent.invoke(user("In stock?"), config(witness.by_plugin))

    turn = witness.turn()
    assert turn["tools"] == [("c1", "check", {}, "down")]
    assert turn["errors"] == [{"message": "down"}]


def test_a_tool_that_does_not_exist_is_a_call_with_what_the_model_was_told(
    witness: Witness,
) -> None:
    agent = agent_of(say("", call("sell", "c1", sku="X9")), say("I cannot."), tools=[in_stock])

    agent.invoke(user("Sell it"), config(witness.by_plugin))

    (case,) = witness.by_plugin.cases
    (found,) = case["actualConversation"][0]["tools"]
    assert (found["id"], found["name"], found["arguments"]) == ("c1", "sell", {"sku": "X9"})
    assert "not a valid tool" in found["result"]


def test_a_tool_that_raises_fails_the_run(witness: Witness) -> None:
    agent = agent_of(say("Hm.", call("in_stock", "c1", sku="X0")), tools=[in_stock])

    with pytest.raises(RuntimeError, match="inventory down"):
        agent.invoke(user("In stock?"), config(witness.by_plugin))

    turn = witness.turn()
    failure = {"type": "RuntimeError", "message": "inventory down"}
    assert (turn["errors"], turn["error"], turn["status"]) == ([failure], failure, "error")
    assert (turn["final"], turn["intermediate"]) == (None, ["Hm."])


def test_a_model_that_raises_fails_the_run(witness: Witness) -> None:
    agent = agent_of(TimeoutError("slow"))

    with pytest.raises(TimeoutError):
        agent.invoke(user("Hi"), config(witness.by_plugin))

    turn = witness.turn()
    assert (turn["user"], turn["error"]) == ("Hi", {"type": "TimeoutError", "message": "slow"})


def test_three_turns_of_a_session(witness: Witness) -> None:
    agent = agent_of(
        say("Which?"),
        say("", call("get_order", "c1", order_id="A")),
        say("Delivered."),
        say("Bye."),
        tools=[get_order],
    )

    for text in ("Hi", "A", "Thanks"):
        agent.invoke(user(text), config(witness.by_plugin))

    turns = witness.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "A", "Thanks"]
    assert [turn["final"] for turn in turns] == ["Which?", "Delivered.", "Bye."]
    assert [len(turn["tools"]) for turn in turns] == [0, 1, 0]


def test_an_agent_inside_a_tool_is_part_of_the_turn(witness: Witness) -> None:
    researcher = agent_of(
        say("hm", call("get_order", "n2", order_id="A")),
        say("A is there."),
        tools=[get_order],
        name="researcher",
        checkpointer=None,
    )

    @tool
    def research(question: str) -> str:
        """Ask the researcher."""
        return str(researcher.invoke(user(question))["messages"][-1].content)

    boss = agent_of(
        say("", call("research", "n1", question="find A")),
        say("Good news."),
        tools=[research],
        name="boss",
    )

    boss.invoke(user("Where is A?"), config(witness.by_plugin))

    turn = witness.turn()
    assert (turn["user"], turn["final"], turn["intermediate"]) == ("Where is A?", "Good news.", [])
    assert turn["tools"] == [
        ("n1", "research", {"question": "find A"}, "A is there."),
        ("n2", "get_order", {"order_id": "A"}, ORDER),
    ]
    assert (turn["agents"], turn["parents"]) == (["boss", "researcher"], [None, "n1"])


def test_a_graph_of_agents_is_one_turn(witness: Witness) -> None:
    first = agent_of(
        say("Looking.", call("get_order", "c1", order_id="A")),
        say("A is there."),
        tools=[get_order],
        name="clerk",
        checkpointer=None,
    )
    second = agent_of(say("Your order A is there."), name="editor", checkpointer=None)
    graph = StateGraph(MessagesState)
    graph.add_node("clerk", first)
    graph.add_node("editor", second)
    graph.add_edge(START, "clerk")
    graph.add_edge("clerk", "editor")
    graph.add_edge("editor", END)

    graph.compile(checkpointer=InMemorySaver()).invoke(user("Where?"), config(witness.by_plugin))

    turn = witness.turn()
    assert (turn["user"], turn["final"]) == ("Where?", "Your order A is there.")
    assert turn["intermediate"] == ["Looking.", "A is there."]
    assert (turn["agents"], turn["parents"]) == (["clerk"], [None])


def test_a_tool_that_hands_over_by_a_command_stays_in_the_turn(witness: Witness) -> None:
    @tool
    def to_billing(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hand over to billing."""
        told = ToolMessage("handed over", tool_call_id=tool_call_id, name="to_billing")
        return Command(goto="billing", update={"messages": [told]}, graph=Command.PARENT)

    triage = agent_of(
        say("One moment.", call("to_billing", "h1")),
        tools=[to_billing],
        name="triage",
        checkpointer=None,
    )
    billing = agent_of(say("Billed."), name="billing", checkpointer=None)
    graph = StateGraph(MessagesState)
    graph.add_node("triage", triage, destinations=("billing",))
    graph.add_node("billing", billing)
    graph.add_edge(START, "triage")
    graph.add_edge("billing", END)

    graph.compile(checkpointer=InMemorySaver()).invoke(user("Bill me"), config(witness.by_plugin))

    turn = witness.turn()
    assert (turn["user"], turn["final"], turn["status"]) == ("Bill me", "Billed.", "ok")
    assert turn["tools"] == [("h1", "to_billing", {}, "handed over")]


def test_a_structured_answer_is_the_final_response(witness: Witness) -> None:
    agent = agent_of(say("", call("Verdict", "c1", ok=True)), response_format=ToolStrategy(Verdict))

    agent.invoke(user("Ok?"), config(witness.by_plugin))

    turn = witness.turn()
    assert turn["final"] == '{"ok":true}'


@pytest.mark.parametrize("mode", ["values", "messages"])
def test_a_streamed_run_is_one_turn(witness: Witness, mode: str) -> None:
    steps = [say("", call("get_order", "c1", order_id="A")), say("It is delivered.")]
    agent: Any = create_agent(StreamingModel(steps=steps), [get_order], name="support")

    for _ in agent.stream(user("Where?"), config(witness.by_plugin), stream_mode=mode):
        pass

    turn = witness.turn()
    assert (turn["final"], turn["intermediate"]) == ("It is delivered.", [])
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]


def test_concurrent_sessions_do_not_mix(witness: Witness) -> None:
    async def talk() -> None:
        runs = (
            agent_of(
                say("", call("get_order", f"c{number}", order_id=f"A-{number}")),
                say(f"Answer {number}"),
                tools=[get_order],
            ).ainvoke(user(f"Question {number}"), config(witness.by_plugin, f"s{number}"))
            for number in range(4)
        )
        await asyncio.gather(*runs)

    asyncio.run(talk())

    turns = sorted(witness.turns(), key=lambda turn: str(turn["session"]))
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        (f"s{number}", f"Question {number}", f"Answer {number}") for number in range(4)
    ]
    assert [turn["tools"][0][0] for turn in turns] == ["c0", "c1", "c2", "c3"]


def test_a_cancelled_run_is_incomplete(recorder: InlineRecorder) -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Never come back."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async def talk() -> None:
        agent = agent_of(say("Wait.", call("hang", "c1")), tools=[hang])
        task = asyncio.create_task(agent.ainvoke(user("Hang"), config(recorder)))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(talk())

    (turn,) = facts_of(recorder.cases)
    assert (turn["status"], turn["final"]) == ("incomplete", None)
    assert turn["intermediate"] == ["Wait."]
    assert turn["tools"] == [("c1", "hang", {}, None)]


def test_an_interrupted_run_is_a_turn_without_answer_and_its_call_no_error(
    recorder: InlineRecorder,
) -> None:
    @tool
    def approve(amount: int) -> str:
        """Ask a human."""
        return str(interrupt({"amount": amount}))

    agent = agent_of(say("", call("approve", "c1", amount=5)), say("Refunded."), tools=[approve])

    agent.invoke(user("Refund me"), config(recorder))
    agent.invoke(Command(resume="yes"), config(recorder))

    first, second = facts_of(recorder.cases)
    assert (first["final"], first["status"], first["errors"]) == (None, "ok", [None])
    assert (second["final"], second["tools"][0][3]) == ("Refunded.", "yes")


def test_a_chain_without_an_agent_is_a_turn(recorder: InlineRecorder) -> None:
    chain = ChatPromptTemplate.from_template("Be kind. {question}") | scripted(say("Because."))

    chain.invoke({"question": "Why?"}, config(recorder, session_id="other"))

    (turn,) = facts_of(recorder.cases)
    assert (turn["user"], turn["final"], turn["session"]) == ("Why?", "Because.", "other")


def test_a_model_alone_is_a_turn(witness: Witness) -> None:
    scripted(say("Fine.")).invoke(
        [HumanMessage("How are you?")],
        {
            "callbacks": [EvaltapHandler(recorder=witness.by_plugin)],
            "metadata": {"session_id": "s"},
        },
    )

    turn = witness.turn()
    assert (turn["session"], turn["user"], turn["final"]) == ("s", "How are you?", "Fine.")


def test_what_calls_no_model_and_no_tool_is_no_turn(recorder: InlineRecorder) -> None:
    RunnableLambda(str.upper).invoke("hi", config(recorder))
    get_order.invoke({"order_id": "A"}, config(recorder))

    assert recorder.observations == []


def test_arguments_do_not_hold_what_the_framework_injects(recorder: InlineRecorder) -> None:
    from langgraph.prebuilt import InjectedState

    @tool
    def count(unit: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Count the messages."""
        return str(len(state["messages"]))

    agent = agent_of(say("", call("count", "c1", unit="m")), say("Two."), tools=[count])

    agent.invoke(user("How many?"), config(recorder))

    (turn,) = facts_of(recorder.cases)
    assert turn["tools"] == [("c1", "count", {"unit": "m"}, "2")]


def test_a_tool_node_that_handles_errors_is_seen_to_fail(witness: Witness) -> None:
    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def onward(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    model = scripted(say("", call("in_stock", "c1", sku="X0")), say("Sorry."))
    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode([in_stock], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", onward)
    graph.add_edge("tools", "model")

    graph.compile().invoke(user("In stock?"), config(witness.by_plugin))

    turn = witness.turn()
    assert turn["errors"] == [{"type": "RuntimeError", "message": "inventory down"}]
    assert "inventory down" in turn["tools"][0][3]
    assert (turn["status"], turn["final"]) == ("ok", "Sorry.")


class Broken(InlineRecorder):
    """A recorder that cannot take anything."""

    def observe(self, observation: object) -> None:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_the_agent() -> None:
    recorder = Broken()
    agent = agent_of(
        say("", call("get_order", "c1", order_id="A")), say("Delivered."), tools=[get_order]
    )

    result = agent.invoke(user("Where?"), config(recorder))

    assert result["messages"][-1].content == "Delivered."
    assert recorder.faults
