"""Claude Agent SDK: options, or a client from a factory; each unit has a client of its own.

In a replay, a hook asks before each call, and what it has found is served in place of the tool. Claude Code
runs its own tools in its process: of these, only Bash can be given something else to do, which is to print
the recording.  Tools of servers in this process are answered on the way to them.
"""

import dataclasses
import json
import re
import shlex
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage
from claude_agent_sdk._internal.query import Query
from claude_agent_sdk.types import HookContext, HookEvent, HookInput, HookJSONOutput, HookMatcher

from evaltap.experiments.agents.base import (
    Abilities,
    AgentError,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
    miss,
)
from evaltap.recorder import Recorder
from evaltap.recorder.answering import RUN, RecordedError, ToolAnswers, ToolMiss
from evaltap.recorder.plugins.claude_agent import EvaltapHooks
from evaltap.recorder.sources.claude_code import normal_name


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
        self.abilities = Abilities(mocks=True, unanswerable=unanswerable(options))

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation by a client that lives as long; Claude wants a UUID as its id."""
        recording, options = EvaltapHooks(recorder=self._recorder), self._options
        hooks, stack = _joined(options.hooks or {}, recording.hooks()), ExitStack()
        if (answers := answers_for(self.abilities)) is not None:
            install()
            stack.enter_context(asking := AskingHooks(answers, options))
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


_HARMLESS: Final = ("Agent", "Task", "TodoWrite", "ToolSearch", "StructuredOutput")
"""Built-in tools that run: sub-agents, whose own calls are answered, and what has no effect."""
_BASH: Final = "Bash"
_EXIT_CODE: Final = re.compile(r"\AExit code (\d+)\n?")
_ASKING: Final[ContextVar["AskingHooks | None"]] = ContextVar("evaltap_claude", default=None)
_FORGOTTEN: Final = ("run_in_background",)


def install() -> None:
    """Have all clients of the process ask, from now on: without answers tools are called as before."""
    if Query._handle_sdk_mcp_request is not _asking_request:
        Query._handle_sdk_mcp_request = _asking_request  # type: ignore[method-assign]


_live_request: Final[Callable[..., Awaitable[dict[str, Any] | None]]] = (
    Query._handle_sdk_mcp_request
)


async def _asking_request(
    self: Query, server_name: str, message: dict[str, Any]
) -> dict[str, Any] | None:
    asking = _ASKING.get()
    if asking is not None and message.get("method") == "tools/call":
        given = message.get("params") or {}
        name = f"mcp__{_server_key(server_name)}__{given.get('name')}"
        if (found := asking.found(name, given.get("arguments") or {})) is not RUN:
            return {"jsonrpc": "2.0", "id": message.get("id"), "result": _result(found)}
    return await _live_request(self, server_name, message)


class AskingHooks:
    """The hooks of one client, and what they have found that no tool has fetched yet.

    As a context manager: the client that connects in the block is answered.
    """

    def __init__(self, answers: ToolAnswers, options: ClaudeAgentOptions) -> None:
        self._answers = answers
        self._servers = tuple(f"mcp__{_server_key(name)}__" for name in _servers(options))
        self._found: dict[str, deque[Any]] = {}

    def __enter__(self) -> "AskingHooks":
        self._before = _ASKING.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _ASKING.reset(self._before)

    def found(self, name: str, arguments: object) -> Any:
        """Return what the hook has found for a call of a server's tool, an error as an exception."""
        if left := self._found.get(_key(name, arguments)):
            return left.popleft()
        return self._asked(name, arguments)  # another hook has changed the arguments

    def _asked(self, name: str, arguments: object) -> Any:
        try:
            found = self._answers.answer(normal_name(name), arguments)
            if found is not RUN and name != _BASH and not name.startswith(self._servers):
                miss(self._answers, f"its {_why(name)}", normal_name(name))
        except (RecordedError, ToolMiss) as error:
            return error
        return found

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """Return the hooks for the options."""
        return {"PreToolUse": [HookMatcher(hooks=[self.before_tool])]}

    async def before_tool(
        self, given: HookInput, tool_use_id: str | None, context: HookContext
    ) -> HookJSONOutput:
        """Let a call go on that is answered or runs; end the run over any other."""
        name, arguments = given["tool_name"], given["tool_input"]  # type: ignore[typeddict-item]
        if name in _HARMLESS:
            self._answers.delegated(name)
            return {}
        try:
            found = self._asked(name, arguments)
        except (
            Exception
        ) as error:  # whatever it is: after an exception in a hook, the tool would run
            return _ended(str(error))
        if isinstance(found, ToolMiss):
            return _ended(str(found))
        if name.startswith("mcp__"):
            self._found.setdefault(_key(name, arguments), deque()).append(found)
            return {}
        return {} if found is RUN else _printing(arguments, found)


def _ended(why: str) -> HookJSONOutput:
    """Return what keeps a call from running and ends the run: either alone does one of both."""
    return {
        "continue_": False,
        "stopReason": why,
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": why,
        },
    }


def _printing(arguments: Mapping[str, Any], found: object) -> HookJSONOutput:
    """Return the input for Bash that prints a recording in place of the model's command."""
    if isinstance(found, Exception):
        code = _EXIT_CODE.match(str(found))
        text = _EXIT_CODE.sub("", str(found))
        command = f"printf %s {shlex.quote(text)} >&2; exit {code[1] if code else 1}"
    else:
        parts = found if isinstance(found, Mapping) and "stdout" in found else {"stdout": found}
        command = f"printf %s {shlex.quote(_text(parts['stdout']))}"
        if parts.get("stderr"):
            command += f"; printf %s {shlex.quote(_text(parts['stderr']))} >&2"
    kept = {key: value for key, value in arguments.items() if key not in _FORGOTTEN}
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {**kept, "command": command},
        }
    }


def _result(found: object) -> dict[str, Any]:
    """Return a result as a server of MCP gives it."""
    if isinstance(found, BaseException):
        return {"content": [{"type": "text", "text": str(found)}], "isError": True}
    if isinstance(found, list) and all(isinstance(one, dict) and "type" in one for one in found):
        return {"content": found, "isError": False}
    return {"content": [{"type": "text", "text": _text(found)}], "isError": False}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _key(name: str, arguments: object) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"


def _server_key(name: str) -> str:
    """Return a server's name as it stands in the names of its tools."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def _servers(options: ClaudeAgentOptions) -> list[str]:
    """Return the names of the servers in this process."""
    given = options.mcp_servers
    servers = given.items() if isinstance(given, dict) else ()
    return [name for name, server in servers if server.get("type") == "sdk"]


def unanswerable(options: ClaudeAgentOptions) -> list[str]:
    """Return the tools and servers that no recording can answer, where the options name them."""
    found = [
        _why(name)
        for name in (options.tools if isinstance(options.tools, list) else ())
        if name not in (_BASH, *_HARMLESS)
    ]
    given, here = options.mcp_servers, _servers(options)
    outside = given if isinstance(given, dict) else [str(given)]
    return found + [
        f"MCP server {name} is called by Claude Code itself and cannot be answered from a recording"
        for name in outside
        if name not in here
    ]


def _why(name: str) -> str:
    return f"tool {name} is run by Claude Code and cannot be answered from a recording"
