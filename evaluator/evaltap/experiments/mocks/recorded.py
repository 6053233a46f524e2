"""The tool calls of a recorded turn, as answers for the same calls when the turn is run again."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, cast

import orjson

from evaltap.evaluator.cases.json_text import parse
from evaltap.recorder.answering import RecordedError
from evaltap.recorder.copying import freeze, readable, thaw
from evaltap.recorder.foreign import stands_for_object
from evaltap.schemas.data import CaseData, Json

_LOST: Final = {"missing": "not recorded", "truncated": "cut", "redacted": "redacted"}
_WORDS: Final = {
    "arguments": "arguments of",
    "result": "result of",
    "stateDelta": "state written by",
}

_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of arguments."""
_AS_IT_IS: Final[Mapping[str, Any]] = {}
_HANDS_OVER: Final = "transfer_to_"
"""How Google ADK, the OpenAI Agents SDK and LangGraph name what only hands over to another agent."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call with its result, or the error with which it failed."""

    name: str
    arguments: Json
    result: Json = None
    error: str | None = None
    error_type: str = ""
    """The name of the exception, if known."""
    seconds: float | None = None
    """How long the call took, if known."""
    problem: str = ""
    """Why it answers no call: `result of refund was not recorded`; empty if it does."""
    id: str = ""
    parent: str = ""
    """The id of the call in which another agent made this one."""
    agent: str = ""
    """The name of the agent that called, if known."""
    state: Json = None
    """What the call wrote to the session's state, if known."""
    delegates: bool = False
    """Whether another agent took over, which is no tool's call."""

    @property
    def lost_arguments(self) -> bool:
        """Whether nobody knows which call it would answer."""
        return self.problem.startswith("arguments")


Recording = tuple[tuple[RecordedCall, ...], ...]
"""The calls of a conversation, turn by turn."""


def recording_of(case: CaseData) -> Recording:
    """Return the calls with the results that the tools gave: what was recorded, otherwise the references.

    Expected calls with a result follow those of their turn, so that an agent that was mended gets an answer.
    """
    expected = case.get("conversation") or []
    turns = case.get("actualConversation") or expected
    more = [] if turns is expected else expected
    return tuple(
        tuple(_with_expected([*_calls(turn or {})], other or {}))
        for turn, other in zip_longest(turns, more[: len(turns)])
    )


def _with_expected(calls: Sequence[RecordedCall], expected: CaseData) -> Iterator[RecordedCall]:
    """Yield the calls of a turn, and the expected ones that have a result and were not made."""
    yield from calls
    made = [(one.name, one.arguments) for one in calls]
    for call in _calls({"tools": _with_result(expected)}):
        if (call.name, call.arguments) not in made:
            yield call


def _with_result(turn: CaseData) -> list[CaseData]:
    tools = [one for one in turn.get("tools") or () if isinstance(one, dict)]
    return [one for one in tools if one.get("result") is not None or one.get("error")]


def _calls(turn: CaseData) -> Iterator[RecordedCall]:
    tools = [one for one in turn.get("tools") or () if isinstance(one, dict)]
    parents = {one["parentId"] for one in tools if one.get("parentId")}
    for tool in tools:
        yield _call(tool, is_parent=tool.get("id") in parents)


def _call(tool: CaseData, *, is_parent: bool) -> RecordedCall:
    name = tool.get("name") or ""
    error, duration = tool.get("error") or {}, tool.get("durationMs")
    return RecordedCall(
        name=name,
        arguments=arguments_of(tool.get("arguments")),
        result=tool.get("result"),
        error=_message(error) if error else None,
        error_type=error.get("type") or "",
        seconds=duration / 1000 if isinstance(duration, int | float) else None,
        problem=_problem(tool),
        id=tool.get("id") or "",
        parent=tool.get("parentId") or "",
        agent=tool.get("agent") or "",
        state=tool.get("stateDelta"),
        delegates=is_parent or name.startswith(_HANDS_OVER),
    )


def _problem(tool: CaseData) -> str:
    name, lost = tool.get("name"), tool.get("capture") or {}
    given = ("stateDelta",) if tool.get("error") else ("result", "stateDelta")
    for part in ("arguments", *given):
        if how := _LOST.get(lost.get(part, "")):
            return f"{_WORDS[part]} {name} {'were' if part == 'arguments' else 'was'} {how}"
    unlike = ((part, _unlike(tool.get(part))) for part in given)
    return next((f"{_WORDS[part]} {name} was recorded as {how}" for part, how in unlike if how), "")


def is_hash(text: str) -> bool:
    """Return whether a policy of the recorder has put a hash in place of a text."""
    return text.startswith("<hash:") and text.endswith(">")


def _unlike(value: Json) -> str:
    """Return what a text in the value is instead of what the tool returned: a hash, `<24 bytes>`."""
    if isinstance(value, str):
        return "a hash" if is_hash(value) else value if stands_for_object(value) else ""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((how for one in inner if (how := _unlike(one))), "")


def _message(error: Mapping[str, Any]) -> str:
    if error.get("type") or error.get("message") == "":
        return error.get("message") or ""
    return error.get("message") or "the tool failed"


def arguments_of(given: object) -> Json:
    """Return arguments as they are compared: none are an empty object, JSON in a text is read, and what is
    not JSON becomes what the recorder makes of it.
    """
    if isinstance(given, str):
        given = json_or_text(given) if given.strip() else None
    if given is None:
        return {}
    frozen, was_cut = freeze(given, _LONGEST)
    if was_cut:  # its end counts all the same
        with suppress(TypeError, ValueError, RecursionError):
            whole: Json = readable(json.loads(json.dumps(given, default=str)))
            orjson.dumps(whole)  # what is nested too deeply to be shown or compared stays cut
            return whole
    return thaw(frozen)


def json_or_text(text: str) -> Json:
    """Return the value of a text that is JSON, otherwise the text itself."""
    try:
        return parse(text)
    except ValueError:
        return text


def failure_of(call: RecordedCall) -> RecordedError:
    """Return the exception with which a call failed, with its name and text; where its class is known here,
    what caught it then catches it again.
    """
    failure = _of_known_class(call) or _of_class(call, (RecordedError,))
    failure.result = call.result
    return failure


def _of_known_class(call: RecordedCall) -> RecordedError | None:
    module, _, name = call.error_type.rpartition(".")
    known = getattr(sys.modules.get(module or "builtins"), name, None)
    if not (isinstance(known, type) and issubclass(known, Exception)):
        return None
    plain = {"__init__": Exception.__init__, "__str__": Exception.__str__}
    for made in ({}, plain):
        with suppress(Exception):  # a class may want other arguments, and runs foreign code
            failure = _of_class(call, (RecordedError, known), made)
            if str(failure) == call.error:
                return failure
    return None


def _of_class(
    call: RecordedCall, bases: tuple[type[Exception], ...], made: Mapping[str, Any] = _AS_IT_IS
) -> RecordedError:
    module, _, name = call.error_type.rpartition(".")
    named = {"__module__": module or "builtins", **made}
    return cast(RecordedError, type(name or "RecordedError", bases, named)(call.error))


def names(recordings: Iterable[Recording]) -> list[str]:
    """Return the names of all recorded tools, each once, in the order of their first calls."""
    return list(dict.fromkeys(call.name for turns in recordings for turn in turns for call in turn))
