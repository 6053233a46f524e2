"""Conversations as messages, and the eval cases of them: what the readers of session files share.

A reader is a module with a function `conversations(document)`, which returns the conversations of a file's
JSON, or None for a document of another format.  A message of the user begins a turn; messages of the user
without anything in between are one.  If the agent acts before any message of the user, or there is none, the
file lacks the beginning: what the agent did is a turn whose question is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from evaltap.recorder.assembly.case import case_of, installed_version
from evaltap.recorder.observation import (
    ContextMessage,
    Failure,
    ModelCalled,
    Origin,
    Responded,
    RunEnded,
    RunEvent,
    RunStarted,
    RunStatus,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.tokens import UNKNOWN, Tokens
from evaltap.schemas.chat.evidence import decode
from evaltap.schemas.data import CaseData

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a message asks for."""

    name: str
    arguments: object = None
    """None if the format does not have them."""
    id: str = ""
    """Empty if the format does not have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message, or an event that ends a run; None is unknown."""

    role: Role
    text: str | None = None
    time_ns: int = 0
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    """Of the call that a tool's message answers; empty: the first open call of that name."""
    name: str = ""
    """The tool's name."""
    result: object = None
    failure: Failure | None = None
    """Of the tool; of an assistant's message, what ended the run."""
    stopped: bool = False
    """Whether the user stopped the run here; such a run did not fail, and did not end."""
    duration_ms: float | None = None
    model: str | None = None
    tokens: Tokens = UNKNOWN
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A session with its messages in order."""

    framework: str
    messages: Sequence[Message]
    session_id: str | None = None
    agent_name: str | None = None
    state: Mapping[str, object] = field(default_factory=dict)
    status: RunStatus | None = None
    """How it ended, if the format says so; otherwise the messages tell."""
    failure: Failure | None = None


def cases_of(conversation: Conversation, *, name: str) -> Iterator[CaseData]:
    """Yield an eval case for each turn; `name` identifies a conversation without a session id."""
    timed = any(message.time_ns for message in conversation.messages)
    turns = _turns(conversation.messages)
    for number, (before, messages) in enumerate(turns, start=1):
        run_id = f"{conversation.session_id or name}-{number}"
        last = number == len(turns)
        events = _events(conversation, run_id, before, messages, last=last)
        case = case_of(events, recorder_version=installed_version())
        if conversation.session_id is None:
            case["evalId"] = name
        if not timed:
            _remove_times(case)
        elif all(message.role == "user" for message in messages):
            case["actualConversation"][0]["telemetry"].pop("latencyMs", None)
        yield case


def time_of(value: object) -> int:
    """Return an ISO 8601 time, UTC if it has no zone, in nanoseconds since the epoch; 0 for others."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        if found is None:
            return 0
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return max(0, int(found.timestamp() * 1e6) * 1000)
    except (ValueError, OverflowError):  # a time of year 1 may have no timestamp
        return 0


def word(value: object) -> str | None:
    """Return a text; None for anything else."""
    return value if isinstance(value, str) else None


def usd(value: object) -> float | None:
    """Return a stated cost; None for what cannot be one."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def text_of(content: object) -> str | None:
    """Return a message's text: a string, a part with `text`, or a list of these; None if there is none."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of(content.get("text"))
    if isinstance(content, list):
        found = [one for one in map(text_of, content) if one is not None]
        return "".join(found) if found else None
    return None


def value_of(content: object) -> object:
    """Return arguments or a result: JSON text as its value, other values unchanged."""
    if isinstance(content, str) and content.lstrip()[:1] not in ("{", "["):
        return content
    return decode(content).value


def _turns(messages: Sequence[Message]) -> list[tuple[list[Message], list[Message]]]:
    """Return the messages before each turn, which only the first has, and those of the turn."""
    before: list[Message] = []
    turns: list[tuple[list[Message], list[Message]]] = []
    asked = any(message.role == "user" for message in messages)
    for message in messages:
        if not turns and (
            message.calls or (message.role == "assistant" and message.text and not asked)
        ):
            turns.append((before, [Message(role="user", time_ns=message.time_ns)]))
        if message.role == "user" and not (turns and turns[-1][1][-1].role == "user"):
            turns.append((before if not turns else [], [message]))
        elif turns:
            turns[-1][1].append(message)
        else:
            before.append(message)
    return turns


def _events(
    conversation: Conversation,
    run_id: str,
    before: Sequence[Message],
    messages: Sequence[Message],
    *,
    last: bool,
) -> Iterator[RunEvent]:
    """Yield the events of a turn; they are in order of time, a nanosecond apart if no time is known."""
    asked = [one for one in messages if one.role == "user"]
    begun = max(1, asked[0].time_ns)
    yield from _context(run_id, begun, before)
    yield _question(run_id, begun, asked)
    turn = _Turn(run_id, begun, conversation.agent_name)
    for message in messages:
        yield from turn.read(message)
    yield RunStarted(
        run_id,
        begun,
        session_id=conversation.session_id,
        agent_name=conversation.agent_name,
        state=conversation.state or None,
        origin=Origin(framework=conversation.framework, convention=conversation.framework),
        invocation_id=run_id,
        capture={"tools": "ambiguous"} if turn.calls.unmatched else {},
    )
    stated = conversation if last else Conversation(framework=conversation.framework, messages=())
    failure = stated.failure or turn.failure
    silent = not turn.done or len(messages) == len(asked)
    status = stated.status or ("incomplete" if silent else "ok")
    if failure is not None:
        status = "error"
    yield from turn.answered(status)
    ended = max(one.time_ns for one in messages)
    yield RunEnded(run_id, ended or turn.now, status, failure)


def _context(run_id: str, now: int, before: Sequence[Message]) -> Iterator[ContextMessage]:
    for one in before:
        if one.text:
            role: Literal["system", "assistant"] = "system" if one.role == "system" else "assistant"
            yield ContextMessage(run_id, now, one.text, role=role)


def _question(run_id: str, now: int, asked: Sequence[Message]) -> UserMessage:
    if not (texts := [one.text for one in asked if one.text is not None]):
        return UserMessage(run_id, now, None, {"userContent": "missing"})
    return UserMessage(run_id, now, "\n\n".join(texts))


class _Turn:
    """What a turn's messages have told so far."""

    def __init__(self, run_id: str, begun: int, agent_name: str | None) -> None:
        self._run_id, self._agent_name = run_id, agent_name
        self.now = begun
        self.calls = _Calls()
        self.failure: Failure | None = None
        self.done = True
        """Whether the agent has the last word, and asks for nothing."""
        self._answer: tuple[int, Message] | None = None

    def read(self, message: Message) -> Iterator[RunEvent]:
        """Yield the events of a message, except of what may turn out to be the answer."""
        self.now = max(self.now + 1, message.time_ns)
        if message.role == "tool":
            self.done = False
            yield from self.calls.returned(self._run_id, self.now, message)
        elif message.role == "system" and message.text:
            yield ContextMessage(self._run_id, self.now, message.text)
        elif message.role == "assistant":
            yield from self._said(message)

    def _said(self, message: Message) -> Iterator[RunEvent]:
        acts = bool(message.text or message.calls)
        if message.calls or message.text is not None or message.failure or message.stopped:
            self.failure, self.done = message.failure, not (message.calls or message.stopped)
        if self._answer is not None and acts:
            yield from _model(self._run_id, *self._answer, self._answer[1].text)
            self._answer = None
        if message.text is not None and not message.calls and (acts or self._answer is None):
            self._answer = self.now, message
        else:
            yield from _model(self._run_id, self.now, message, message.text)
        for call in message.calls:
            self.now += 1
            yield self.calls.asked(self._run_id, self.now, call, self._agent_name)

    def answered(self, status: RunStatus) -> Iterator[RunEvent]:
        """Yield the answer, or that it is missing."""
        if self._answer is not None:
            now, message = self._answer
            yield from _model(self._run_id, now, message, None)
            yield Responded(self._run_id, now, message.text)
        elif status == "ok":
            yield Responded(self._run_id, self.now, None, {"finalResponse": "missing"})


def _model(run_id: str, now: int, message: Message, text: str | None) -> Iterator[ModelCalled]:
    """Yield the model call behind a message, if something is known of it."""
    called = ModelCalled(run_id, now, message.model, text or None, message.tokens, message.cost_usd)
    if called != ModelCalled(run_id, now):
        yield called


class _Calls:
    """The calls of a turn, which results are assigned to."""

    def __init__(self) -> None:
        self.unmatched = False
        """Whether a result had no call."""
        self._open: dict[str, tuple[str, str]] = {}
        self._known: set[str] = set()
        self._answered: dict[str, str] = {}
        self._count = 0

    def asked(self, run_id: str, now: int, call: Call, agent: str | None) -> ToolCalled:
        """Return the event of a call."""
        self._count += 1
        key = call.id if call.id and call.id not in self._known else f"{run_id}-call-{self._count}"
        self._known.add(key)
        self._open[key] = call.id, call.name
        return ToolCalled(
            run_id,
            now,
            key,
            call.name,
            call.arguments,
            agent_name=agent,
            id_known=key == call.id,
            capture={} if call.arguments is not None else {"arguments": "missing"},
        )

    def returned(self, run_id: str, now: int, message: Message) -> Iterator[ToolReturned]:
        """Yield the event of a result, if there is a call for it; of several results the last counts."""
        named = [key for key, (given, _) in self._open.items() if given == message.call_id != ""]
        # Formats without ids in calls, or in results, have them in order.
        loose = (
            key
            for key, (given, name) in self._open.items()
            if "" in (given, message.call_id) and message.name in ("", name)
        )
        key = named[0] if named else self._answered.get(message.call_id) or next(loose, None)
        if key is None:
            self.unmatched = True
            return
        if self._open.pop(key, None) and message.call_id:
            self._answered[message.call_id] = key
        unseen = message.result is None and message.failure is None
        yield ToolReturned(
            run_id,
            now,
            key,
            message.result,
            message.failure,
            message.duration_ms,
            {"result": "missing"} if unseen else {},
        )


def _remove_times(case: CaseData) -> None:
    """Remove the times that only kept events in order."""
    case.pop("creationTimestamp", None)
    (turn,) = case["actualConversation"]
    turn.pop("creationTimestamp", None)
    turn["telemetry"].pop("latencyMs", None)
    for tool in turn.get("tools", ()):
        tool.pop("startTime", None)
