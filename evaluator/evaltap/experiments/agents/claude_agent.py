"""Claude Agent SDK: options, or a client from a factory; each unit has a client of its own."""

import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage
from claude_agent_sdk.types import HookEvent, HookMatcher

from evaltap.experiments.agents.answering import claude_agent as answering
from evaltap.experiments.agents.base import (
    Abilities,
    AgentError,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
)
from evaltap.recorder import Recorder
from evaltap.recorder.plugins.claude_agent import EvaltapHooks


def adapt(found: Any, recorder: Recorder) -> "ClaudeAgent | None":
    """Adapt options, or a client that is not connected yet."""
    if isinstance(found, ClaudeSDKClient):
        return ClaudeAgent(found.options, lambda options: _with_options(found, options), recorder)
    if isinstance(found, ClaudeAgentOptions):
        return ClaudeAgent(found, ClaudeSDKClient, recorder)
    return None


class ClaudeAgent:
    """Claude Code with these options; what it is told besides the user's messages is up to them."""

    def __init__(
        self,
        options: ClaudeAgentOptions,
        client: Callable[[ClaudeAgentOptions], ClaudeSDKClient],
        recorder: Recorder,
    ) -> None:
        self._options, self._client, self._recorder = options, client, recorder
        self.abilities = Abilities(mocks=True, unanswerable=answering.unanswerable(options))

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation by a client that lives as long; Claude wants a UUID as its id."""
        recording, options = EvaltapHooks(recorder=self._recorder), self._options
        hooks, stack = _joined(options.hooks or {}, recording.hooks()), ExitStack()
        if (answers := answers_for(self.abilities)) is not None:
            answering.install()
            stack.enter_context(asking := answering.AskingHooks(answers, options))
            hooks = _joined(hooks, asking.hooks())
            options = dataclasses.replace(options, strict_mcp_config=True)  # no servers of files
        options = dataclasses.replace(
            options, hooks=hooks, session_id=str(uuid.uuid5(uuid.NAMESPACE_URL, unit.session_id))
        )
        try:
            with stack:
                async with self._client(options) as client:
                    yield _ClaudeSession(client, recording)
        finally:
            recording.close()  # ends a turn that was cancelled


class _ClaudeSession:
    def __init__(self, client: ClaudeSDKClient, recording: EvaltapHooks) -> None:
        self._client, self._recording = client, recording

    async def answer(self, asked: Asked) -> str | None:
        await self._client.query(asked.user)
        last: ResultMessage | None = None
        async for message in self._recording.watch(self._client.receive_response()):
            if isinstance(message, ResultMessage):
                last = message
        if last is None:
            raise AgentError("Claude Code ended without a result")
        if last.is_error:
            raise AgentError(f"Claude Code failed: {last.result or last.subtype}")
        return answer_in(last.result)


def _with_options(client: ClaudeSDKClient, options: ClaudeAgentOptions) -> ClaudeSDKClient:
    client.options = options
    return client


def _joined(
    own: dict[HookEvent, list[HookMatcher]], ours: dict[HookEvent, list[HookMatcher]]
) -> dict[HookEvent, list[HookMatcher]]:
    joined: dict[HookEvent, list[HookMatcher]] = {}
    for event, matchers in own.items():
        joined[event] = [*matchers]
    for event, matchers in ours.items():
        joined.setdefault(event, []).extend(matchers)
    return joined
