"""LangChain and LangGraph in the plugin contract, with and without an event loop."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolErrorMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from openinference.instrumentation.langchain import LangChainInstrumentor

from evaltap.recorder.plugins.langchain import EvaltapHandler
from plugin_drivers.driver import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    AgentSpec,
    AnyRecorder,
    Call,
    Driver,
    Says,
    Step,
    pieces,
    told,
)
from support.builders.witness import Witness


class ScriptedModel(BaseChatModel):
    """Answers each call with the next step of its script, at once or word by word."""

    steps: list[Any]
    model_name: str = "scripted-1"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """Know what to call without being told."""
        return self

    def _generate(self, *arguments: Any, **options: Any) -> ChatResult:
        told(arguments[0])
        step = self._next()
        calls = [
            {"name": one.tool, "id": one.call_id, "args": dict(one.arguments)} for one in step.calls
        ]
        used = UsageMetadata(
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
        )
        message = AIMessage(step.text, tool_calls=calls, usage_metadata=used)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, *arguments: Any, **options: Any) -> Iterator[ChatGenerationChunk]:
        step = self._next()
        for piece in pieces(step.text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        chunks = [
            tool_call_chunk(
                name=one.tool, args=json.dumps(one.arguments), id=one.call_id, index=number
            )
            for number, one in enumerate(step.calls)
        ]
        last = AIMessageChunk(content="", tool_call_chunks=chunks, chunk_position="last")
        yield ChatGenerationChunk(message=last)

    def _next(self) -> Says:
        step: Step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def model(*steps: Step) -> ScriptedModel:
    """Return a model that follows the script."""
    return ScriptedModel(steps=list(steps))


class LangChain(Driver):
    """Runs agents and graphs with the callback handler; the spans are OpenInference's."""

    name = "langchain"
    request_argument = "question"
    handover_result = "handed over"
    unknown_tool = "sell is not a valid tool"
    failed_call = ("inventory down", {"type": "RuntimeError", "message": "inventory down"})

    def __init__(self, recorder: AnyRecorder) -> None:
        super().__init__(recorder)
        self.handler = EvaltapHandler(recorder=recorder)

    def agent(self, spec: AgentSpec) -> Any:
        if spec.successor is not None:
            return self._team(spec, spec.successor)
        return self.build(spec, checkpointer=memory())

    def build(self, spec: AgentSpec, tools: Sequence[Any] = (), **options: Any) -> Any:
        """Build an agent with some more tools and options of `create_agent`."""
        given: list[Any] = [*map(tool, spec.tools), *tools]
        if spec.delegate is not None:
            given.append(self._delegate(spec.delegate))
        told: Any = [] if spec.raises else [ToolErrorMiddleware(lambda error, _: str(error))]
        return create_agent(
            model(*spec.steps),
            given,
            name=spec.name,
            middleware=told,
            system_prompt=spec.instruction,
            **options,
        )

    def _delegate(self, spec: AgentSpec) -> Any:
        inner = self.build(spec)

        def ask(question: str) -> str:
            return answer(inner.invoke(user(question)))

        async def ask_and_wait(question: str) -> str:
            return answer(await inner.ainvoke(user(question)))

        return StructuredTool.from_function(ask, ask_and_wait, spec.name, "Ask it.")

    def _team(self, spec: AgentSpec, successor: AgentSpec) -> Any:
        @tool(f"to_{successor.name}")
        def hand_over(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
            """Hand over."""
            told = ToolMessage("handed over", tool_call_id=tool_call_id)
            return Command(goto=successor.name, update={"messages": [told]}, graph=Command.PARENT)

        graph = StateGraph(MessagesState)
        graph.add_node(spec.name, self.build(spec, [hand_over]), destinations=(successor.name,))
        graph.add_node(successor.name, self.build(successor))
        graph.add_edge(START, spec.name)
        graph.add_edge(successor.name, END)
        return graph.compile(checkpointer=memory())

    async def ask(
        self, agent: Any, text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        if not stream:
            return answer(await agent.ainvoke(user(text), self.config(session)))
        async for _ in agent.astream(user(text), self.config(session), stream_mode="messages"):
            pass
        return None

    def config(self, session: str = "s1", **metadata: Any) -> Any:
        """Return what an invocation is given besides its input."""
        thread = {"thread_id": session}
        return {"callbacks": [self.handler], "configurable": thread, "metadata": metadata}

    @contextmanager
    def spans_to(self, witness: Witness) -> Iterator[None]:
        instrumentor = LangChainInstrumentor()
        instrumentor.instrument(tracer_provider=witness.provider)
        yield
        instrumentor.uninstrument()

    def result(self, value: Any) -> Any:
        return json.dumps(value)

    def with_picture(self, text: str, png: bytes) -> Any:
        picture = {"type": "image", "base64": b64encode(png).decode(), "mime_type": "image/png"}
        return [{"type": "text", "text": text}, picture]

    def handover(self, call_id: str, to: str) -> Call:
        return Call(call_id, f"to_{to}", {})


class BlockingLangChain(LangChain):
    """The same by `invoke` and `stream`, as programs without an event loop call it."""

    name = "langchain_blocking"

    async def ask(
        self, agent: Any, text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        given, config = user(text), self.config(session)
        if not stream:
            return answer(await asyncio.to_thread(agent.invoke, given, config))
        await asyncio.to_thread(lambda: [*agent.stream(given, config, stream_mode="values")])
        return None


def memory() -> InMemorySaver:
    """Return a memory of sessions that takes any value."""
    return InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=True))


def user(text: str) -> Any:
    """Return the input of an agent."""
    return {"messages": [("user", text)]}


def answer(state: Any) -> str:
    """Return the last words of an agent's state."""
    return str(state["messages"][-1].content)
