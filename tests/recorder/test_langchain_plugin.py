"""Special features of the LangChain plugin; common behaviour is tested in the plugin contract."""

import threading
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware, wrap_tool_call
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.content import create_text_block
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from pydantic import BaseModel

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.plugins.langchain import EvaltapHandler
from plugin_drivers.driver import ALL, AgentSpec, Step, Tap, call, get_order, says, tapped
from plugin_drivers.langchain import LangChain, memory, model, user


class Verdict(BaseModel):
    """A structured answer."""

    ok: bool


@tool
def in_stock(sku: str) -> str:
    """Check the stock."""
    if sku == "X0":
        raise RuntimeError("inventory down")
    return "3"


@pytest.fixture
def tap() -> Iterator[Tap[LangChain]]:
    with tapped(LangChain) as tap:
        yield tap


@pytest.fixture
def alone() -> Iterator[Tap[LangChain]]:
    """The plugin without spans, for what they tell otherwise."""
    with tapped(LangChain, differ=[ALL]) as tap:
        yield tap


def agent_of(*steps: Step, tools: Any = (), **options: Any) -> Any:
    return create_agent(model(*steps), list(tools), checkpointer=memory(), **options)


def test_a_call_with_wrong_arguments_is_a_failed_call(tap: Tap[LangChain]) -> None:
    agent = agent_of(
        says("", call("in_stock", "c1", wrong="X")),
        says("", call("in_stock", "c2", sku="X9")),
        says("Three."),
        tools=[in_stock],
    )

    agent.invoke(user("In stock?"), tap.driver.config())

    turn = tap.turn()
    assert turn["tools"][0][3].startswith("Error invoking tool 'in_stock'")
    assert turn["errors"][0]["type"].endswith(".ValidationError")
    assert turn["tools"][1] == ("c2", "in_stock", {"sku": "X9"}, "3")
    assert (turn["final"], turn["status"]) == ("Three.", "ok")


def test_a_tool_message_with_status_error_is_a_failed_call(tap: Tap[LangChain]) -> None:
    @tool
    def check(tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Report a failure."""
        return ToolMessage("down", tool_call_id=tool_call_id, status="error")

    agent = agent_of(says("", call("check", "c1")), says("Sorry."), tools=[check])

    agent.invoke(user("In stock?"), tap.driver.config())

    turn = tap.turn()
    assert turn["tools"] == [("c1", "check", {}, "down")]
    assert turn["errors"] == [{"message": "down"}]


def test_a_tool_node_that_handles_errors_is_seen_to_fail(tap: Tap[LangChain]) -> None:
    scripted = model(says("", call("in_stock", "c1", sku="X0")), says("Sorry."))

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [scripted.invoke(state["messages"])]}

    def onward(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode([in_stock], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", onward)
    graph.add_edge("tools", "model")

    graph.compile().invoke(user("In stock?"), tap.driver.config())

    turn = tap.turn()
    assert turn["errors"] == [{"type": "RuntimeError", "message": "inventory down"}]
    assert "inventory down" in turn["tools"][0][3]
    assert (turn["status"], turn["final"]) == ("ok", "Sorry.")


def test_parallel_calls_are_in_the_models_order_whichever_tool_starts_first(
    tap: Tap[LangChain],
) -> None:
    second_ran = threading.Event()

    @wrap_tool_call
    def second_first(request: Any, handler: Any) -> Any:
        if request.tool_call["id"] == "c1":
            assert second_ran.wait(60)
        result = handler(request)
        second_ran.set()
        return result

    agent = agent_of(
        says("", call("in_stock", "c1", sku="X1"), call("in_stock", "c2", sku="X2")),
        says("Three each."),
        tools=[in_stock],
        middleware=[second_first],
    )

    agent.invoke(user("In stock?"), tap.driver.config())

    assert tap.turn()["tools"] == [
        ("c1", "in_stock", {"sku": "X1"}, "3"),
        ("c2", "in_stock", {"sku": "X2"}, "3"),
    ]


def test_parallel_agents_may_use_the_same_ids(alone: Tap[LangChain]) -> None:
    both = threading.Barrier(2, timeout=60)

    @wrap_tool_call
    def when_both_have_asked(request: Any, handler: Any) -> Any:
        both.wait()
        return handler(request)

    @tool
    def price(sku: str) -> str:
        """Look up the price."""
        return f"{sku} costs 5"

    graph = StateGraph(MessagesState)
    for sku in ("X1", "X2"):
        said = says("", call("price", "c1", sku=sku)), says(f"{sku} is 5.")
        agent = create_agent(model(*said), [price], name=sku, middleware=[when_both_have_asked])
        graph.add_node(sku, agent)
        graph.add_edge(START, sku)

    graph.compile().invoke(user("Prices?"), alone.driver.config())

    turn = alone.turn()
    made = [(*one[1:], agent) for one, agent in zip(turn["tools"], turn["agents"], strict=True)]
    assert sorted(made, key=str) == [
        ("price", {"sku": "X1"}, "X1 costs 5", "X1"),
        ("price", {"sku": "X2"}, "X2 costs 5", "X2"),
    ]


def test_a_call_whose_retry_succeeds_has_not_failed(alone: Tap[LangChain]) -> None:
    fails = iter([True, False])

    @tool
    def count(sku: str) -> str:
        """Check the stock."""
        if next(fails):
            raise ConnectionError("reset")
        return "3"

    agent = agent_of(
        says("", call("count", "c1", sku="X1")),
        says("Three."),
        tools=[count],
        middleware=[ToolRetryMiddleware(max_retries=1, initial_delay=0)],
    )

    agent.invoke(user("In stock?"), alone.driver.config())

    turn = alone.turn()
    assert turn["tools"] == [("c1", "count", {"sku": "X1"}, "3")]
    assert turn["errors"] == [None]


def test_a_graph_of_agents_is_one_turn(tap: Tap[LangChain]) -> None:
    looks = [says("Looking.", call("get_order", "c1", order_id="A")), says("A is there.")]
    clerk = AgentSpec(looks, [get_order], name="clerk")
    editor = AgentSpec([says("Your order A is there.")], name="editor")
    graph = StateGraph(MessagesState)
    graph.add_node("clerk", tap.driver.build(clerk))
    graph.add_node("editor", tap.driver.build(editor))
    graph.add_edge(START, "clerk")
    graph.add_edge("clerk", "editor")
    graph.add_edge("editor", END)

    graph.compile(checkpointer=memory()).invoke(user("Where?"), tap.driver.config())

    turn = tap.turn()
    assert (turn["user"], turn["final"]) == ("Where?", "Your order A is there.")
    assert turn["intermediate"] == ["Looking.", "A is there."]
    assert (turn["agents"], turn["parents"]) == (["clerk"], [None])


def test_a_structured_answer_is_the_final_response(tap: Tap[LangChain]) -> None:
    agent = agent_of(
        says("", call("Verdict", "c1", ok=True)), response_format=ToolStrategy(Verdict)
    )

    agent.invoke(user("Ok?"), tap.driver.config())

    assert tap.turn()["final"] == '{"ok":true}'


def test_a_chain_without_an_agent_is_a_turn(alone: Tap[LangChain]) -> None:
    chain = ChatPromptTemplate.from_template("Be kind. {question}") | model(says("Because."))

    chain.invoke({"question": "Why?"}, alone.driver.config(session_id="other"))

    turn = alone.turn()
    assert (turn["user"], turn["final"], turn["session"]) == ("Why?", "Because.", "other")


PROMPT = ChatPromptTemplate.from_template("Facts: {facts} Answer: {question}")
FACTS: Any = {"question": RunnablePassthrough(), "facts": RunnableLambda(lambda _: "None.")}


@pytest.mark.parametrize(
    ("before", "given"),
    [(PROMPT.partial(facts="None."), {"question": "When?"}), (FACTS | PROMPT, "When?")],
)
def test_the_user_message_of_a_streamed_chain_is_its_input(
    alone: Tap[LangChain], before: Any, given: object
) -> None:
    chain = before | model(says("Tomorrow."))

    for _ in chain.stream(given, alone.driver.config()):
        pass

    turn = alone.turn()
    assert (turn["user"], turn["final"]) == ("When?", "Tomorrow.")


def test_a_model_alone_is_a_turn(tap: Tap[LangChain]) -> None:
    config: Any = {"callbacks": [tap.driver.handler], "metadata": {"session_id": "s"}}

    model(says("Fine.")).invoke([HumanMessage("How are you?")], config)

    turn = tap.turn()
    assert (turn["session"], turn["user"], turn["final"]) == ("s", "How are you?", "Fine.")


def test_what_calls_no_model_and_no_tool_is_no_turn(alone: Tap[LangChain]) -> None:
    RunnableLambda(str.upper).invoke("hi", alone.driver.config())
    tool(get_order).invoke({"order_id": "A"}, alone.driver.config())

    assert alone.recorder.observations == []
    assert alone.recorder.faults == []


def test_arguments_do_not_hold_what_the_framework_injects(alone: Tap[LangChain]) -> None:
    @tool
    def count(unit: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Count the messages."""
        return str(len(state["messages"]))

    agent = agent_of(says("", call("count", "c1", unit="m")), says("Two."), tools=[count])

    agent.invoke(user("How many?"), alone.driver.config())

    assert alone.turn()["tools"] == [("c1", "count", {"unit": "m"}, "2")]


def test_content_blocks_are_recorded_without_the_random_ids_of_langchain(
    alone: Tap[LangChain],
) -> None:
    @tool
    def find(sku: str) -> list[Any]:
        """Find one, as the tool of an MCP server does."""
        return [create_text_block("A"), create_text_block("B"), {"type": "text", "id": "b-7"}]

    agent = agent_of(says("", call("find", "c1", sku="A")), says("There."), tools=[find])

    agent.invoke(user("Where?"), alone.driver.config())

    ((*_, result),) = alone.turn()["tools"]
    texts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert result == [*texts, {"type": "text", "id": "b-7"}]


def test_what_a_graph_keeps_beside_its_messages_is_the_state_after_the_turn(
    alone: Tap[LangChain],
) -> None:
    class Shop(MessagesState):
        cart: list[str]
        draft: str

    answering = model(says("Added."))

    def add(state: Shop) -> Any:
        return {"messages": [answering.invoke(state["messages"])], "cart": ["A-1"]}

    graph = StateGraph(Shop)
    graph.add_node("add", add)
    graph.add_edge(START, "add")
    graph.add_edge("add", END)

    before: Any = {"messages": [("user", "One A-1.")], "cart": [], "draft": "x"}
    graph.compile().invoke(before, alone.driver.config())

    (case,) = alone.recorder.cases
    assert case["actualConversation"][0]["state"] == {"cart": ["A-1"], "draft": "x"}


def test_parallel_branches_that_call_their_models_at_once_are_one_turn() -> None:
    class Slow(dict[str, Any]):
        """An input that is still read when the second branch calls its model."""

        def get(self, key: str, default: Any = None) -> Any:
            reading.set()
            began.wait(5)
            second.join(0.2)
            return super().get(key, default)

    sink, reading, began = MemorySink(), threading.Event(), threading.Event()
    recorder = Recorder(sink=sink)
    handler = EvaltapHandler(recorder=recorder)
    root, branches = uuid4(), [uuid4(), uuid4()]

    def calls_model(branch: UUID, said: str) -> None:
        given: list[BaseMessage] = [HumanMessage(f"for the {said} branch")]
        handler.on_chat_model_start({}, [given], run_id=branch, parent_run_id=root)
        message = ChatGeneration(message=AIMessage(said))
        handler.on_llm_end(LLMResult(generations=[[message]]), run_id=branch)

    handler.on_chain_start({}, Slow(messages=[HumanMessage("Both, please")]), run_id=root)
    first = threading.Thread(target=calls_model, args=(branches[0], "first"))
    second = threading.Thread(target=calls_model, args=(branches[1], "second"))
    first.start()
    assert reading.wait(5)
    second.start()
    began.set()
    first.join()
    second.join()
    handler.on_chain_end({"messages": [AIMessage("Done.")]}, run_id=root)
    recorder.close()

    (case,) = sink.cases
    (turn,) = case["actualConversation"]
    said = [one["content"] for one in turn["intermediateResponses"]]
    assert (turn["userContent"]["content"], sorted(said)) == ("Both, please", ["first", "second"])
