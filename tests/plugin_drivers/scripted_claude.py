"""A scripted Claude Code for the real Claude Agent SDK: speaks its control protocol, runs nothing."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from claude_agent_sdk import Transport

from plugin_drivers.driver import INPUT_TOKENS, OUTPUT_TOKENS

Event = dict[str, Any]


class ScriptedCli(Transport):
    """Plays a turn after each prompt: hook inputs, for which it waits, and messages."""

    def __init__(
        self, session: str, first_prompt: int, turns: Iterable[AsyncIterator[Event]]
    ) -> None:
        self._session, self._turns = session, iter(turns)
        self._prompts = itertools.count(first_prompt)
        self.answers: list[Event] = []
        self._out: asyncio.Queue[Event | None] = asyncio.Queue()
        self._hooks: dict[str, list[str]] = {}
        self._answered = asyncio.Event()
        self._playing: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Be there at once."""

    async def write(self, data: str) -> None:
        """Take what the SDK says."""
        said = json.loads(data)
        if said["type"] == "control_request":
            for event, matchers in (said["request"].get("hooks") or {}).items():
                self._hooks[event] = [i for m in matchers for i in m["hookCallbackIds"]]
            done = {"subtype": "success", "request_id": said["request_id"], "response": {}}
            await self._out.put({"type": "control_response", "response": done})
        elif said["type"] == "control_response":
            self.answers.append(said["response"])
            self._answered.set()
        elif said["type"] == "user":
            self._playing.append(asyncio.create_task(self._play(said["message"]["content"])))

    async def _play(self, prompt: str) -> None:
        prompt_id = f"p{next(self._prompts)}"
        await self._put(hook("UserPromptSubmit", prompt=prompt), prompt_id)
        async for event in next(self._turns):
            await self._put(event, prompt_id)

    async def _put(self, event: Event, prompt_id: str) -> None:
        if "hook_event_name" not in event:
            await self._out.put({"session_id": self._session, **event})
            return
        given = {"session_id": self._session, "prompt_id": prompt_id, "cwd": "/", **event}
        for callback in self._hooks.get(event["hook_event_name"], []):
            self._answered.clear()
            request = {"subtype": "hook_callback", "callback_id": callback, "input": given}
            await self._out.put({"type": "control_request", "request_id": "r", "request": request})
            await self._answered.wait()

    async def read_messages(self) -> AsyncIterator[Event]:
        """Say what is next."""
        while (event := await self._out.get()) is not None:
            yield event

    async def close(self) -> None:
        """End."""
        await self._out.put(None)

    def is_ready(self) -> bool:
        """Be ready."""
        return True

    async def end_input(self) -> None:
        """Know that no more is to come."""


def hook(event: str, **given: Any) -> Event:
    """Return a hook input."""
    return {"hook_event_name": event, "transcript_path": "", **given}


def called(name: str, call_id: str, given: Any, result: Any = None, **more: Any) -> list[Event]:
    """Return the hooks of a tool call; it fails when the result is an exception."""
    about = {"tool_name": name, "tool_use_id": call_id, "tool_input": given, **more}
    if isinstance(result, Exception):
        after = hook("PostToolUseFailure", error=str(result), **about)
    else:
        after = hook("PostToolUse", tool_response=result, duration_ms=7, **about)
    return [hook("PreToolUse", **about), after]


def stopped(words: str) -> list[Event]:
    """Return the end of a turn."""
    return [hook("Stop", stop_hook_active=False, last_assistant_message=words), result(words)]


def said(text: str, message_id: str, *, output_tokens: int = OUTPUT_TOKENS, **more: Any) -> Event:
    """Return words of Claude."""
    used = {"input_tokens": INPUT_TOKENS, "output_tokens": output_tokens}
    content = [{"type": "text", "text": text}]
    message = {"id": message_id, "model": "scripted-1", "content": content, "usage": used}
    return {"type": "assistant", "message": message, **more}


def streamed(text: str) -> Event:
    """Return a piece of Claude's words, as they are sent where partial messages are asked for."""
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "uuid": "u1", "event": delta}


def result(text: str, **more: Any) -> Event:
    """Return the message that ends a turn."""
    lasted = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    return {
        "type": "result", "subtype": "success", "is_error": False, "result": text, **lasted, **more
    }  # fmt: skip
