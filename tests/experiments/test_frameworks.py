"""The contract of a framework's adapter: what an experiment records is what the plugin records in production.

Agents are those of the plugin contract: real, with scripted models.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from evaltap.experiments.agents.loading import agent_of
from evaltap.recorder import MemorySink, Recorder
from evaltap.schemas.errors import InputError
from plugin_drivers import (
    Adk,
    ClaudeAgent,
    LangChain,
    OpenAIAgents,
    OpenAIRunHooks,
    PydanticAI,
    Strands,
)
from plugin_drivers.driver import AgentSpec, Driver, call, get_order, says
from plugin_drivers.langchain import model as langchain_model
from support.worlds.framework_runs import FRAMEWORKS, Runs, agent_for_a_run, unit_of, without_ids


def in_stock(sku: str) -> str:
    """Check the stock, and fail."""
    raise RuntimeError("inventory down")


def shop() -> AgentSpec:
    """Return an agent with words before a call, parallel calls, a failing tool, and two turns."""
    return AgentSpec(
        [
            says("Let me see.", call("get_order", "c1", order_id="A")),
            says("", call("get_order", "c2", order_id="B"), call("in_stock", "c3", sku="X")),
            says("Delivered."),
            says("Bye."),
        ],
        tools=[get_order, in_stock],
        instruction="You know all orders.",
    )


def in_production(
    kind: type[Driver], spec: AgentSpec, turns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the cases that the plugin alone records of these turns."""
    runs = Runs()
    driver = kind(runs.recorder)

    async def talk() -> None:
        agent = driver.agent(spec)
        for turn in turns:
            await driver.ask(agent, turn)

    with driver.installed():
        asyncio.run(talk())
    return runs.cases()


def frameworks(*without: type[Driver]) -> pytest.MarkDecorator:
    """Run a test with every framework but some."""
    kinds = [kind for kind in FRAMEWORKS if kind not in without]
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


@frameworks()
def test_a_run_records_what_the_plugin_records_in_production(
    kind: type[Driver], runs: Runs
) -> None:
    turns = ["Where is A?", "Thanks"]
    expected = in_production(kind, shop(), turns)

    (end,) = runs.run(
        agent_for_a_run(kind, shop, turns), unit_of(*turns, app_name="shop", user_id="u")
    )

    cases = runs.cases()
    assert (end.state, end.reason, end.turns) == ("ended", "", 2)
    assert [without_ids(one) for one in cases] == [without_ids(one) for one in expected]
    for case in cases:
        assert (case["evalSetId"], case["evalId"]) == ("golden", "c-1")
        assert (case["source"]["run"], case["source"]["trial"]) == ("x1.2", 2)
        assert case["sessionInput"]["appName"] == "shop"


def with_a_helper(kind: type[Driver]) -> AgentSpec:
    """Return an agent that uses another one as a tool."""
    delegation = kind(Recorder(sink=MemorySink(), disabled=True)).delegation
    helper = AgentSpec(
        [says("", call("get_order", "n2", order_id="A")), says("A is there.")],
        tools=[get_order],
        name="researcher",
    )
    return AgentSpec(
        [says("", delegation("n1", "researcher", "find A")), says("Good news.")],
        name="boss",
        delegate=helper,
    )


# ADK's own AgentTool builds its runner in a way that ADK deprecates.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
# The run hooks are not passed on, and pydantic-ai's inner agent is known to nobody but the tool.
@frameworks(OpenAIRunHooks, PydanticAI)
def test_an_agent_as_a_tool_is_recorded_as_in_production(kind: type[Driver], runs: Runs) -> None:
    expected = in_production(kind, with_a_helper(kind), ["Where is A?"])

    runs.run(agent_for_a_run(kind, lambda: with_a_helper(kind), ["?"]), unit_of("Where is A?"))

    cases = runs.cases()
    assert [without_ids(one) for one in cases] == [without_ids(one) for one in expected]
    assert [one.get("parentId") for one in cases[0]["actualConversation"][0]["tools"]] == [
        None,
        "n1",
    ]


@frameworks(ClaudeAgent)
def test_units_that_share_an_agent_are_strangers(kind: type[Driver], runs: Runs) -> None:
    agent = agent_for_a_run(kind, lambda: AgentSpec([says("Hello.")] * 6), [])
    units = [unit_of("Hi", "Again", eval_id=f"c-{number}") for number in range(3)]

    ends = runs.run(agent, *units)

    assert [(end.state, end.reason) for end in ends] == [("ended", "")] * 3
    assert runs.recorder.conversations() == {
        unit.eval_id: [["Hi"], ["Again", "Hello.", "Hi"]] for unit in units
    }


CONTEXT = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I am Ann."},
    {"role": "assistant", "content": "Hello, Ann."},
)


@frameworks(ClaudeAgent)
def test_the_context_of_a_case_reaches_the_model(kind: type[Driver], runs: Runs) -> None:
    agent = agent_for_a_run(
        kind, lambda: AgentSpec([says("Ann.")], instruction="You know all."), []
    )

    (end,) = runs.run(agent, unit_of("Who am I?", context=CONTEXT))

    assert end.reason == ""
    (case,) = runs.cases()
    (turn,) = case["actualConversation"]
    told = [(one["role"], one["content"]) for one in turn["contextMessages"]]
    instructions = "\n".join(text for role, text in told if role == "system")
    assert "You know all." in instructions
    assert "Be brief." in instructions
    assert [one for one in told if one[0] != "system"] == [
        ("user", "I am Ann."),
        ("assistant", "Hello, Ann."),
    ]
    assert turn["userContent"]["content"] == "Who am I?"


@pytest.mark.parametrize("kind", [Adk, Strands], ids=lambda kind: kind.name)
def test_the_state_of_a_case_is_that_of_the_session(kind: type[Driver], runs: Runs) -> None:
    agent = agent_for_a_run(kind, lambda: AgentSpec([says("Ann.")] * 2), [])

    runs.run(agent, unit_of("Who am I?", state={"name": "Ann"}), unit_of("And I?", eval_id="c-2"))

    states = {case["evalId"]: case["sessionInput"].get("state") for case in runs.cases()}
    assert states == {"c-1": {"name": "Ann"}, "c-2": None}


def test_a_graph_takes_the_state_that_it_has(runs: Runs) -> None:
    def greet(state: Greeted) -> dict[str, Any]:
        said = langchain_model(says(f"Hello, {state['name']}.")).invoke(state["messages"])
        return {"messages": [said], "greetings": state.get("greetings", 0) + 1}

    graph = StateGraph(Greeted)
    graph.add_node("greet", greet)
    graph.add_edge(START, "greet")

    ends = runs.run(
        graph.compile(),
        unit_of("Hi", "Hi again", state={"name": "Ann"}),
        unit_of("Hi", state={"nmae": "Ann"}, eval_id="c-2"),
    )

    assert [end.reason for end in ends] == [
        "", "the graph's state has no 'nmae': messages, name, greetings",
    ]  # fmt: skip
    first, second = runs.cases()
    assert second["actualConversation"][0]["state"] == {"name": "Ann", "greetings": 2}
    assert first["actualConversation"][0]["finalResponse"]["content"] == "Hello, Ann."


class BlockingSaver(InMemorySaver):
    """A checkpointer that refuses an event loop, as that of SQLite does."""

    async def aget_tuple(self, config: Any) -> Any:
        raise NotImplementedError("use the synchronous methods")


def test_a_graph_whose_checkpointer_blocks_runs_on_a_thread(runs: Runs) -> None:
    driver = LangChain(Recorder(sink=MemorySink(), disabled=True))
    spec = AgentSpec([says("", call("get_order", "c1", order_id="A")), says("A."), says("B.")],
                     tools=[get_order])  # fmt: skip

    (end,) = runs.run(driver.build(spec, checkpointer=BlockingSaver()), unit_of("Hi", "Again"))

    assert end.reason == ""
    assert [case["evalId"] for case in runs.cases()] == ["c-1", "c-1"]
    assert runs.recorder.conversations() == {"c-1": [["Hi"], ["A.", "Again", "Hi"]]}


class Greeted(MessagesState):
    """The state of a graph that greets."""

    name: str
    greetings: int


PROMPT = ChatPromptTemplate.from_messages(
    [MessagesPlaceholder("chat_history", optional=True), ("user", "{question}")]
)
ONE_QUESTION = ChatPromptTemplate.from_template("{question}")


@pytest.mark.parametrize(
    ("chain", "before"),
    [
        (lambda: langchain_model(says("A"), says("B")), ["Hi", "A"]),
        (lambda: PROMPT | langchain_model(says("A"), says("B")), ["Hi", "A"]),
        (lambda: ONE_QUESTION | langchain_model(says("A"), says("B")), []),
    ],
    ids=["model", "chain with a history", "chain with a question"],
)
def test_a_chain_is_given_what_its_input_asks_for(
    chain: Callable[[], Any], before: list[str], runs: Runs
) -> None:
    agent = chain()
    assert agent_of(agent, runs.recorder).abilities.context == bool(before)

    (end,) = runs.run(agent, unit_of("Hi", "Go on"))

    assert end.reason == ""
    _, case = runs.cases()
    (turn,) = case["actualConversation"]
    assert turn["userContent"]["content"] == "Go on"
    assert turn["finalResponse"]["content"] == "B"
    assert runs.recorder.conversations() == {"c-1": [["Hi"], sorted(["Go on", *before])]}


def test_a_chain_of_two_inputs_is_refused(runs: Runs) -> None:
    chain = ChatPromptTemplate.from_template("{a} {b}") | langchain_model()

    with pytest.raises(InputError, match="RunnableSequence takes a, b; expected 'messages'"):
        agent_of(chain, runs.recorder)


@frameworks()
def test_what_an_agent_cannot_do_is_a_crash_with_its_reason(kind: type[Driver], runs: Runs) -> None:
    agent = agent_for_a_run(kind, lambda: AgentSpec([TimeoutError("slow")]), ["Hi"])

    (end,) = runs.run(agent, unit_of("Hi", "Never said"))

    assert (end.state, end.turns) == ("crashed", 1)
    assert "slow" in end.reason
    (case,) = runs.cases()
    assert case["actualConversation"][0]["telemetry"]["status"] == "error"


@frameworks(ClaudeAgent, PydanticAI)  # pydantic-ai asks again
def test_an_agent_that_says_nothing_has_not_answered(kind: type[Driver], runs: Runs) -> None:
    (end,) = runs.run(agent_for_a_run(kind, lambda: AgentSpec([says("")]), []), unit_of("Hi"))

    assert (end.state, end.reason) == ("crashed", "the agent ended without an answer")


@frameworks(ClaudeAgent)
def test_an_agent_that_hangs_is_cancelled_and_its_turn_recorded(
    kind: type[Driver], runs: Runs
) -> None:
    async def hang() -> str:
        """Never come back."""
        await asyncio.Event().wait()
        return ""

    spec = AgentSpec([says("", call("hang", "c1"))], tools=[hang])

    (end,) = runs.run(agent_for_a_run(kind, lambda: spec, []), unit_of("Hi"), turn_seconds=0.2)

    assert end.reason == "the agent did not answer within 0.2 s"
    (case,) = runs.cases()
    assert case["actualConversation"][0]["telemetry"]["status"] == "incomplete"


@pytest.mark.parametrize("count", [1, 2], ids=["messages", "messages and turn"])
def test_a_function_that_edits_its_messages_changes_no_later_turn(count: int, runs: Runs) -> None:
    context: tuple[dict[str, Any], ...] = ({"role": "system", "content": "Be kind."},)
    given: list[list[str]] = []

    def edits(messages: list[dict[str, Any]]) -> str:
        given.append([one["content"] for one in messages])
        for one in messages:
            one["content"] += " (be brief)"
        messages.append({"role": "system", "content": "More."})
        return "Yes."

    agent = edits if count == 1 else lambda messages, turn: edits(messages)

    (end,) = runs.run(agent, unit_of("One?", "Two?", context=context))

    assert (end.state, end.reason) == ("ended", "")
    assert given == [["Be kind.", "One?"], ["Be kind.", "One?", "Yes.", "Two?"]]


def test_a_factory_makes_an_agent_for_each_unit_and_says_what_it_can_take(runs: Runs) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(agent_for_a_run(Strands, lambda: AgentSpec([says("Hello.")]), []))
        return made[-1]

    units = [unit_of("Hi", eval_id=f"c-{number}", state={"a": 1}) for number in range(3)]
    ends = runs.run(make, *units)

    assert [end.reason for end in ends] == [""] * 3
    assert len(made) == 4, "the first is made to see what it can take"
    assert len(runs.cases()) == 3


def test_a_factory_may_lend_an_agent_with_what_it_needs(runs: Runs) -> None:
    agent = agent_for_a_run(PydanticAI, lambda: AgentSpec([says("Hello.")]), [])
    closed: list[bool] = []

    @asynccontextmanager
    async def lend() -> AsyncIterator[Any]:
        with agent.override(deps={"shop": 1}):
            yield agent
        closed.append(True)

    (end,) = runs.run(lend, unit_of("Hi"))

    assert (end.reason, len(closed)) == ("", 2)


def test_a_factory_that_returns_one_agent_again_records_it_once(runs: Runs) -> None:
    agent = agent_for_a_run(Strands, lambda: AgentSpec([says("Hello.")] * 2), [])

    runs.run(lambda: agent, unit_of("Hi"), unit_of("Hi", eval_id="c-2"))

    assert [case["evalId"] for case in runs.cases()] == ["c-1", "c-2"]


def test_a_team_of_strands_is_refused(runs: Runs) -> None:
    team = AgentSpec([], name="a", successor=AgentSpec([], name="b"))

    with pytest.raises(InputError, match="a Swarm of Strands is no agent with a conversation"):
        agent_of(agent_for_a_run(Strands, lambda: team, []), runs.recorder)


@pytest.mark.parametrize(
    ("kind", "can"),
    [
        (Adk, "state context"),
        (LangChain, "state context"),
        (OpenAIAgents, "context"),
        (PydanticAI, "context"),
        (Strands, "state context"),
    ],
)
def test_each_adapter_says_what_it_can_carry(kind: type[Driver], can: str, runs: Runs) -> None:
    abilities = agent_of(agent_for_a_run(kind, shop, []), runs.recorder).abilities

    assert [name for name in ("state", "context") if getattr(abilities, name)] == can.split()
    assert abilities.tools
    assert abilities.mocks
    assert abilities.tool_names == ["get_order", "in_stock"]


@pytest.mark.parametrize("kind", [OpenAIAgents, Strands], ids=lambda kind: kind.name)
def test_an_agent_that_runs_for_one_recorder_after_another_is_recorded_once_by_each(
    kind: type[Driver], runs: Runs
) -> None:
    agent = agent_for_a_run(kind, lambda: AgentSpec([says("Hello.")] * 2), [])
    later = Runs()

    runs.run(agent, unit_of("Hi"))
    later.run(agent, unit_of("Again", eval_id="c-2"))

    assert [case["evalId"] for case in runs.cases()] == ["c-1"]
    (case,) = later.cases()
    assert case["evalId"] == "c-2"
    assert later.recorder.conversations() == {"c-2": [["Again"]]}


CLI = """
import itertools, json, sys

if "-v" in sys.argv:
    sys.exit(print("99.0.0 (Claude Code)"))
(session,) = [one.removeprefix("--session-id=") for one in sys.argv if "--session-id=" in one]
hooks, numbers = {}, itertools.count()

def tell(**message):
    print(json.dumps({"session_id": session, **message}), flush=True)

def read():
    return json.loads(sys.stdin.readline() or "null")

def hook(event, **given):
    given = {"session_id": session, "prompt_id": "p", "cwd": "/", "transcript_path": "",
             "hook_event_name": event, **given}
    for callback in hooks.get(event, ()):
        request = {"subtype": "hook_callback", "callback_id": callback, "input": given}
        tell(type="control_request", request_id=str(next(numbers)), request=request)
        read()

while (said := read()) is not None:
    if said["type"] == "control_request":
        for event, matchers in (said["request"].get("hooks") or {}).items():
            hooks[event] = [one for matcher in matchers for one in matcher["hookCallbackIds"]]
        done = {"subtype": "success", "request_id": said["request_id"], "response": {}}
        tell(type="control_response", response=done)
    elif said["type"] == "user":
        prompt = said["message"]["content"]
        if prompt == "Die":
            sys.exit(3)
        hook("UserPromptSubmit", prompt=prompt)
        hook("Stop", stop_hook_active=False, last_assistant_message=f"{prompt}!")
        tell(type="result", subtype="success", is_error=False, result=f"{prompt}!",
             duration_ms=1, duration_api_ms=1, num_turns=1)
"""


def test_claude_code_is_started_for_each_unit_and_the_hooks_of_the_options_stay(
    tmp_path: Path, runs: Runs
) -> None:
    cli = tmp_path / "claude"
    cli.write_text(f"#!{sys.executable}{CLI}")
    cli.chmod(0o755)
    prompts: list[str] = []

    async def of_the_user(given: Any, *_: Any) -> Any:
        prompts.append(given["prompt"])
        return {}

    options = ClaudeAgentOptions(
        cli_path=str(cli), hooks={"UserPromptSubmit": [HookMatcher(hooks=[of_the_user])]}
    )

    ends = runs.run(options, unit_of("Hi", "Go on"), unit_of("Die", eval_id="c-2"))

    assert [(end.state, end.turns) for end in ends] == [("ended", 2), ("crashed", 1)]
    said = [
        (case["evalId"], case["actualConversation"][0]["finalResponse"]["content"])
        for case in runs.cases()
    ]
    assert said == [("c-1", "Hi!"), ("c-1", "Go on!")]
    assert prompts == ["Hi", "Go on"]
    abilities = agent_of(options, runs.recorder).abilities
    assert (abilities.state, abilities.context) == (False, False)
