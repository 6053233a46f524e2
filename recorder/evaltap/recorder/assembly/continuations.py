"""Joins a run that goes on after a pause, as for a person's approval, with the run that it continues.

Frameworks end a run when a call waits for a person or a client, and make another one, in another trace,
of what comes of it. Both are one turn: the first part's question, the calls of both, the last part's
answer. A run continues another one if that has paused, if it itself begins with calls that it did not
request, and if session, question and call are the same. A user who asks the same question again begins
with the question, so that is another turn.
"""

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from evaltap.recorder.copying import thaw
from evaltap.recorder.memory import pack, unpack
from evaltap.recorder.observation import (
    OVERHEAD_BYTES,
    PAUSED,
    ContextMessage,
    ModelCalled,
    Responded,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.pacing import yield_to_agent

MAX_TURNS: Final = 1_000
MAX_BYTES: Final = 32 << 20
"""Maximum turns, and estimated bytes of them, that are held because they have paused; the oldest go first."""
MAX_PARTS: Final = 2
"""Parts of a turn that are held apart, so that they can be revised; earlier ones are merged."""
HELD_SECONDS: Final = 24 * 3600.0
"""How long a turn that has paused waits for its next part."""

_RESUMES_INVOCATIONS: Final = "google-adk"
_REVISIONS: Final = 100
"""More than a part of a turn has."""
_CONTENT: Final = ("content", "text", "arguments", "result", "state", "reasoning")
_MOST_CALLS: Final = 900
"""A store takes revisions up to 100,000."""


@dataclass(slots=True)
class _Turn:
    """A turn that has paused at least once; `parts` are the events of its runs, pickled if possible."""

    asked: "_Asked"
    runs: list[str] = field(default_factory=list)
    parts: dict[str, bytes | tuple[RunEvent, ...]] = field(default_factory=dict)
    """By run id, of the latest runs; the first has the events of all runs before the second."""
    weights: dict[str, int] = field(default_factory=dict)
    ended_ns: int = 0
    waits: bool = False

    def events(self) -> "list[tuple[RunEvent, ...]]":
        """Return the events of each part."""
        return [unpack(one) if isinstance(one, bytes) else one for one in self.parts.values()]

    def learn(self, whole: Sequence[RunEvent]) -> None:
        """Note what the turn asks now, and whether it waits."""
        self.asked = _Asked.by(whole)
        ends = [one for one in whole if isinstance(one, RunEnded)]
        self.waits = any(one.close_reason == PAUSED for one in ends)
        self.ended_ns = max(self.ended_ns, *(one.time_ns for one in ends))


class Continuations:
    """Holds turns that have paused; used by one thread."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._turn_of: dict[str, str] = {}
        """Run id to the id of the turn, which is its first run's."""
        self._bytes = 0

    @property
    def held_turns(self) -> int:
        """The number of turns held."""
        return len(self._turns)

    @property
    def held_bytes(self) -> int:
        """The estimated size of the turns held."""
        return self._bytes

    def holds(self, turn_id: str) -> bool:
        """Return whether a turn has paused, so that more may be said of it."""
        return turn_id in self._turns

    def joined(
        self, run_id: str, events: Sequence[RunEvent], known: Container[str]
    ) -> tuple[str, Sequence[RunEvent]]:
        """Return the id and the events of the turn that a run is, or belongs to.

        `known` has the ids of runs that are turns already: such a run stays one, and only such a turn
        can be continued.
        """
        end = next((one for one in reversed(events) if isinstance(one, RunEnded)), None)
        if end is None:
            return run_id, events
        turn_id = self._turn_of.get(run_id)
        if turn_id is None and end.resumed and run_id not in known:
            turn_id = self._continued(_Asked.by(events), known)
        if turn_id is None:
            if end.close_reason != PAUSED:
                return run_id, events
            turn_id = run_id
        turn = self._add(turn_id, run_id, events)
        parts = turn.events()
        whole = parts[0] if len(parts) == 1 else merged(turn_id, parts)
        turn.learn(whole)
        if not turn.waits and len(parts) == 1:
            self._drop(turn_id)
        while len(self._turns) > MAX_TURNS or self._bytes > MAX_BYTES:
            self._drop(next(iter(self._turns)))
        return turn_id, whole

    def forget(self, before_ns: int) -> None:
        """Forget the turns whose last part ended before this time."""
        while self._turns:
            turn_id, turn = next(iter(self._turns.items()))
            if turn.ended_ns >= before_ns:
                return
            self._drop(turn_id)

    def _continued(self, asked: "_Asked", known: Container[str]) -> str | None:
        """Return the latest turn that a run continues; without a session, only if no other may be."""
        found = [
            turn_id
            for turn_id, turn in reversed(self._turns.items())
            if turn.waits and turn_id in known and asked.continues(turn.asked)
        ]
        for turn_id in found:
            if asked.is_invocation_of(self._turns[turn_id].asked):
                return turn_id
        if asked.session_id is None and len(found) > 1:
            return None
        return found[0] if found else None

    def _add(self, turn_id: str, run_id: str, events: Sequence[RunEvent]) -> _Turn:
        """Add a run to a turn, or what it is now, unless it is merged with others already."""
        turn = self._turns.setdefault(turn_id, _Turn(_Asked.by(events)))
        self._turns.move_to_end(turn_id)
        if run_id not in self._turn_of:
            self._turn_of[run_id] = turn_id
            turn.runs.append(run_id)
        elif run_id not in turn.parts:
            return turn
        self._hold(turn, run_id, events)
        if len(turn.parts) > MAX_PARTS:
            first, second = [*turn.parts][:2]
            both = merged(turn_id, turn.events()[:2])
            del turn.parts[second]
            self._bytes -= turn.weights.pop(second)
            self._hold(turn, first, both)
        return turn

    def _hold(self, turn: _Turn, run_id: str, events: Sequence[RunEvent]) -> None:
        part = tuple(events)
        weight = _weight(part)
        self._bytes += weight - turn.weights.get(run_id, 0)
        turn.weights[run_id] = weight
        turn.parts[run_id] = pack(part, weight) or part

    def _drop(self, turn_id: str) -> None:
        turn = self._turns.pop(turn_id)
        self._bytes -= sum(turn.weights.values())
        for run_id in turn.runs:
            del self._turn_of[run_id]


def revisions_before(events: Sequence[RunEvent]) -> int:
    """Return how many revisions a turn may have had before this run, by other processes.

    ADK goes on under the id of the invocation that has paused. Such a run repeats all calls since the
    question, so its record replaces those of the parts before, whose revisions are lower.
    """
    start = next((one for one in events if isinstance(one, RunStarted)), None)
    resumed = any(isinstance(one, RunEnded) and one.resumed for one in events)
    if not resumed or start is None or start.origin.framework != _RESUMES_INVOCATIONS:
        return 0
    calls = sum(isinstance(one, ToolCalled) for one in events)
    return _REVISIONS * min(calls, _MOST_CALLS)


def _weight(part: Sequence[RunEvent]) -> int:
    """Estimate the size of events as they are in the queue, faster than `weigh`."""
    found = len(part) * OVERHEAD_BYTES
    for one in part:
        for name in _CONTENT:
            value = getattr(one, name, None)
            found += len(value) if isinstance(value, str | bytes) else 0
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """What tells whether two runs are parts of one turn."""

    session_id: str | None
    app_name: str | None
    invocation_id: str | None
    question: str
    calls: tuple[ToolCalled, ...]

    @classmethod
    def by(cls, events: Sequence[RunEvent]) -> "_Asked":
        start = next((one for one in events if isinstance(one, RunStarted)), None)
        said = (one.content for one in events if isinstance(one, UserMessage) and one.content)
        return cls(
            start.session_id if start is not None else None,
            start.app_name if start is not None else None,
            start.invocation_id if start is not None else None,
            next(said, "").strip(),
            tuple(one for one in events if isinstance(one, ToolCalled)),
        )

    def is_invocation_of(self, before: "_Asked") -> bool:
        """Return whether the framework says that it goes on."""
        return self.invocation_id is not None and self.invocation_id == before.invocation_id

    def continues(self, before: "_Asked") -> bool:
        """Return whether a run that begins in the middle may continue one that has paused."""
        if _differ(self.app_name, before.app_name) or _differ(self.session_id, before.session_id):
            return False
        if self.is_invocation_of(before):
            return True
        in_session = self.session_id is not None and self.session_id == before.session_id
        # Without a model call, as of a tool that is the last step, the question does not show again.
        same_question = self.question == before.question or (in_session and not self.question)
        if not before.question or not same_question:
            return False
        if not self.calls or not before.calls:
            return in_session
        return any(is_same(one, other) for one in self.calls for other in before.calls)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def merged(turn_id: str, parts: Sequence[Sequence[RunEvent]]) -> list[RunEvent]:
    """Return the events of one turn; the trace is that of the last part, which has the answer."""
    first, *later = (
        [one if one.run_id == turn_id else replace(one, run_id=turn_id) for one in part]
        for part in parts
    )
    for part in later:
        first = _with_part(first, part)
    return first


def _with_part(before: Sequence[RunEvent], after: Sequence[RunEvent]) -> list[RunEvent]:
    """Return the events of a turn with its next part."""
    calls = _Calls(before, after)
    begun = next((one for one in after if isinstance(one, RunStarted)), None)
    ended = next((one for one in reversed(before) if isinstance(one, RunEnded)), None)
    waited_ns = ended.waited_ns if ended is not None else 0
    if begun is not None and ended is not None:
        waited_ns += max(0, begun.time_ns - ended.time_ns)
    has_question = any(isinstance(one, UserMessage) and one.content for one in before)
    return [
        *chain.from_iterable(_kept(event, begun, calls) for event in before),
        *chain.from_iterable(_added(one, waited_ns, calls, asked=has_question) for one in after),
    ]


def _kept(event: RunEvent, begun: RunStarted | None, calls: "_Calls") -> Iterator[RunEvent]:
    """Yield what is left of an event when another part follows, which began so."""
    if isinstance(event, RunStarted):
        yield event if begun is None else _started(event, begun)
    elif isinstance(event, Responded):
        # What a part that has paused said last is not the answer.
        if event.content or event.parts:
            yield ModelCalled(
                event.run_id,
                event.time_ns,
                text=event.content,
                parts=event.parts,
                reasoning=event.reasoning,
            )
    elif isinstance(event, ToolCalled):
        yield calls.approved(event)
    elif not isinstance(event, RunEnded):
        yield event


def _added(event: RunEvent, waited_ns: int, calls: "_Calls", *, asked: bool) -> Iterator[RunEvent]:
    """Yield what an event of the next part adds to a turn; `asked`: its question is known."""
    if isinstance(event, ToolCalled | ToolReturned):
        yield from calls.added(event)
    elif isinstance(event, RunEnded):
        yield replace(event, waited_ns=event.waited_ns + waited_ns)
    elif isinstance(event, UserMessage):
        if not asked:
            yield event
    elif isinstance(event, ContextMessage):
        if event.role == "system":  # the conversation before has the messages of the parts before
            yield event
    elif not isinstance(event, RunStarted):
        yield event


def _started(first: RunStarted, last: RunStarted) -> RunStarted:
    ends = ("finalResponse", "tools")
    capture = {field: why for field, why in first.capture.items() if field not in ends}
    if why := last.capture.get("finalResponse"):
        capture["finalResponse"] = why
    return replace(
        first,
        app_name=first.app_name or last.app_name,
        user_id=first.user_id or last.user_id,
        agent_name=first.agent_name or last.agent_name,
        trace_id=last.trace_id or first.trace_id,
        root_span_id=last.root_span_id or first.root_span_id,
        capture=capture,
    )


class _Calls:
    """The calls of a turn and of its next part, which repeats some of them."""

    def __init__(self, before: Sequence[RunEvent], after: Sequence[RunEvent]) -> None:
        self._known = {one.call_id: one for one in before if isinstance(one, ToolCalled)}
        self._returned = _returned(before)
        self._executed = {
            one.call_id
            for one in after
            if isinstance(one, ToolReturned) and one.duration_ms is not None
        }
        self._again: dict[str, ToolCalled] = {}
        """By id in the turn, the repetition of a call."""
        self._names: dict[str, str] = {}
        """Ids in the next part to ids in the turn."""
        self._taken = set(self._known)
        self._nameless = [one for one in self._known.values() if not one.id_known]
        for call in (one for one in after if isinstance(one, ToolCalled)):
            yield_to_agent()
            if call.call_id not in self._names:
                self._names[call.call_id] = self._name(call)

    def approved(self, call: ToolCalled) -> ToolCalled:
        """Return a call with the arguments that it was made with: a person may have changed them."""
        again = self._again.get(call.call_id)
        if again is None or again.arguments is None or call.call_id in self._returned:
            return call
        capture = {"arguments": why} if (why := again.capture.get("arguments")) else {}
        if why := call.capture.get("id"):
            capture["id"] = why
        return replace(call, arguments=again.arguments, capture=capture)

    def added(self, event: ToolCalled | ToolReturned) -> Iterator[RunEvent]:
        """Yield an event of the next part, with the call's id in the turn, unless it only repeats one."""
        name = self._names.get(event.call_id, event.call_id)
        if isinstance(event, ToolReturned):
            if name not in self._returned or event.duration_ms is not None:
                yield replace(event, call_id=name)
        elif name not in self._again:
            parent = event.parent_call_id
            parent = None if parent is None else self._names.get(parent, parent)
            yield replace(event, call_id=name, parent_call_id=parent)

    def _name(self, call: ToolCalled) -> str:
        same_id = self._known.get(call.call_id)
        alike = [same_id] if same_id is not None else []
        alike += self._nameless if call.id_known else self._known.values()
        for known in alike:
            if known.call_id not in self._again and self._is_repeated(known, call):
                self._again[known.call_id] = call
                return known.call_id
        name, number = call.call_id, 1
        while name in self._taken:
            number += 1
            name = f"{call.call_id}#{number}"
        self._taken.add(name)
        return name

    def _is_repeated(self, known: ToolCalled, call: ToolCalled) -> bool:
        waits = known.call_id not in self._returned
        if known.id_known and call.id_known:
            return is_same(known, call) and (waits or _same_arguments(known, call))
        return is_same(known, call) and (waits or call.call_id not in self._executed)


def _returned(events: Sequence[RunEvent]) -> set[str]:
    """Return the ids of the calls that have their last result, or have failed."""
    found: set[str] = set()
    for one in events:
        if isinstance(one, ToolReturned) and (one.result is not None or one.failure is not None):
            found.add(one.call_id)
    awaited = (one.awaits for one in events if isinstance(one, RunEnded))
    return found.difference(*awaited)


def is_same(one: ToolCalled, other: ToolCalled) -> bool:
    """Return whether two events may be of the same call: by its id, without one by its arguments."""
    if one.name != other.name:
        return False
    if one.id_known and other.id_known:
        return one.call_id == other.call_id
    return _same_arguments(one, other)


def _same_arguments(one: ToolCalled, other: ToolCalled) -> bool:
    known = thaw(one.arguments), thaw(other.arguments)
    return None in known or known[0] == known[1]
