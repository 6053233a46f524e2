"""Turns of agents that no plugin sees: the recorder's plain API, and what an agent outside reports.

An agent in another process or on another host answers a turn with
`{"answer": text, "tools": [{"name", "arguments", "result" or "error"}], "usage": {"input_tokens",
"output_tokens", "cost_usd", "model"}}`; only `answer` is required.
"""

import asyncio
import math
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from evaltap.experiments.agents.base import AgentError, Asked
from evaltap.experiments.mocks.served import mock_server
from evaltap.experiments.mocks.tape import Tape
from evaltap.recorder import Recorder, Turn
from evaltap.recorder.answering import RUN, TOOL_ANSWERS, ToolMiss
from evaltap.schemas.text import did_you_mean

TIME_IS_UP: Final = "the agent was cancelled, because its time was up"
_SHOWN: Final = 200
JsonMap: TypeAlias = Mapping[str, Any]  # Any: the values of foreign JSON


def turn_of(recorder: Recorder, asked: Asked) -> Turn:
    """Return the recorded turn for what is asked."""
    unit = asked.unit
    return recorder.turn(
        user=asked.user,
        session_id=unit.session_id,
        user_id=unit.user_id or None,
        app_name=unit.app_name or None,
        state=dict(unit.state) if unit.state else None,
    )


def record_served(turn: Turn) -> None:
    """Record the calls that were answered and of which the agent itself says nothing."""
    tape = TOOL_ANSWERS.get()
    for one in tape.calls if isinstance(tape, Tape) else ():
        if isinstance(one.outcome, Exception):
            turn.tool(one.tool, one.arguments, error=one.outcome)
        elif one.outcome is RUN:
            turn.tool(one.tool, one.arguments)
        elif not isinstance(one.outcome, ToolMiss):
            turn.tool(one.tool, one.arguments, result=one.outcome)


@contextmanager
def served_mocks() -> Iterator[str]:
    """Offer the tools of the recording while the block lasts; yield their address, empty without one."""
    tape = TOOL_ANSWERS.get()
    if not isinstance(tape, Tape):
        yield ""
        return
    tape.can_run = False
    with mock_server().offering(tape.tools, tape.answer) as url:
        yield url


@dataclass(frozen=True, slots=True)
class Reported:
    """What an agent says of a turn."""

    answer: str
    tools: tuple[JsonMap, ...] = ()
    usage: JsonMap | None = None


async def recorded(recorder: Recorder, asked: Asked, reply: Awaitable[Reported]) -> str:
    """Wait for the reply within a recorded turn, record what it reports, and return the answer."""
    with turn_of(recorder, asked) as turn:
        try:
            said = await reply
        except asyncio.CancelledError:
            raise AgentError(TIME_IS_UP) from None
        for tool in said.tools:
            ended = {name: tool[name] for name in ("result", "error") if tool.get(name) is not None}
            turn.tool(tool["name"], tool.get("arguments"), **(ended or {"result": None}))
        if not said.tools:
            record_served(turn)
        if said.usage is not None:
            turn.model(**said.usage)
        turn.respond(said.answer)
    return said.answer


def reported(data: object) -> Reported:
    """Read an agent's report; raise AgentError if it is none, and say what was expected."""
    given = _object(data, ("answer", "tools", "usage"), "the agent's reply")
    answer = given.get("answer")
    if not isinstance(answer, str):
        raise AgentError(f"the agent's reply {shown(data)} has no answer; expected a text")
    tools = [] if given.get("tools") is None else given["tools"]
    if not isinstance(tools, list):
        raise AgentError(f"the agent's reply has tools {shown(tools)}; expected a list of calls")
    usage = given.get("usage")
    return Reported(
        answer, tuple(_tool(one) for one in tools), None if usage is None else _usage(usage)
    )


def _tool(data: object) -> JsonMap:
    given = _object(data, ("name", "arguments", "result", "error"), "a tool call of the reply")
    if not isinstance(given.get("name"), str):
        raise AgentError(f"a tool call of the agent's reply {shown(data)} has no name")
    return given


def _usage(data: object) -> JsonMap:
    amounts = ("input_tokens", "output_tokens", "cost_usd")
    given = _object(data, (*amounts, "model"), "the usage of the reply")
    for name in amounts:
        value = given.get(name)
        is_amount = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_amount and 0 <= value < math.inf):
            raise AgentError(
                f"the usage of the agent's reply has {name} {shown(value)}; expected an amount"
            )
    return given


def _object(data: object, known: tuple[str, ...], what: str) -> JsonMap:
    if not isinstance(data, dict):
        raise AgentError(f"{what} is {shown(data)}; expected a JSON object")
    for name in data:
        if name not in known:
            hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
            raise AgentError(f"{what} has {shown(name)}; {hint}")
    return data


def shown(value: object) -> str:
    """Return foreign data as a short text for a message."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
