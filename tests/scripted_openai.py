"""A scripted OpenAI endpoint for real openai-agents runs: the library's own model class talks to it."""

import itertools
import json
from typing import Any

import httpx2
from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel
from openai import AsyncOpenAI

Step = list[dict[str, Any]] | int
"""The output items of a response, or the HTTP status of a failure."""


def say(text: str) -> dict[str, Any]:
    """Return words of the model."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call of the model."""
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


class Script(httpx2.AsyncBaseTransport):
    """Answers each request with the next step, as one body or as a stream of events."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self._numbers = itertools.count(1)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        step = self.steps.pop(0)
        if isinstance(step, int):
            return httpx2.Response(step, json={"error": {"message": "out of order"}})
        if request.url.path.endswith("/chat/completions"):
            return httpx2.Response(200, json=self._completion(step))
        response = self._response(step)
        if not json.loads(await request.aread()).get("stream"):
            return httpx2.Response(200, json=response)
        event = {"type": "response.completed", "sequence_number": 1, "response": response}
        body = f"event: response.completed\ndata: {json.dumps(event)}\n\n"
        return httpx2.Response(200, text=body, headers={"content-type": "text/event-stream"})

    def _response(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1,
            "model": "scripted-1",
            "status": "completed",
            "output": [{"id": f"item_{number}_{i}", **item} for i, item in enumerate(items)],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 11,
                "output_tokens": 5,
                "total_tokens": 16,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }

    def _completion(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        words = [item["content"][0]["text"] for item in items if item["type"] == "message"]
        calls = [
            {
                "id": item["call_id"],
                "type": "function",
                "function": {"name": item["name"], "arguments": item["arguments"]},
            }
            for item in items
            if item["type"] == "function_call"
        ]
        message = {"role": "assistant", "content": "".join(words) or None, "tool_calls": calls}
        return {
            "id": f"chat_{next(self._numbers)}",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted-1",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
        }


def scripted(*steps: Step) -> OpenAIResponsesModel:
    """Return the library's model for the Responses API, with a scripted endpoint."""
    return OpenAIResponsesModel("scripted-1", _client(steps))


def scripted_chat(*steps: Step) -> OpenAIChatCompletionsModel:
    """Return the library's model for the Chat Completions API, with a scripted endpoint."""
    return OpenAIChatCompletionsModel("scripted-1", _client(steps))


def _client(steps: tuple[Step, ...]) -> AsyncOpenAI:
    return AsyncOpenAI(
        api_key="none",
        base_url="http://scripted.invalid/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=Script(*steps)),
    )
