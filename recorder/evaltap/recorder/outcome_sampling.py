"""Sampling decided when a run has ended: more of the errors, the slow, the costly, the odd.

A turn is kept when the position of its session is below the highest probability that applies: the
head rate, or the `keep` of a rule that holds.  So its inclusion probability is exactly that
number, all turns of a session share one draw, and asking twice gives one answer.  A rate limit
thins out further, by a second draw with the share that fits into it; that share is multiplied in.
A turn that is told again, since more of it is known, keeps the best of its probabilities and what the
rate limit said of it.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from evaltap.recorder.sampling import is_sampled, position
from evaltap.schemas.errors import ConfigurationError

HEAD = "head"
LIMITED = "rate_limited"
SAMPLED_OUT = "sampled_out"

MIN_TOOL_CALLS = 100
"""Calls to have seen before any tool is called rare."""
MAX_TOOLS = 10_000
_RATE_SECONDS = 30.0
"""Over how long the rate of turns is averaged."""

MAX_NEGATIVE_SESSIONS = 10_000
MAX_REMEMBERED_TURNS = 10_000

Check = Callable[[Mapping[str, Any], "History"], bool]


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """Keep turns of which all checks hold with at least this probability."""

    name: str
    keep: float
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a turn is kept, by which rule, and how likely that was.

    `reason` is `head` or the name of a rule; of a turn that is left out it is what is counted.
    """

    kept: bool
    reason: str
    probability: float


@dataclass(slots=True)
class _Standing:
    """The best reason to keep a turn so far; `limited` is what the rate limit said: share, admitted."""

    reason: str
    probability: float
    limited: tuple[float, bool] | None = None


class History:
    """What this process has seen before: how often each tool was called, and who complained; bounded."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._total = 0
        self._negative: OrderedDict[str, None] = OrderedDict()

    def add(self, names: Sequence[str]) -> None:
        """Count calls."""
        if len(self._calls) + len(names) > MAX_TOOLS:
            self._calls = Counter(dict(self._calls.most_common(MAX_TOOLS // 2)))
        self._calls.update(names)
        self._total += len(names)

    def is_rare(self, name: str, share: float) -> bool:
        """Return whether a tool makes up less than this share of the calls so far."""
        return self._total >= MIN_TOOL_CALLS and self._calls[name] < share * self._total

    def note_negative(self, eval_id: str) -> None:
        """Remember that a session got negative feedback."""
        self._negative[eval_id] = None
        self._negative.move_to_end(eval_id)
        if len(self._negative) > MAX_NEGATIVE_SESSIONS:
            self._negative.popitem(last=False)

    def is_negative(self, eval_id: str) -> bool:
        """Return whether a session got negative feedback so far."""
        return eval_id in self._negative


class OutcomeSampler:
    """Decides for each finished turn; used by one thread.

    `rate` is the head rate, `max_per_minute` the limit (0: none), `clock` monotonic seconds.
    """

    def __init__(
        self,
        rate: float,
        rules: Sequence[OutcomeRule] = (),
        *,
        max_per_minute: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._rules = tuple(rules)
        self._seen = History()
        self._limit = _RateLimit(max_per_minute / 60, clock) if max_per_minute else None
        self._standings: OrderedDict[tuple[str, str], _Standing] = OrderedDict()
        self.is_idle = rate >= 1 and not self._rules and self._limit is None

    def note_negative(self, eval_id: str) -> None:
        """Take note of negative feedback; it counts for the turns of the session that end from now on."""
        self._seen.note_negative(eval_id)

    def decide(self, case: Mapping[str, Any]) -> Decision:
        """Return the decision on a case with one turn."""
        turn = case["actualConversation"][0]
        standing = self._standing(case, turn)
        for rule in self._rules:
            if rule.keep > standing.probability and all(
                check(case, self._seen) for check in rule.checks
            ):
                standing.reason, standing.probability = rule.name, rule.keep
        if not _is_revision(case):
            self._seen.add(_tool_names(turn))
        reason, probability = standing.reason, standing.probability
        if not is_sampled(case["evalId"], probability):
            left_out = SAMPLED_OUT if reason == HEAD else f"{SAMPLED_OUT}:{reason}"
            return Decision(False, left_out, probability)
        if self._limit is None:
            return Decision(True, reason, probability)
        if standing.limited is None:
            share = self._limit.share()
            draw = position(f"{case['evalId']}\0{turn.get('invocationId')}")
            standing.limited = share, self._limit.admits(draw, share)
        share, kept = standing.limited
        return Decision(kept, reason if kept else LIMITED, probability * share)

    def _standing(self, case: Mapping[str, Any], turn: Mapping[str, Any]) -> _Standing:
        """Return how the turn stood when it was told before, else how every turn stands at first."""
        key = (case["evalId"], str(turn.get("invocationId")))
        if not _is_revision(case) or key not in self._standings:
            self._standings[key] = _Standing(HEAD, self._rate)
            if len(self._standings) > MAX_REMEMBERED_TURNS:
                self._standings.popitem(last=False)
        return self._standings[key]


class _RateLimit:
    """Thins out by the share that fits the limit, and never lets a minute's worth pass at once."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._last = clock()
        self._rate = 0.0
        self._capacity = max(1.0, per_second * 60)
        self._tokens = self._capacity

    def share(self) -> float:
        """Note an arrival; return the share of arrivals that fits the limit."""
        now = self._clock()
        passed, self._last = max(0.0, now - self._last), now
        self._tokens = min(self._capacity, self._tokens + passed * self._per_second)
        # An average that forgets: each arrival adds its part of a rate, time takes it away.
        self._rate = self._rate * 2.718281828 ** (-passed / _RATE_SECONDS) + 1 / _RATE_SECONDS
        return min(1.0, self._per_second / self._rate)

    def admits(self, draw: float, share: float) -> bool:
        """Return whether an arrival with this draw may pass."""
        if draw >= share or self._tokens < 1:
            return False
        self._tokens -= 1
        return True


# -- rules -----------------------------------------------------------------------------------------


def parse_outcome_rules(text: str) -> tuple[OutcomeRule, ...]:
    """Return the rules of a JSON list; raise ConfigurationError, naming rule and mistake.

    A rule has a `name`, a `keep` from 0 to 1, and one or more conditions, all of which must hold:
    `error` (true), `slowerThanMs`, `costlierThanUsd`, `moreStepsThan`, `rareTool` (a share),
    `negativeFeedback` (true), `field` ({path, and one of equals, over, under, contains}).
    """
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"sample rules: {error}; expected a JSON list") from error
    if not isinstance(found, list):
        raise ConfigurationError("sample rules: expected a JSON list of rules")
    rules = [_rule(index, one) for index, one in enumerate(found)]
    if len({rule.name for rule in rules}) < len(rules):
        raise ConfigurationError("sample rules: two rules have one name; their counts would mix")
    return tuple(rules)


def _rule(index: int, found: Any) -> OutcomeRule:
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name or name == HEAD or len(name) > 60:
        raise ConfigurationError(
            f"sample rule {index}: expected an object with a name of its own, other than {HEAD!r}"
        )
    keep = found.get("keep", 1)
    if not _is_number(keep) or not 0 <= keep <= 1:
        raise ConfigurationError(f"sample rule {name!r}: keep is {keep!r}; expected 0 to 1")
    conditions = {key: value for key, value in found.items() if key not in ("name", "keep")}
    unknown = [key for key in conditions if key not in _CONDITIONS]
    if unknown or not conditions:
        raise ConfigurationError(
            f"sample rule {name!r}: {', '.join(unknown) or 'no condition'}; expected one or more of "
            f"{', '.join(_CONDITIONS)}"
        )
    try:
        checks = tuple(_CONDITIONS[key](value) for key, value in conditions.items())
    except ValueError as error:
        raise ConfigurationError(f"sample rule {name!r}: {error}") from error
    return OutcomeRule(name, keep, checks)


def _error(wanted: Any) -> Check:
    expected = _flag("error", wanted)
    return lambda case, _: _failed(_turn(case)) is expected


def _above(name: str, *path: str) -> Callable[[Any], Check]:
    def condition(limit: Any) -> Check:
        _number(name, limit)

        def check(case: Mapping[str, Any], _: History) -> bool:
            value = _at(case, path)
            return _is_number(value) and value > limit

        return check

    return condition


def _more_steps(limit: Any) -> Check:
    _number("moreStepsThan", limit)
    return lambda case, _: len(_turn(case).get("tools") or ()) > limit


def _rare_tool(share: Any) -> Check:
    _number("rareTool", share)
    return lambda case, seen: any(seen.is_rare(n, share) for n in _tool_names(_turn(case)))


def _negative_feedback(wanted: Any) -> Check:
    expected = _flag("negativeFeedback", wanted)
    return lambda case, seen: seen.is_negative(case["evalId"]) is expected


def _field(wanted: Any) -> Check:
    operators = ("equals", "over", "under", "contains")
    named = [key for key in operators if isinstance(wanted, dict) and key in wanted]
    if len(named) != 1 or not isinstance(wanted.get("path"), str) or len(wanted) != 2:
        raise ValueError(f"field needs a path and one of {', '.join(operators)}")
    operator, operand = named[0], wanted[named[0]]
    if operator in ("over", "under"):
        _number(f"field.{operator}", operand)
    path = wanted["path"].split(".")

    def check(case: Mapping[str, Any], _: History) -> bool:
        return _compare(operator, _at(case, path), operand)

    return check


def _compare(operator: str, value: Any, operand: Any) -> bool:
    if operator == "equals":
        return bool(value == operand)
    if operator == "contains":
        return isinstance(value, str | list | dict) and operand in value
    if not _is_number(value):
        return False
    return bool(value > operand if operator == "over" else value < operand)


_CONDITIONS: dict[str, Callable[[Any], Check]] = {
    "error": _error,
    "slowerThanMs": _above("slowerThanMs", "turn", "telemetry", "latencyMs"),
    "costlierThanUsd": _above("costlierThanUsd", "turn", "telemetry", "costUsd"),
    "moreStepsThan": _more_steps,
    "rareTool": _rare_tool,
    "negativeFeedback": _negative_feedback,
    "field": _field,
}


def _turn(case: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = case["actualConversation"][0]
    return found


def _at(case: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return what lies at a path: names of the case; `turn` first for the turn's; None if absent."""
    value: Any = case
    for index, step in enumerate(path):
        if index == 0 and step == "turn":
            value = _turn(case)
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _is_revision(case: Mapping[str, Any]) -> bool:
    return bool((case.get("source") or {}).get("revision", 1) > 1)


def _failed(turn: Mapping[str, Any]) -> bool:
    telemetry = turn.get("telemetry") or {}
    return telemetry.get("status") == "error" or any(
        tool.get("error") for tool in turn.get("tools") or () if isinstance(tool, Mapping)
    )


def _tool_names(turn: Mapping[str, Any]) -> list[str]:
    return [str(tool.get("name")) for tool in turn.get("tools") or () if isinstance(tool, Mapping)]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; expected true or false")
    return value


def _number(name: str, value: Any) -> None:
    if not _is_number(value):
        raise ValueError(f"{name} is {value!r}; expected a number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
