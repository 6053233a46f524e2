"""Answers the tool calls of one unit, turn by turn, and knows afterwards what was asked."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final

import orjson

from evaltap.evaluator.scoring.contract.judge import JudgeError
from evaltap.experiments.mocks.declared import DeclaredMock
from evaltap.experiments.mocks.declared_type import in_declared_type
from evaltap.experiments.mocks.equality import equal, near, same
from evaltap.experiments.mocks.invent import Inventor
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import RecordedCall, Recording, arguments_of, failure_of
from evaltap.recorder.answering import RUN, ToolMiss, Writes
from evaltap.schemas.data import Json
from evaltap.schemas.errors import EvaltapError

_COMPARED: Final = 1_000
"""Characters."""
_OTHER_ARGUMENTS: Final = "has no recorded result for these arguments"
_NO_TREE: Final[Mapping[str, Json]] = {}


@dataclass(frozen=True, slots=True)
class Missed:
    """A call and a recording that do not have each other: why, or what became of it."""

    tool: str
    arguments: Json
    why: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and what it got."""

    tool: str
    arguments: Json
    outcome: Any
    """The result, or the exception that was raised."""


@dataclass(frozen=True, slots=True, eq=False)
class Within:
    """A recorded call that another agent made within a call that is answered now."""

    call: RecordedCall
    key: str
    parent: str
    """The key of that call."""


@dataclass(slots=True)
class TurnAnswers:
    """What was asked in a turn."""

    hits: dict[str, int] = field(default_factory=dict)
    """By tool: calls answered from the recording, or by a declared mock."""
    real: list[Missed] = field(default_factory=list)
    """Calls that ran the tool, because nothing was recorded."""
    invented: list[Missed] = field(default_factory=list)
    """Calls that a model has answered."""
    closest: list[Missed] = field(default_factory=list)
    """Calls that got the result of the closest recorded one."""
    misses: list[Missed] = field(default_factory=list)
    """Calls that failed for want of an answer; the first is the fork."""
    unused: list[Missed] = field(default_factory=list)
    """Recorded calls that were not made."""
    calls: list[Missed] = field(default_factory=list)
    """In a turn that a miss has cut short: the calls before it, in order."""
    crashed: bool = False
    """Whether the agent crashed."""

    @property
    def is_recorded(self) -> bool:
        """Whether the calls were those of the recorded turn."""
        return not (self.misses or self.real or self.invented or self.closest or self.unused)

    def hit(self, tool: str) -> None:
        """Count a call that was answered."""
        self.hits[tool] = self.hits.get(tool, 0) + 1


class Tape:
    """Answers from a recording by the rules of a policy; `begin` says which turn it is.

    May be asked from several threads.
    """

    def __init__(
        self,
        recording: Recording,
        policy: MockPolicy,
        *,
        declared: tuple[tuple[DeclaredMock, ...], ...] = (),
        every_turn: tuple[DeclaredMock, ...] = (),
        invent: Inventor | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        pool_from: int | None = None,
        redacted: Callable[[Json], Json] = lambda arguments: arguments,
    ) -> None:
        self.tools = tools
        """All tools of the recordings, for agents that are told which there are."""
        self.can_run = True
        """Whether a tool may run in place of an answer; tools served to an agent elsewhere cannot."""
        self.calls: list[Answered] = []
        """The calls of the turn so far."""
        self._recording, self._policy = recording, policy
        self._pool_from = pool_from
        """From this turn on, counted from 0, a call may be answered by that of any later recorded turn: a
        simulated user asks in another order than the recorded one."""
        self._declared, self._every_turn, self._invent = declared, every_turn, invent
        self._mocks: tuple[DeclaredMock, ...] = ()
        self._made: list[tuple[str, Json]] = []
        """The calls of the turn that were recorded."""
        self._named: dict[str, tuple[str, Json]] = {}
        """The calls that were recorded, by their id in the run."""
        self._within: list[tuple[tuple[str, Json], list[RecordedCall]]] = []
        """Calls that were answered, and what was made within them then."""
        self._held: list[Within] = []
        """What was made within calls that have returned, and is not recorded yet."""
        self._places: dict[int, int] = {}
        """The places of recorded calls, by what they are."""
        self._left: list[RecordedCall] = []
        self._redacted = redacted
        """Returns arguments as the recorder would keep them."""
        self._kept: dict[int, Json] = {}
        """By id, the arguments of recorded calls as the recorder would keep them."""
        self._lock = threading.Lock()
        self.invented_usd = 0.0
        """What the invented results have cost, as far as it is known."""
        self.missed: list[ToolMiss] = []
        self.turns: list[TurnAnswers] = []

    def begin(self) -> None:
        """Begin the next turn."""
        number = len(self.turns)
        if number == self._pool_from:
            self._left = [call for turn in self._recording[number:] for call in turn]
        elif self._pool_from is None or number < self._pool_from:
            self._left = [*self._recording[number]] if number < len(self._recording) else []
        own = self._declared[number] if number < len(self._declared) else ()
        self._mocks = (*own, *self._every_turn)
        self.turns.append(TurnAnswers())
        self.calls, self._made, self._within, self._held = [], [], [], []
        self._places |= {id(one): place for place, one in enumerate(self._left)}

    def end(self) -> None:
        """Note which recorded calls of the turn were not made; raise a miss that was swallowed."""
        why = "not called"
        self._take_unasked()
        is_pool = self._pool_from is not None and len(self.turns) > self._pool_from
        left = [one for one in self._left if not (one.delegates or is_pool)]
        self.turns[-1].unused = [Missed(one.name, one.arguments, why) for one in left]
        if self.missed:
            if not self.turns[-1].misses:
                first = self.missed[0]
                self.turns[-1].misses = [Missed(first.tool, {}, str(first))]
            made = [one for one in self.calls if not isinstance(one.outcome, ToolMiss)]
            self.turns[-1].calls = [Missed(one.tool, one.arguments, "") for one in made]
            raise self.missed[0]

    @property
    def has_left(self) -> bool:
        """Whether the run is to end, because its last turn made other calls than the recorded one."""
        return self._policy.stop_off_script and not self.turns[-1].is_recorded

    def answer(
        self,
        name: str,
        arguments: object,
        *,
        agent: str = "",
        function: Callable[..., Any] | None = None,
        writes: Writes | None = None,
    ) -> Any:  # what the function would return, or RUN
        """Return the recorded result of a call, or RUN; raise RecordedError or ToolMiss."""
        found, call = self._found(name, arguments_of(arguments), agent)
        if seconds := self._seconds(call):
            time.sleep(seconds)
        given = self._given(found, call, writes)
        return RUN if given is RUN else in_declared_type(given, function)

    async def answer_later(
        self, name: str, arguments: object, *, agent: str = "", writes: Writes | None = None
    ) -> Any:
        """Do the same without holding up the event loop."""
        given = arguments_of(arguments)
        if self._policy.missed(name) == "llm":
            found, call = await asyncio.to_thread(self._found, name, given, agent)
        else:
            found, call = self._found(name, given, agent)
        if seconds := self._seconds(call):
            await asyncio.sleep(seconds)
        return self._given(found, call, writes)

    def _seconds(self, call: RecordedCall | None) -> float:
        return (call.seconds or 0.0) if call is not None and self._policy.latency else 0.0

    def refuse(self, name: str, arguments: object, why: str) -> ToolMiss:
        """Note a call that is not answered, and return what it raises."""
        with self._lock:
            return self._miss(name, arguments_of(arguments), why, self.turns[-1])

    def unusable(self, name: str, arguments: object, why: str) -> Any:
        """Return RUN for a call whose answer cannot be used if its tool may run, else raise ToolMiss."""
        with self._lock:
            given, turn = arguments_of(arguments), self.turns[-1]
            if turn.hits.get(name):
                turn.hits[name] -= 1
            if self._policy.missed(name) != "real":
                raise self._miss(name, given, why, turn)
            turn.real.append(Missed(name, given, "ran for real"))
            return RUN

    def delegated(self, name: str) -> None:
        """Note a call that is no tool's: another agent takes over, and its own calls are answered."""
        with self._lock:
            recorded = self._policy.renamed.get(name, name)
            for call in self._left:
                if call.name == recorded:
                    self._left.remove(call)
                    self.turns[-1].hit(name)
                    return

    def data(self) -> dict[str, Any]:
        """Return what was asked, as JSON data."""
        return {"turns": [asdict(one) for one in self.turns]}

    def made(self, name: str, arguments: object, call_id: str = "") -> None:
        """Note a call that was recorded, whether or not it asks for its answer."""
        self._made.append((name, arguments_of(arguments)))
        self._named[call_id] = self._made[-1]

    def within(self, call_id: str | None = None) -> list[Within]:
        """Return, once, the calls that other agents made then within calls that were answered now.

        A call that returns (`call_id`) brings those made within it, which wait for the recorded calls before
        them; without one, nothing is waited for.
        """
        with self._lock:
            called = self._named.get(call_id or "")
            place = next((at for at, (one, _) in enumerate(self._within) if one == called), None)
            if place is not None:
                calls = self._within.pop(place)[1]
                keys = {one.id: f"{call_id}/{number}" for number, one in enumerate(calls) if one.id}
                self._held += (
                    Within(one, f"{call_id}/{number}", keys.get(one.parent, call_id or ""))
                    for number, one in enumerate(calls)
                )
            first = min((self._places[id(one)] for one in self._left), default=len(self._places))
            due = [
                one for one in self._held if call_id is None or self._places[id(one.call)] < first
            ]
            self._held = [one for one in self._held if one not in due]
            return sorted(due, key=lambda one: self._places[id(one.call)])

    def _take_unasked(self) -> None:
        """Use up calls that were made again without asking: they hand over to another agent, or the framework
        refuses their arguments or has no such tool.
        """
        asked = [(one.tool, one.arguments) for one in self.calls]
        for name, arguments in self._made:
            if (name, arguments) in asked:
                asked.remove((name, arguments))
                continue
            recorded = self._policy.renamed.get(name, name)
            left = [one for one in self._left if one.name == recorded]
            if (call := self._equal_call(name, arguments, left)) is not None:
                self._left.remove(call)

    def _given(self, found: Any, call: RecordedCall | None, writes: Writes | None) -> Any:
        if call is not None and writes is not None and isinstance(call.state, dict):
            writes(call.state)
        if isinstance(found, BaseException):
            raise found
        return found

    def _found(self, name: str, arguments: Json, agent: str) -> tuple[Any, RecordedCall | None]:
        """Return the result, RUN or the exception to raise, and the recorded call that it is from."""
        with self._lock:
            if not self.turns:
                self.missed.append(ToolMiss(f"mock miss: {name} was called before the first turn"))
                return self.missed[-1], None
            found, call = self._looked_up(name, arguments, agent)
            self.calls.append(Answered(name, arguments, found))
            return found, call

    def _looked_up(self, name: str, arguments: Json, agent: str) -> tuple[Any, RecordedCall | None]:
        turn = self.turns[-1]
        if own := [one for one in self._mocks if one.name == name]:
            return self._by_mocks(own, name, arguments, turn), None
        why = ""
        if self._policy.recorded:
            call, why = self._recorded(name, arguments, agent)
            if call is not None:
                turn.hit(name)
                return (call.result if call.error is None else failure_of(call)), call
        return self._without(name, arguments, why, turn), None

    def _by_mocks(
        self, mocks: list[DeclaredMock], name: str, arguments: Json, turn: TurnAnswers
    ) -> Any:
        """Answer by the first declared mock that matches; the tool itself never runs."""
        for mock in mocks:
            if not mock.matches(arguments):
                continue
            if mock.prompt:
                return self._invented(name, arguments, mock.prompt, turn)
            turn.hit(name)
            return deepcopy(mock.result)  # it answers again, and agents change what they get
        return self._miss(name, arguments, "is mocked, and no mock has these arguments", turn)

    def _recorded(self, name: str, arguments: Json, agent: str) -> tuple[RecordedCall | None, str]:
        """Take the recorded call that answers; otherwise return why none does."""
        recorded = self._policy.renamed.get(name, name)
        left = [one for one in self._left if one.name == recorded]
        if self._policy.match == "order":
            left = [one for one in self._left[:1] if one.name == recorded]
        if self._policy.match == "fifo":
            call = next(iter(left), None)
        else:
            # Agents may have tools of one name; without the caller's, the order is all there is.
            own_first = sorted(left, key=lambda one: bool(agent) and one.agent != agent)
            call = self._equal_call(name, arguments, own_first)
        if call is None or call.problem:
            return None, call.problem if call else self._why(name, arguments, left)
        if within := self._take(call):
            self._within.append(((name, arguments), within))
        return call, ""

    def _take(self, call: RecordedCall) -> list[RecordedCall]:
        """Use up a call, and return the calls that were made within it: they are not made again."""
        gone = {call.id} if call.id else set()
        self._left.remove(call)
        before = self._left
        while inner := [one for one in self._left if one.parent in gone]:
            gone |= {one.id for one in inner if one.id}
            self._left = [one for one in self._left if one not in inner]
        left = {id(one) for one in self._left}
        return [one for one in before if id(one) not in left]

    def _why(self, name: str, arguments: Json, left: list[RecordedCall]) -> str:
        recorded = self._policy.renamed.get(name, name)
        if problem := next((one.problem for one in left if one.lost_arguments), ""):
            return problem
        if left:
            return _OTHER_ARGUMENTS
        where, calls = self._here()
        if not (own := [one for one in calls if one.name == recorded]):
            return f"was not called {where}"
        if self._policy.match == "order" and any(one.name == recorded for one in self._left):
            return "was recorded later"
        if self._policy.match == "args" and self._equal_call(name, arguments, own) is None:
            return _OTHER_ARGUMENTS
        return "was called more often than recorded"

    def _here(self) -> tuple[str, list[RecordedCall]]:
        """Return which recorded calls may answer in this turn, in words and as they were at its start."""
        number = len(self.turns) - 1
        where, turns = "in the recorded turn", self._recording[number : number + 1]
        if self._pool_from is not None and number >= self._pool_from:
            where = f"in any recorded turn from turn {self._pool_from + 1} on"
            turns = self._recording[self._pool_from :]
        return where, [one for turn in turns for one in turn]

    def _equal_call(
        self, tool: str, arguments: Json, calls: Sequence[RecordedCall]
    ) -> RecordedCall | None:
        """Return the first call with equal arguments; if there is none, the first with near numbers."""
        policy, asked = self._policy, self._redacted(arguments)
        ignored = policy.ignore.get(tool) or policy.ignore.get(policy.renamed.get(tool, tool))
        for alike in (equal, near):
            for call in calls:
                if id(call) not in self._kept:
                    self._kept[id(call)] = self._redacted(call.arguments)
                if same(asked, self._kept[id(call)], ignored or _NO_TREE, alike):
                    return call
        return None

    def _without(self, name: str, arguments: Json, why: str, turn: TurnAnswers) -> Any:
        """Return what a call gets that nothing was recorded for."""
        policy = self._policy.missed(name)
        if policy == "real" and self.can_run:
            turn.real.append(Missed(name, arguments, "ran for real"))
            return RUN
        if policy == "llm":
            return self._invented(name, arguments, "", turn)
        if policy == "closest" and (call := self._closest(name, arguments)) is not None:
            self._take(call)
            turn.closest.append(
                Missed(name, arguments, "got the result of the closest recorded call")
            )
            return call.result if call.error is None else failure_of(call)
        return self._miss(name, arguments, why or "has no mock", turn)

    def _invented(self, name: str, arguments: Json, instruction: str, turn: TurnAnswers) -> Any:
        if self._invent is None:
            return self._miss(name, arguments, "has no model to invent its result", turn)
        try:
            result, usd = self._invent(name, arguments, instruction)
        except EvaltapError as error:
            if isinstance(error, JudgeError) and error.reply is not None:
                self.invented_usd += error.reply.cost_usd or 0.0
            return self._miss(name, arguments, f"has no invented result: {error}", turn)
        self.invented_usd += usd
        turn.invented.append(Missed(name, arguments, "got an invented result"))
        return result

    def _miss(self, name: str, arguments: Json, why: str, turn: TurnAnswers) -> ToolMiss:
        turn.misses.append(Missed(name, arguments, why))
        miss = ToolMiss(f"mock miss: {name}({_short(arguments)}) {why}")
        self.missed.append(miss)
        return miss

    def _closest(self, name: str, arguments: Json) -> RecordedCall | None:
        recorded = self._policy.renamed.get(name, name)
        left = [one for one in self._left if one.name == recorded and not one.problem]
        return max(left, key=lambda one: likeness(arguments, one.arguments), default=None)


def likeness(one: Json, other: Json) -> float:
    """Return how much two arguments resemble each other, from 0 to 1: the share of common text at their
    beginning, since its computation takes the square of the length.
    """
    first, second = (
        (value if isinstance(value, str) else _text(value))[:_COMPARED] for value in (one, other)
    )
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _text(value: Json) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _short(arguments: Json, most: int = 200) -> str:
    text = _text(arguments)
    return text if len(text) <= most else f"{text[:most]}…"
