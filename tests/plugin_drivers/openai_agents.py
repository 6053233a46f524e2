"""The OpenAI Agents SDK in the plugin contract: the library's own model classes, a scripted endpoint."""

import itertools
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import agents
import httpx2
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

from evaltap.recorder.plugins.openai_agents import EvaltapTraceProcessor
from evaltap.recorder.plugins.openai_run_hooks import EvaltapRun
from plugin_drivers.driver import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    AgentSpec,
    AnyRecorder,
    Call,
    Driver,
    Says,
    Step,
    Tool,
    told,
)
from support.builders.witness import Witness


def client(*steps: Step) -> AsyncOpenAI:
    """Return a client of an endpoint that follows the script."""
    return AsyncOpenAI(
        api_key="none",
        base_url="http://scripted.invalid/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=Endpoint(*steps)),
    )


class Endpoint(httpx2.AsyncBaseTransport):
    """Answers each request with the next step, as one body or as a stream of events."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self._numbers = itertools.count(1)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        told((await request.aread()).decode())
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            return httpx2.Response(500, json={"error": {"message": str(step)}})
        if request.url.path.endswith("/chat/completions"):
            asked = json.loads(await request.aread())
            return chat_answer(completion(step), stream=bool(asked.get("stream")))
        asked = json.loads(await request.aread())
        response = {**self._response(step), "instructions": asked.get("instructions")}
        if not asked.get("stream"):
            return httpx2.Response(200, json=response)
        event = {"type": "response.completed", "sequence_number": 1, "response": response}
        body = f"event: response.completed\ndata: {json.dumps(event)}\n\n"
        return httpx2.Response(200, text=body, headers={"content-type": "text/event-stream"})

    def _response(self, step: Says) -> dict[str, Any]:
        """Return an answer of the Responses API."""
        number = next(self._numbers)
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        words = {"type": "message", "role": "assistant", "content": content}
        calls = [
            {"type": "function_call", "call_id": one.call_id, **function(one)} for one in step.calls
        ]
        items = [words, *calls] if step.text else calls
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1,
            "model": "scripted-1",
            "status": "completed",
            "output": [
                {"id": f"item_{number}_{place}", "status": "completed", **item}
                for place, item in enumerate(items)
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": INPUT_TOKENS,
                "output_tokens": OUTPUT_TOKENS,
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }


def completion(step: Says) -> dict[str, Any]:
    """Return an answer of the Chat Completions API."""
    calls = [
        {"id": one.call_id, "type": "function", "function": function(one)} for one in step.calls
    ]
    message = {"role": "assistant", "content": step.text or None, "tool_calls": calls}
    return {
        "id": "chat_1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {
            "prompt_tokens": INPUT_TOKENS,
            "completion_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        },
    }


def chat_answer(answer: dict[str, Any], *, stream: bool) -> httpx2.Response:
    """Return an answer of the Chat Completions API, as one body or as a stream of chunks."""
    if not stream:
        return httpx2.Response(200, json=answer)
    (choice,) = answer["choices"]
    message = choice["message"]
    calls = [{"index": place, **one} for place, one in enumerate(message["tool_calls"])]
    delta = {**message, "tool_calls": calls}
    chunk = {**answer, "object": "chat.completion.chunk"}
    chunks = [
        {
            **chunk,
            "choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}],
            "usage": None,
        },
        {**chunk, "choices": []},
    ]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    return httpx2.Response(200, text=body, headers={"content-type": "text/event-stream"})


def function(one: Call) -> dict[str, Any]:
    """Return what both APIs say of a call in the same way."""
    return {"name": one.tool, "arguments": json.dumps(one.arguments)}


def tell(context: Any, error: Exception) -> str:
    """Tell the model of a tool's error."""
    return str(error)


class OpenAIAgents(Driver):
    """Runs with the trace processor; the spans are OpenInference's."""

    name = "openai_agents"
    exact_errors = False
    request_argument = "input"
    handover_result = '{"assistant": "billing"}'
    model_error = "openai.InternalServerError"
    failed_call = ("inventory down", {})
    unknown_tool = "Tool sell not found in agent support"

    def __init__(self, recorder: AnyRecorder) -> None:
        super().__init__(recorder)
        self._histories: dict[str, list[Any]] = {}

    def agent(self, spec: AgentSpec) -> Agent[Any]:
        tools: list[Any] = [self._tool(tool, spec) for tool in spec.tools]
        if spec.delegate is not None:
            tools.append(self.agent(spec.delegate).as_tool(spec.delegate.name, "Ask it."))
        return Agent(
            spec.name,
            instructions=spec.instruction,
            model=OpenAIResponsesModel("scripted-1", client(*spec.steps)),
            tools=tools,
            handoffs=[self.agent(spec.successor)] if spec.successor is not None else [],
        )

    def _tool(self, tool: Tool, spec: AgentSpec) -> Any:
        on_error = None if spec.raises else tell
        return function_tool(tool, strict_mode=False, failure_error_function=on_error)

    async def ask(
        self, agent: Agent[Any], text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        given = [*self._histories.get(session, []), {"role": "user", "content": text}]
        with using_session(session):
            result = await self._run(agent, given, session, stream=stream)
        self._histories[session] = result.to_input_list()
        return str(result.final_output)

    async def _run(self, agent: Agent[Any], given: Any, session: str, *, stream: bool) -> Any:
        return await play(agent, given, stream=stream, run_config=RunConfig(group_id=session))

    @contextmanager
    def installed(self) -> Iterator[None]:
        agents.set_trace_processors([EvaltapTraceProcessor(recorder=self.recorder)])
        yield
        agents.set_trace_processors([])

    @contextmanager
    def spans_to(self, witness: Witness) -> Iterator[None]:
        instrumentor = OpenAIAgentsInstrumentor()
        instrumentor.instrument(tracer_provider=witness.provider, exclusive_processor=False)
        yield
        instrumentor.uninstrument()

    def with_picture(self, text: str, png: bytes) -> Any:
        url = f"data:image/png;base64,{b64encode(png).decode()}"
        picture = {"type": "input_image", "image_url": url, "detail": "auto"}
        return [{"type": "input_text", "text": text}, picture]

    def handover(self, call_id: str, to: str) -> Call:
        return Call(call_id, f"transfer_to_{to}", {})


class OpenAIRunHooks(OpenAIAgents):
    """Runs with the run hooks and tracing off, so that there are no spans."""

    name = "openai_run_hooks"
    has_spans = False
    sees_tool_errors = False

    async def _run(self, agent: Agent[Any], given: Any, session: str, *, stream: bool) -> Any:
        off = RunConfig(tracing_disabled=True)
        with EvaltapRun(self.recorder, session_id=session) as hooks:
            return await play(agent, given, stream=stream, hooks=hooks, run_config=off)

    @contextmanager
    def installed(self) -> Iterator[None]:
        yield


async def play(agent: Agent[Any], given: Any, *, stream: bool, **options: Any) -> Any:
    """Run an agent to its end and return the result."""
    if not stream:
        return await Runner.run(agent, given, **options)
    streamed = Runner.run_streamed(agent, given, **options)
    async for _ in streamed.stream_events():
        pass
    return streamed
