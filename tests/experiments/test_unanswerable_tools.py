"""Tools that no recording can answer: an agent with one is not replayed, and no model is called."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from agents import Agent as OpenAIAgent
from agents import CodeInterpreterTool, ComputerTool, LocalShellTool, WebSearchTool, function_tool
from google.adk.agents import LlmAgent
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.google_search_tool import google_search
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import before_model
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId
from langchain_core.tools import tool as langchain_tool
from langgraph.types import Command
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.native_tools import CodeExecutionTool
from strands import Agent as StrandsAgent

from evaltap.experiments.agents.loading import agent_of
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.mocks.tape import Tape
from evaltap.recorder.answering import ToolMiss
from evaltap.recorder.observation import UNSEEN
from evaltap.recorder.plugins.langchain_values import state_written
from evaltap.schemas.errors import InputError
from plugin_drivers.adk import ScriptedModel as AdkModel
from plugin_drivers.driver import call, says
from plugin_drivers.langchain import ScriptedModel as LangChainModel
from plugin_drivers.langchain import model as langchain_model
from plugin_drivers.pydantic_ai import model as pydantic_model
from plugin_drivers.strands import ScriptedModel as StrandsModel
from support.worlds.framework_runs import Runs, unit_of
from support.worlds.replayed_agents import Recording, recorded, replay_now


def adk(**options: Any) -> LlmAgent:
    return LlmAgent(name=options.pop("name", "boss"), model=AdkModel(script=[]), **options)


class SearchingStrands(StrandsModel):
    """A model that is configured with a tool of its provider."""

    def get_config(self) -> Any:
        return {"params": {"tools": [{"type": "web_search"}]}}


def computer(*asked: Any) -> Any:
    raise AssertionError("nobody asks for it")


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("adk", lambda: adk(tools=[google_search]), "tool google_search is run by the provider"),
    (
        "adk inner",
        lambda: adk(tools=[AgentTool(adk(name="finder", tools=[google_search]))]),
        "tool google_search is run by the provider",
    ),
    (
        "adk successor",
        lambda: adk(sub_agents=[adk(name="finder", tools=[google_search])]),
        "tool google_search is run by the provider",
    ),
    ("adk code", lambda: adk(code_executor=BuiltInCodeExecutor()),
     "code executor BuiltInCodeExecutor cannot be answered"),
    ("openai", lambda: OpenAIAgent("boss", tools=[WebSearchTool()]),
     "tool web_search is run by the provider"),
    (
        "openai handoff",
        lambda: OpenAIAgent("boss", handoffs=[
            OpenAIAgent("coder", tools=[
                CodeInterpreterTool({"type": "code_interpreter", "container": {"type": "auto"}})
            ])
        ]),
        "tool code_interpreter is run by the provider",
    ),
    (
        "openai inner",
        lambda: OpenAIAgent(
            "boss",
            tools=[OpenAIAgent("shell", tools=[LocalShellTool(computer)]).as_tool("shell", "Run.")],
        ),
        "tool local_shell runs in a way that cannot be answered",
    ),
    ("openai computer", lambda: OpenAIAgent("boss", tools=[ComputerTool(computer)]),
     "tool computer_use_preview runs in a way that cannot be answered"),
    (
        "pydantic-ai",
        lambda: PydanticAgent(pydantic_model(), capabilities=[NativeTool(CodeExecutionTool())]),
        "tool code_execution is run by the provider",
    ),
    ("strands", lambda: StrandsAgent(SearchingStrands(), callback_handler=None),
     "tool web_search is run by the provider"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "why"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_the_agent_is_refused_before_anything_runs(
    make: Callable[[], Any], why: str, runs: Runs
) -> None:
    agent = make()

    ended, given = replay_now(runs, agent, Recording(), unit_of("Hi"))

    assert isinstance(ended, InputError)
    assert str(ended).startswith(f"the agent cannot be replayed: its {why}")
    assert given == []
    assert agent_of(agent, runs.recorder).abilities.unanswerable


class Searching(BaseToolset):
    """A toolset that turns out to have a tool of the provider."""

    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        return [google_search]

    async def close(self) -> None:
        """Hold nothing."""


def gemini(*tools: Any) -> LlmAgent:
    return LlmAgent(
        name="boss", model=AdkModel(model="gemini-2.5-flash", script=[]), tools=[*tools]
    )


class BindingModel(LangChainModel):
    """A model that is told of its tools, as those of providers are."""

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self.bind(tools=[*tools])


FOUND_LATER: list[tuple[str, Callable[[], Any], str]] = [
    ("adk", lambda: gemini(Searching()), "google_search"),
    (
        "langchain",
        lambda: create_agent(BindingModel(steps=[]), [{"type": "web_search"}]),
        "web_search",
    ),
]


@pytest.mark.parametrize(
    ("make", "name"), [one[1:] for one in FOUND_LATER], ids=[one[0] for one in FOUND_LATER]
)
def test_a_run_ends_before_a_model_gets_a_tool_that_nobody_knew_of(
    make: Callable[[], Any], name: str, runs: Runs
) -> None:
    ended, given = replay_now(runs, make(), Recording(), unit_of("Hi"))

    assert isinstance(ended, ToolMiss)
    assert str(ended) == (
        f"its tool {name} is run by the provider and cannot be answered from a recording"
    )
    assert given == []


def test_a_command_for_a_graph_is_not_in_a_recording(runs: Runs) -> None:
    @langchain_tool
    def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note something."""
        return Command(update={"messages": [ToolMessage("noted", tool_call_id=tool_call_id)]})

    steps = says("", call("note", "c1", text="A")), says("Done.")
    recording = Recording(recorded("note", text="A", result="noted"))

    refused, _ = replay_now(
        runs, create_agent(langchain_model(*steps), [note]), recording, unit_of("Note A")
    )
    ran, _ = replay_now(
        runs, create_agent(langchain_model(*steps), [note]), Recording(runs=["note"]), unit_of("A")
    )

    assert isinstance(refused, ToolMiss)
    assert "note returns a command for the graph" in str(refused)
    assert ran == ["Done."]


class Tiered(AgentState[Any]):
    """A state that a tool writes to."""

    tier: str


@pytest.mark.parametrize("declared", [Command[Any], Any])
def test_what_a_command_writes_to_the_state_is_recorded_and_written_again(
    runs: Runs, declared: Any
) -> None:
    states: list[Any] = []
    names: list[str] = []

    def log_in(name: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Log in."""
        names.append(name)
        told = ToolMessage(f"Hello {name}", tool_call_id=tool_call_id)
        return Command(update={"tier": "gold", "messages": [told]})

    log_in.__annotations__["return"] = declared

    @before_model
    def look(state: Any, runtime: Any) -> None:
        states.append(state.get("tier"))

    def agent() -> Any:
        steps = says("", call("log_in", "c1", name="Ann")), says("Done.")
        tools = [langchain_tool(log_in)]
        return create_agent(langchain_model(*steps), tools, state_schema=Tiered, middleware=[look])

    replay_now(runs, agent(), None, unit_of("Hi"))
    runs.recorder.flush()
    tape = Tape(recording_of(runs.sink.cases[0]), MockPolicy())
    tape.begin()
    _, told = replay_now(runs, agent(), tape, unit_of("Hi"))

    assert states == [None, "gold"] * 2
    assert names == ["Ann"], "the second call is answered"
    assert "Hello Ann" in told[-1]


def test_a_command_that_goes_elsewhere_is_not_known_whole() -> None:
    assert state_written(Command(goto="billing", update={"messages": []})) is UNSEEN
    assert state_written(Command(update={"messages": []})) == {}
    assert state_written("no command") is None


def test_tools_are_named_before_a_run_where_they_are_known(runs: Runs) -> None:
    @function_tool
    def sell(sku: str) -> str:
        """Sell one."""
        return sku

    inner = OpenAIAgent("clerk", tools=[sell])
    boss = OpenAIAgent("boss", tools=[inner.as_tool("clerk", "Ask.")], handoffs=[inner])

    assert agent_of(boss, runs.recorder).abilities.tool_names == ["clerk", "sell"]
    assert agent_of(gemini(Searching()), runs.recorder).abilities.tool_names is None
    assert agent_of(langchain_model(), runs.recorder).abilities.tool_names is None
