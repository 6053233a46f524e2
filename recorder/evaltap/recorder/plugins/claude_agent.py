"""Claude Agent SDK: hooks that record every prompt and how Claude handles it.

    recording = EvaltapHooks("log.db")
    options = ClaudeAgentOptions(hooks=recording.hooks())

Source: the hook inputs of claude-agent-sdk 0.2.187. Every hook returns an empty output, so Claude
continues unchanged. Hooks see the prompt, the tools and the answer; usage and intermediate texts
are in the messages, which `watch` passes through.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from claude_agent_sdk import AssistantMessage, HookMatcher, ResultMessage, TextBlock, ThinkingBlock
from claude_agent_sdk.types import HookContext, HookEvent, HookInput, HookJSONOutput

from evaltap.recorder.observation import UNSEEN, Failure, Origin
from evaltap.recorder.plugins.support import guarded, recorder_for
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.sources.claude_code import AGENT, SUB_AGENT, normal_name, result_of
from evaltap.recorder.tokens import added_by_block

Given: TypeAlias = Mapping[str, Any]  # Any: the inputs of ten hooks

ORIGIN = Origin(framework="claude-agent-sdk", convention="claude-agent-hooks")
EVENTS: tuple[HookEvent, ...] = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "Stop",
)
MAX_SESSIONS = 10_000
"""Maximum tracked sessions; beyond it the oldest one's turn is evicted."""


@dataclass(slots=True)
class _Turn:
    """The latest turn of a session."""

    run: ObservedRun
    delegated: dict[str, str | None] = field(default_factory=dict)
    """Open calls of sub-agents that no sub-agent has claimed, with the agent type each requested."""
    agents: dict[str, str | None] = field(default_factory=dict)
    """The call that each sub-agent works for; None when several calls match."""
    counted: dict[str, int] = field(default_factory=dict)
    """The output tokens recorded of each message, by its id."""


class EvaltapHooks:
    """Record every prompt as one turn of an eval case; Claude's session is the case.

    `log` is the recorder's log; pass `recorder` instead to share one. One instance may serve any
    number of clients. `clock` returns nanoseconds since the epoch.
    """

    def __init__(
        self,
        log: str | None = None,
        *,
        recorder: Observing | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._owns_recorder = recorder is None
        self._recorder = recorder_for(log, recorder)
        self._clock = clock
        self._turns: dict[str, _Turn] = {}

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """Return the hooks for `ClaudeAgentOptions`; append them to your own if you have any."""
        return {event: [HookMatcher(hooks=[self.hook])] for event in EVENTS}

    async def hook(
        self, input: HookInput, tool_use_id: str | None, context: HookContext
    ) -> HookJSONOutput:
        """Record one event; called by the SDK."""
        guarded(self, self._hook, input)
        return {}

    async def watch(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass messages through, recording usage and intermediate texts.

            async for message in recording.watch(client.receive_response()): ...

        Only here are errors that end the turn visible.
        """
        async for message in messages:
            guarded(self, self._message, message)
            yield message

    def close(self) -> None:
        """End open turns as incomplete; close the recorder if this plugin created it."""
        for turn in self._turns.values():
            guarded(self, turn.run.end, "incomplete", None, "shutdown")
        self._turns.clear()
        if self._owns_recorder:
            self._recorder.close()

    def _hook(self, given: Given) -> None:
        event, session = given["hook_event_name"], given["session_id"]
        if event == "UserPromptSubmit":
            self._begin(session, given.get("prompt_id")).run.user_message(given["prompt"])
            return
        turn = self._turns.get(session) or self._begin(session, given.get("prompt_id"))
        if turn.run.has_ended:
            # Another hook kept Claude from stopping.
            turn.run.reopen()
        if event == "PreToolUse":
            self._called(turn, given)
        elif event == "PostToolUse":
            self._returned(turn, given, result_of(given["tool_response"]), None)
        elif event == "PostToolUseFailure":
            kind = "interrupted" if given.get("is_interrupt") else None
            self._returned(turn, given, UNSEEN, Failure(kind, given["error"]))
        elif event == "SubagentStart":
            self._sub_agent(turn, given)
        elif event == "Stop":
            if words := given.get("last_assistant_message"):
                turn.run.framework_result(words)
            turn.run.end()

    def _begin(self, session: str, prompt_id: str | None) -> _Turn:
        if (before := self._turns.pop(session, None)) is not None:
            before.run.end("incomplete", None, "next_message")
        run = ObservedRun(
            self._recorder,
            ORIGIN,
            session_id=session,
            agent_name=AGENT,
            invocation_id=prompt_id,
            clock=self._clock,
        )
        turn = self._turns[session] = _Turn(run)
        while len(self._turns) > MAX_SESSIONS:
            self._turns.pop(next(iter(self._turns))).run.end("incomplete", None, "evicted")
        return turn

    def _called(self, turn: _Turn, given: Given) -> None:
        name, arguments = normal_name(given["tool_name"]), given["tool_input"]
        agent_id = given.get("agent_id")
        parent = turn.agents.get(agent_id) if agent_id is not None else None
        unknown = agent_id is not None and parent is None
        if agent_id is None:
            turn.run.mark_intermediate()  # text before a tool call is not the answer
        turn.run.tool_called(
            given["tool_use_id"],
            name,
            arguments,
            agent=given.get("agent_type") or AGENT,
            parent=parent,
            capture={"parentId": "ambiguous"} if unknown else None,
        )
        if name == SUB_AGENT:
            turn.delegated[given["tool_use_id"]] = arguments.get("subagent_type")

    def _sub_agent(self, turn: _Turn, given: Given) -> None:
        """Match a sub-agent to the call it works for, which the hooks do not name."""
        kind = given["agent_type"]
        fitting = [call for call, wanted in turn.delegated.items() if wanted in (kind, None)]
        if len(fitting) == 1:
            del turn.delegated[fitting[0]]
        turn.agents[given["agent_id"]] = fitting[0] if len(fitting) == 1 else None

    def _returned(self, turn: _Turn, given: Given, result: object, failure: Failure | None) -> None:
        call_id = given["tool_use_id"]
        turn.delegated.pop(call_id, None)
        turn.run.tool_returned(call_id, result, failure, duration_ms=given.get("duration_ms"))

    def _message(self, message: object) -> None:
        if isinstance(message, AssistantMessage):
            if (turn := self._turns.get(message.session_id or "")) is not None:
                self._assistant_message(turn, message)
        elif isinstance(message, ResultMessage):
            self._result(message)

    def _assistant_message(self, turn: _Turn, message: AssistantMessage) -> None:
        used = added_by_block(message.usage, message.message_id, turn.counted)
        if used is not None:
            turn.run.model_called(
                message.model,
                tokens=used,
            )
        words = "".join(block.text for block in message.content if isinstance(block, TextBlock))
        thought = [one.thinking for one in message.content if isinstance(one, ThinkingBlock)]
        own = message.parent_tool_use_id is None and not turn.run.has_ended
        if own and (words or thought):
            turn.run.agent_message(words or None, AGENT, reasoning="\n".join(thought) or None)

    def _result(self, message: ResultMessage) -> None:
        """End a turn without a Stop event; most turns have had one, and their answer with it."""
        turn = self._turns.pop(message.session_id, None)
        if turn is None or (turn.run.has_ended and not message.is_error):
            return
        turn.run.reopen()
        if str(message.terminal_reason).startswith("aborted"):
            turn.run.end("incomplete")
        elif message.is_error:
            turn.run.end("error", Failure(message.subtype, message.result))
        else:
            if message.result:
                turn.run.framework_result(message.result)
            turn.run.end()
