"""The forms that tools take in a framework, each of them answered from a recording."""

import asyncio
from typing import Annotated, Any

import pytest
from agents import Agent as OpenAIAgent
from agents import FunctionTool, OpenAIResponsesModel, function_tool
from agents.mcp import MCPServer
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.function_tool import FunctionTool as AdkTool
from langchain.agents import create_agent
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, Tool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from mcp.types import CallToolResult
from mcp.types import Tool as McpTool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.toolsets import FunctionToolset
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.tools.executors import SequentialToolExecutor

from evaltap.experiments.agents.base import Asked, answer_of
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.mocks.tape import Tape
from evaltap.recorder.answering import TOOL_ANSWERS, ToolMiss
from plugin_drivers.adk import ScriptedModel as AdkModel
from plugin_drivers.driver import call, says
from plugin_drivers.langchain import model as langchain_model
from plugin_drivers.openai_agents import client
from plugin_drivers.pydantic_ai import model as pydantic_model
from plugin_drivers.strands import ScriptedModel as StrandsModel
from support.worlds.framework_runs import Runs, unit_of
from support.worlds.replayed_agents import Recording, Shop, calls_of, recorded, replay_now

STEPS = says("", call("sell", "c1", sku="A")), says("Done.")


def answered(runs: Runs, shop: Shop, agent: Any, **ended: Any) -> tuple[Any, str]:
    """Replay the sale of A; return how the run ended and what the model was told last."""
    recording = Recording(recorded("sell", sku="A", **(ended or {"result": "as recorded"})))
    how, given = replay_now(runs, agent, recording, unit_of("Sell A"))
    assert shop.effects() == []
    assert recording.asked == ["sell"]
    assert recording.missed == []
    return how, given[-1]


def of_langchain(shop: Shop, form: str) -> BaseTool:
    """Return a tool of LangChain in one of its forms."""
    (live,) = shop.tools()

    async def later(sku: str) -> str:
        """Sell one."""
        return str(live(sku))

    def injected(sku: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Sell one."""
        return str(live(sku))

    async def mcp(sku: str) -> tuple[str | Command[Any], int]:
        """Sell one, as the tools that langchain-mcp-adapters makes."""
        return str(live(sku)), 1

    class OwnTool(BaseTool):
        name: str = "sell"
        description: str = "Sell one."

        def _run(self, sku: str, run_manager: Any = None) -> str:
            return str(live(sku))

    forms: dict[str, Any] = {
        "async": lambda: StructuredTool.from_function(coroutine=later, name="sell"),
        "artifact": lambda: StructuredTool.from_function(
            lambda sku: (live(sku), 1), name="sell", description="Sell one.",
            args_schema={"type": "object", "properties": {"sku": {"type": "string"}}},
            response_format="content_and_artifact",
        ),
        "class": OwnTool,
        "injected": lambda: StructuredTool.from_function(injected, name="sell"),
        "mcp": lambda: StructuredTool.from_function(
            coroutine=mcp, name="sell", response_format="content_and_artifact"
        ),
        "single input": lambda: Tool("sell", lambda sku: live(sku), "Sell one."),
    }  # fmt: skip
    made: BaseTool = forms[form]()
    return made


@pytest.mark.parametrize("form", ["async", "artifact", "class", "injected", "mcp"])
def test_each_form_of_a_tool_of_langchain_is_answered(form: str, runs: Runs, shop: Shop) -> None:
    agent = create_agent(langchain_model(*STEPS), [of_langchain(shop, form)])

    how, told = answered(runs, shop, agent)

    assert how == ["Done."]
    assert "as recorded" in told
    assert calls_of(runs.cases())[0]["arguments"] == {"sku": "A"}


def test_a_tool_of_one_text_is_asked_for_as_the_model_called_it(runs: Runs, shop: Shop) -> None:
    steps = says("", call("sell", "c1", __arg1="A")), says("Done.")
    agent = create_agent(langchain_model(*steps), [of_langchain(shop, "single input")])
    recording = Recording(recorded("sell", __arg1="A", result="as recorded"))

    ended, _ = replay_now(runs, agent, recording, unit_of("Sell A"))

    assert ended == ["Done."]
    assert shop.effects() == []


def test_a_tool_that_handles_its_errors_handles_a_recorded_one(runs: Runs, shop: Shop) -> None:
    def fails(sku: str) -> str:
        """Sell one."""
        raise ToolException("live")

    tool = StructuredTool.from_function(fails, name="sell", handle_tool_error=True)

    how, told = answered(
        runs, shop, create_agent(langchain_model(*STEPS), [tool]), error="sold out"
    )

    assert how == ["Done."]
    assert "sold out" in told


def test_a_tool_that_a_node_calls_by_itself_is_answered(runs: Runs, shop: Shop) -> None:
    tool = of_langchain(shop, "class")

    async def sell(state: MessagesState) -> Any:
        return {"messages": [("ai", await tool.ainvoke({"sku": "A"}))]}

    graph = StateGraph(MessagesState)
    graph.add_node("sell", sell)
    graph.add_edge(START, "sell")
    recording = Recording(recorded("sell", sku="A", result="as recorded"))

    ended, _ = replay_now(runs, graph.compile(), recording, unit_of("Sell A"))

    assert ended == ["as recorded"]
    assert shop.effects() == []


class BlockingSaver(InMemorySaver):
    """A checkpointer that refuses an event loop."""

    async def aget_tuple(self, config: Any) -> Any:
        raise NotImplementedError("use the synchronous methods")


def test_a_graph_that_blocks_is_answered_on_its_threads(runs: Runs, shop: Shop) -> None:
    calls = [call("sell", f"c{number}", sku=f"A{number}") for number in range(8)]
    agent = create_agent(
        langchain_model(says("", *calls), says("Done."), says("", *calls)),
        [of_langchain(shop, "class")],
        checkpointer=BlockingSaver(),
    )
    known = [recorded("sell", **one.arguments, result="as recorded") for one in calls]

    ended, told = replay_now(runs, agent, Recording(*known), unit_of("Sell all"))
    missed, _ = replay_now(runs, agent, Recording(*known[::2]), unit_of("Again", eval_id="c-2"))

    assert ended == ["Done."]
    assert told[-1].count("as recorded") == 8
    assert isinstance(missed, ToolMiss)
    assert shop.effects() == []


def test_invalid_arguments_are_told_to_the_model_and_not_looked_up(runs: Runs, shop: Shop) -> None:
    steps = says("", call("sell", "c0", skuu="A")), *STEPS
    tools = [of_langchain(shop, "async")]

    how, _ = answered(runs, shop, create_agent(langchain_model(*steps), tools))

    assert how == ["Done."]


def of_openai(*tools: Any, **options: Any) -> OpenAIAgent[Any]:
    model = OpenAIResponsesModel("scripted-1", client(*STEPS))
    return OpenAIAgent("seller", model=model, tools=[*tools], **options)


def test_a_tool_of_openai_made_by_hand_is_answered(runs: Runs, shop: Shop) -> None:
    (live,) = shop.tools()

    async def invoke(context: Any, arguments: str) -> str:
        return str(live(arguments))

    schema = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}

    how, told = answered(runs, shop, of_openai(FunctionTool("sell", "Sell.", schema, invoke)))

    assert how == ["Done."]
    assert "as recorded" in told


def test_an_error_of_openai_is_worded_by_the_framework(runs: Runs, shop: Shop) -> None:
    tool = function_tool(shop.tools()[0])

    how, told = answered(runs, shop, of_openai(tool), error="sold out")

    assert how == ["Done."]
    assert "An error occurred while running the tool" in told


class Server(MCPServer):
    """A server that must not be called."""

    @property
    def name(self) -> str:
        return "shop"

    async def connect(self) -> None:
        """Be there."""

    async def cleanup(self) -> None:
        """Go."""

    async def list_tools(self, *_: Any, **__: Any) -> list[McpTool]:
        schema = {"type": "object", "properties": {"sku": {"type": "string"}}}
        return [McpTool.model_validate({"name": "sell", "inputSchema": schema})]

    async def call_tool(self, *_: Any, **__: Any) -> CallToolResult:
        raise AssertionError("the tool ran")

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_a_tool_of_an_mcp_server_is_answered(runs: Runs, shop: Shop) -> None:
    how, told = answered(runs, shop, of_openai(mcp_servers=[Server()]))

    assert how == ["Done."]
    assert "as recorded" in told


def test_a_tool_of_a_toolset_of_pydantic_ai_is_answered(runs: Runs, shop: Shop) -> None:
    toolset = FunctionToolset(shop.tools())

    how, told = answered(runs, shop, PydanticAgent(pydantic_model(*STEPS), toolsets=[toolset]))

    assert how == ["Done."]
    assert "as recorded" in told


def test_a_call_that_pydantic_ai_had_made_again_asks_for_that_again(runs: Runs, shop: Shop) -> None:
    failure = {"type": "ModelRetry", "message": "try B"}
    sale = {"name": "sell", "arguments": {"sku": "A"}, "result": "try B", "error": failure}
    tape = Tape(recording_of({"actualConversation": [{"tools": [sale]}]}), MockPolicy())
    tape.begin()

    ended, told = replay_now(
        runs, PydanticAgent(pydantic_model(*STEPS), tools=shop.tools()), tape, unit_of("Sell A")
    )

    assert ended == ["Done."]
    assert "outcome='retried'" in told[-1]
    (call,) = calls_of(runs.cases())
    assert (call["result"], call["error"]) == ("try B", failure)


def test_a_tool_object_of_adk_serves_live_and_replayed_runs_at_once(runs: Runs, shop: Shop) -> None:
    tool = AdkTool(shop.tools()[0])

    def agent() -> LlmAgent:
        return LlmAgent(name="seller", model=AdkModel(script=[*STEPS]), tools=[tool])

    for _ in range(2):
        answered(runs, shop, agent())
    live, told = replay_now(runs, agent(), None, unit_of("Sell A"))

    assert live == ["Done."]
    assert "sold A" in told[-1]
    assert shop.effects() == ["sell A"]


def test_an_answered_tool_of_adk_writes_to_the_state_what_it_wrote_then(
    runs: Runs, shop: Shop
) -> None:
    states: list[Any] = []

    def look(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        states.append(callback_context.state.get("tier"))

    sale = {"name": "sell", "arguments": {"sku": "A"}, "result": "sold", "stateDelta": {"tier": 1}}
    tape = Tape(recording_of({"actualConversation": [{"tools": [sale]}]}), MockPolicy())
    tape.begin()
    script = AdkModel(script=[*STEPS])
    agent = LlmAgent(name="seller", model=script, tools=[*shop.tools()], before_model_callback=look)

    replay_now(runs, agent, tape, unit_of("Sell A"))

    assert (states, shop.effects()) == ([None, 1], [])


def test_tools_of_strands_that_run_one_after_another_are_answered(runs: Runs, shop: Shop) -> None:
    def agent() -> StrandsAgent:
        return StrandsAgent(
            model=StrandsModel(*STEPS), tools=[strands_tool(shop.tools()[0])],
            tool_executor=SequentialToolExecutor(), callback_handler=None,
        )  # fmt: skip

    how, told = answered(runs, shop, agent())
    missed, given = replay_now(runs, agent(), Recording(), unit_of("Sell A"))

    assert how == ["Done."]
    assert "as recorded" in told
    assert isinstance(missed, ToolMiss)
    assert len(given) == 1


def test_an_agent_that_is_cancelled_is_not_said_to_have_missed(runs: Runs) -> None:
    recording = Recording()

    class Hanging:
        async def answer(self, asked: Asked) -> str | None:
            recording.missed.append(ToolMiss("too late"))
            await asyncio.Event().wait()
            return None

    async def cancel() -> None:
        TOOL_ANSWERS.set(recording)
        asked = Asked(unit_of("Sell A"), [])
        task = asyncio.create_task(answer_of(Hanging(), asked))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
