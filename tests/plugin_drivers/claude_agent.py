"""The Claude Agent SDK in the plugin contract: its client talks to a scripted Claude Code."""

from collections.abc import AsyncIterator, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from evaltap.recorder.plugins.claude_agent import EvaltapHooks
from plugin_drivers import scripted_claude as claude
from plugin_drivers.driver import AgentSpec, AnyRecorder, Call, Driver, Says, pieces


class ClaudeAgent(Driver):
    """Runs a client with the hooks.

    Claude Code calls the tools and writes spans, each in a process of its own: it is scripted here.
    """

    name = "claude_agent"
    has_spans = False
    closes_cancelled = "next_message"
    failed_call = (None, {"message": "inventory down"})
    raises_model_errors = False
    model_error = "success"
    top_agent = "claude-code"

    def __init__(self, recorder: AnyRecorder) -> None:
        super().__init__(recorder)
        self.recording = EvaltapHooks(recorder=recorder)
        self._prompts: dict[str, int] = {}

    def agent(self, spec: AgentSpec) -> "ScriptedClaude":
        return ScriptedClaude(spec)

    async def ask(
        self, agent: "ScriptedClaude", text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        return await self.play({text: agent.turn(stream=stream)}, session, stream=stream)

    async def play(
        self,
        turns: Mapping[str, AsyncIterator[claude.Event]],
        session: str = "s1",
        *,
        stream: bool = False,
    ) -> str | None:
        """Send prompts by one client, which have Claude Code do what is said; return its last answer."""
        known = self._prompts.get(session, 0)
        self._prompts[session] = known + len(turns)
        cli = claude.ScriptedCli(session, known + 1, turns.values())
        options = ClaudeAgentOptions(hooks=self.recording.hooks(), include_partial_messages=stream)
        messages: list[Any] = []
        async with ClaudeSDKClient(options, transport=cli) as client:
            for prompt in turns:
                await client.query(prompt)
                messages += [m async for m in self.recording.watch(client.receive_response())]
        assert all(answer["response"] == {} for answer in cli.answers), "the hooks let Claude go on"
        assert isinstance(messages[-1], ResultMessage)
        return messages[-1].result

    def delegation(self, call_id: str, to: str, request: str) -> Call:
        return Call(call_id, "Task", {"prompt": request, "subagent_type": to})


class ScriptedClaude:
    """What Claude Code does about each prompt, by the script."""

    def __init__(self, spec: AgentSpec) -> None:
        self._steps = list(spec.steps)
        self._tools = {tool.__name__: tool for tool in spec.tools}
        self._delegate = spec.delegate

    async def turn(self, *, stream: bool = False) -> AsyncIterator[claude.Event]:
        """Yield the events of the next turn."""
        while True:
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                yield claude.result(str(step), is_error=True)
                return
            for piece in pieces(step.text) if stream else ():
                yield claude.streamed(piece)
            yield claude.said(step.text, f"m{len(self._steps)}")
            async for event in self._calls(step.calls):
                yield event
            if not step.calls:
                for event in claude.stopped(step.text):
                    yield event
                return

    async def _calls(self, calls: Sequence[Call], **about: Any) -> AsyncIterator[claude.Event]:
        """Yield the hooks of calls that run at once: the last to begin is the first to end."""
        for one in calls:
            yield claude.called(one.tool, one.call_id, one.arguments, **about)[0]
        for one in reversed(calls):
            if one.tool == "Task" and self._delegate is not None:
                async for event in ScriptedClaude(self._delegate)._work(one, self._delegate.name):
                    yield event
            else:
                result = await self._run(one)
                yield claude.called(one.tool, one.call_id, one.arguments, result, **about)[1]

    async def _work(self, task: Call, name: str) -> AsyncIterator[claude.Event]:
        """Yield the events of a sub-agent, and the end of the call that it works for."""
        about = {"agent_id": f"agent-of-{task.call_id}", "agent_type": name}
        yield claude.hook("SubagentStart", **about)
        words = ""
        for number, step in enumerate(self._steps):
            assert isinstance(step, Says)
            words = step.text
            yield claude.said(words, f"{task.call_id}-{number}", parent_tool_use_id=task.call_id)
            async for event in self._calls(step.calls, **about):
                yield event
        yield claude.called(task.tool, task.call_id, task.arguments, words)[1]

    async def _run(self, one: Call) -> Any:
        """Return a tool's result or exception."""
        try:
            result = self._tools[one.tool](**one.arguments)
            return await result if isawaitable(result) else result
        except Exception as error:
            return error
