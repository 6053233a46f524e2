"""Outcome rules: which turns to keep because of their outcome, and with which probability."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeGuard

import orjson

from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.text import did_you_mean

HEAD = "head"

MIN_TOOL_CALLS = 100
"""Calls required before any tool counts as rare."""
MAX_TOOLS = 10_000

MAX_NEGATIVE_SESSIONS = 10_000
_BESIDE = ("name", "keep", "unit")
"""Keys of a rule other than its conditions."""

Check = Callable[[CaseData, "History"], bool]


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """Keep turns that meet all checks, or their sessions, with at least this probability."""

    name: str
    keep: float
    checks: tuple[Check, ...]
    whole: bool = True
    """Whether to keep the whole session, not only the turn."""

    def holds(self, case: CaseData, history: "History") -> bool:
        """Return whether a case with one turn meets all checks."""
        return all(check(case, history) for check in self.checks)


class History:
    """This process's history: calls per tool, and sessions with negative feedback; bounded."""

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
        """Record negative feedback on a session."""
        self._negative[eval_id] = None
        self._negative.move_to_end(eval_id)
        if len(self._negative) > MAX_NEGATIVE_SESSIONS:
            self._negative.popitem(last=False)

    def is_negative(self, eval_id: str) -> bool:
        """Return whether a session has had negative feedback."""
        return eval_id in self._negative

    @contextmanager
    def as_negative(self, eval_id: str) -> Iterator[None]:
        """Within the block, treat a session as having negative feedback."""
        known = eval_id in self._negative
        self._negative[eval_id] = None
        try:
            yield
        finally:
            if not known:
                del self._negative[eval_id]


def parse_outcome_rules(text: str) -> tuple[OutcomeRule, ...]:
    """Parse a JSON list of rules; raises ConfigurationError, naming rule and mistake.

    A rule has a `name`, a `keep` from 0 to 1, optionally a `unit` (session, or turn), and one or
    more conditions, all of which must hold: `error` (true), `slowerThanMs`, `costlierThanUsd`,
    `moreStepsThan`, `rareTool` (a share), `negativeFeedback` (true), `field` ({path, and one of
    equals, over, under, contains}).
    """
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"sample rules: {error}; expected a JSON list") from error
    if not isinstance(found, list):
        raise ConfigurationError("sample rules: expected a JSON list of rules")
    rules = [_rule(index, one) for index, one in enumerate(found)]
    if len({rule.name for rule in rules}) < len(rules):
        raise ConfigurationError(
            "sample rules: two rules share a name; give each its own, as drops are counted by name"
        )
    return tuple(rules)


def _rule(index: int, found: object) -> OutcomeRule:
    given: JsonObject = found if isinstance(found, dict) else {}
    name = given.get("name")
    if not isinstance(name, str) or not name or name == HEAD or len(name) > 60:
        raise ConfigurationError(
            f"sample rule {index}: expected an object with a unique name, other than {HEAD!r}"
        )
    keep = given.get("keep", 1)
    if not _is_number(keep) or not 0 <= keep <= 1:
        raise ConfigurationError(f"sample rule {name!r}: keep is {keep!r}; expected 0 to 1")
    unit = given.get("unit", "session")
    if unit not in ("session", "turn"):
        raise ConfigurationError(
            f"sample rule {name!r}: unit is {unit!r}; expected session or turn"
        )
    return OutcomeRule(name, keep, _checks(name, given), unit == "session")


def _checks(name: str, given: JsonObject) -> tuple[Check, ...]:
    """Return the conditions of a rule."""
    conditions = {key: value for key, value in given.items() if key not in _BESIDE}
    known = (*_CONDITIONS, *_BESIDE)
    if unknown := next((key for key in conditions if key not in _CONDITIONS), None):
        hint = did_you_mean(unknown, known) or f"known: {', '.join(known)}"
        raise ConfigurationError(f"sample rule {name!r}: unknown key {unknown!r}; {hint}")
    if not conditions:
        raise ConfigurationError(
            f"sample rule {name!r}: no condition; expected one or more of {', '.join(_CONDITIONS)}"
        )
    try:
        return tuple(_CONDITIONS[key](value) for key, value in conditions.items())
    except ValueError as error:
        raise ConfigurationError(f"sample rule {name!r}: {error}") from error


def _error(wanted: object) -> Check:
    expected = _flag("error", wanted)
    return lambda case, _: _failed(_turn(case)) is expected


def _above(name: str, *path: str) -> Callable[[object], Check]:
    def condition(given: object) -> Check:
        limit = _number(name, given)

        def check(case: CaseData, _: History) -> bool:
            value = _at(case, path)
            return _is_number(value) and value > limit

        return check

    return condition


def _more_steps(given: object) -> Check:
    limit = _number("moreStepsThan", given)
    return lambda case, _: len(_turn(case).get("tools") or ()) > limit


def _rare_tool(given: object) -> Check:
    share = _number("rareTool", given)
    return lambda case, seen: any(seen.is_rare(n, share) for n in tool_names(_turn(case)))


def _negative_feedback(wanted: object) -> Check:
    expected = _flag("negativeFeedback", wanted)
    return lambda case, seen: seen.is_negative(case["evalId"]) is expected


def _field(wanted: object) -> Check:
    operators = ("equals", "over", "under", "contains")
    given = wanted if isinstance(wanted, dict) else {}
    named = [key for key in operators if key in given]
    if len(named) != 1 or not isinstance(given.get("path"), str) or len(given) != 2:
        raise ValueError(f"field needs a path and one of {', '.join(operators)}")
    operator, operand = named[0], given[named[0]]
    if operator in ("over", "under"):
        _number(f"field.{operator}", operand)
    path = given["path"].split(".")

    def check(case: CaseData, _: History) -> bool:
        return _compare(operator, _at(case, path), operand)

    return check


def _compare(operator: str, value: object, operand: object) -> bool:
    if operator == "equals":
        return bool(value == operand)
    if operator == "contains":
        if isinstance(value, str | dict):
            return isinstance(operand, str) and operand in value
        return isinstance(value, list) and operand in value
    if not _is_number(value) or not _is_number(operand):
        return False
    return value > operand if operator == "over" else value < operand


_CONDITIONS: dict[str, Callable[[object], Check]] = {
    "error": _error,
    "slowerThanMs": _above("slowerThanMs", "turn", "telemetry", "latencyMs"),
    "costlierThanUsd": _above("costlierThanUsd", "turn", "telemetry", "costUsd"),
    "moreStepsThan": _more_steps,
    "rareTool": _rare_tool,
    "negativeFeedback": _negative_feedback,
    "field": _field,
}


def _turn(case: CaseData) -> JsonObject:
    found: JsonObject = case["actualConversation"][0]
    return found


def _at(case: CaseData, path: Sequence[str]) -> object:
    """Return the value at a path of the case (starting with `turn` for the turn's); None if absent."""
    value: object = case
    for index, step in enumerate(path):
        if index == 0 and step == "turn":
            value = _turn(case)
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _failed(turn: JsonObject) -> bool:
    telemetry = turn.get("telemetry") or {}
    return telemetry.get("status") == "error" or any(
        tool.get("error") for tool in turn.get("tools") or () if isinstance(tool, Mapping)
    )


def tool_names(turn: JsonObject) -> list[str]:
    return [str(tool.get("name")) for tool in turn.get("tools") or () if isinstance(tool, Mapping)]


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; expected true or false")
    return value


def _number(name: str, value: object) -> float:
    if not _is_number(value):
        raise ValueError(f"{name} is {value!r}; expected a number")
    return value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
