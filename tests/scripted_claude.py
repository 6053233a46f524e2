"""A scripted Claude Code for the real Claude Agent SDK: speaks its control protocol, runs nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Transport

from evaltap.recorder.plugins.claude_agent import EvaltapHooks

Event = dict[str, Any]


class ScriptedCli(Transport):
    """Plays events after each prompt: hook inputs, for which it waits, and messages."""

    def __init__(self, session: str, *turns: list[Event]) -> None:
        self.session, self.turns = session, list(turns)
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
            prompt = said["message"]["content"]
            self._playing.append(asyncio.create_task(self._play(prompt, self.turns.pop(0))))

    async def _play(self, prompt: str, events: list[Event]) -> None:
        number = str(len(self._playing))
        for event in [hook("UserPromptSubmit", prompt=prompt), *events]:
            if "hook_event_name" not in event:
                await self._out.put({"session_id": self.session, **event})
                continue
            given = {"session_id": self.session, "prompt_id": f"p{number}", "cwd": "/", **event}
            for callback in self._hooks.get(event["hook_event_name"], []):
                self._answered.clear()
                request = {"subtype": "hook_callback", "callback_id": callback, "input": given}
                await self._out.put(
                    {"type": "control_request", "request_id": "r", "request": request}
                )
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


def called(name: str, call_id: str, given: Event, result: Any = None, **more: Any) -> list[Event]:
    """Return the hooks of a tool call; it fails when the result is an exception."""
    about = {"tool_name": name, "tool_use_id": call_id, "tool_input": given, **more}
    if isinstance(result, Exception):
        after = hook("PostToolUseFailure", error=str(result), **about)
    else:
        after = hook("PostToolUse", tool_response=result, duration_ms=7, **about)
    return [hook("PreToolUse", **about), after]


def stopped(words: str | None) -> list[Event]:
    """Return the end of a turn."""
    last = {} if words is None else {"last_assistant_message": words}
    return [hook("Stop", stop_hook_active=False, **last), result(words or "")]


def said(text: str, message_id: str = "m1") -> Event:
    """Return words of Claude."""
    usage = {"input_tokens": 11, "output_tokens": 5}
    content = [{"type": "text", "text": text}]
    message = {"id": message_id, "model": "scripted-1", "content": content, "usage": usage}
    return {"type": "assistant", "message": message}


def result(text: str, **more: Any) -> Event:
    """Return the message that ends a turn."""
    return {
        "type": "result",
        "subtype": "success",
        "duration_ms": 1,
        "duration_api_ms": 1,
        "is_error": False,
        "num_turns": 1,
        "result": text,
        **more,
    }


async def talk(recording: EvaltapHooks, cli: ScriptedCli, *prompts: str) -> None:
    """Let the SDK's client talk to the scripted CLI."""
    options = ClaudeAgentOptions(hooks=recording.hooks())
    async with ClaudeSDKClient(options, transport=cli) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for _ in recording.watch(client.receive_response()):
                pass
