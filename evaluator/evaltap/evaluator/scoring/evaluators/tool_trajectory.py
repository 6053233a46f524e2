"""`tool_trajectory_avg_score`: the share of turns whose tool calls match the expected ones.

Two calls match if every part of the strategy for their names holds; parts missing from the strategy are not
compared.  Equal encoded bytes prove a match without a deep comparison.  This keeps scoring fast, because most
calls of a recorded trace equal their reference.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import orjson

from evaltap.evaluator.cases.outline import AnyCall, LazyCall
from evaltap.evaluator.cases.turn import Turn, absent_state
from evaltap.evaluator.scoring.contract.comparisons import Comparisons, Names, WholeTurns
from evaltap.evaluator.scoring.contract.evaluator import comparing_calls, taking_comparisons
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.criteria.content import json_value, text
from evaltap.evaluator.scoring.evaluators.pairwise import Matcher, PairwiseEvaluator
from evaltap.schemas.formats.metric import (
    EvalMetric,
    JsonCriterion,
    TextCriterion,
    ToolTrajectoryCriterion,
    ToolTrajectoryStrategy,
)

_EXACT: Final = ToolTrajectoryStrategy(
    name=TextCriterion(), arguments=JsonCriterion(), result=JsonCriterion()
)
_PARTS: Final = ("name", "arguments", "result")
_NOTHING: Final = dict.fromkeys(_PARTS)


class ToolTrajectoryMatcher:
    """A compiled criterion; usable from any thread.

    Raises MetricError if a part names a comparison that does not exist.  `compareName` of the criterion
    itself is for whoever chooses the matcher.
    """

    compares: bool = True

    def __init__(self, criterion: ToolTrajectoryCriterion, names: Names | None = None) -> None:
        self._default = _Rule(criterion.default_strategy or _EXACT, names)
        self._by_tool = {name: _Rule(part, names) for name, part in criterion.tool_strategy.items()}
        self._subset = criterion.subset_matching
        self._match = self._match_ordered if criterion.order_sensitive else self._match_unordered

    def mismatch(self, actual: Turn, expected: Turn) -> str | None:
        calls, wanted = actual.calls, expected.calls
        if not calls or not wanted:
            if actual.absent or expected.absent:
                return "actual or expected invocation is nil"
            if not calls and not wanted:
                return None
        if len(calls) != len(wanted) and (not self._subset or len(calls) < len(wanted)):
            sign = "<" if self._subset else "!="
            counts = f"actual({len(calls)}) {sign} expected({len(wanted)})"
            return (
                "tool trajectory mismatch: validate tool counts: "
                f"number of tool calls mismatch: {counts}"
            )
        reason = self._match(calls, wanted)
        return None if reason is None else f"tool trajectory mismatch: match tools: {reason}"

    def lacking(self, actual: Turn, expected: Turn) -> str | None:
        reason = self._turn_lacks(expected)
        return self._turn_lacks(actual) if reason is None else f"expected {reason}"

    def _turn_lacks(self, turn: Turn) -> str | None:
        if turn.capture and (reason := turn.lacks("tools")):
            return reason
        for tool in turn.marked_calls:
            for field in self._rule(tool, tool).compared:
                if (state := absent_state(tool, field)) is not None:
                    return f"{field} of {_label(tool)} is {state}"
        return None

    def _rule(self, actual: AnyCall, expected: AnyCall) -> "_Rule":
        if not self._by_tool:
            return self._default
        return (
            self._by_tool.get(actual.get("name") or "")
            or self._by_tool.get(expected.get("name") or "")
            or self._default
        )

    def _match_unordered(self, calls: Sequence[AnyCall], wanted: Sequence[AnyCall]) -> str | None:
        keys, spare, alone = self._keys(calls), [*range(len(calls))], []
        for one, key in enumerate(self._keys(wanted)):
            if key in keys:
                twin = keys.index(key)
                del keys[twin], spare[twin]
            else:
                alone.append(one)
        if not alone:
            return None  # each expected call equals a different actual call
        rows = {}
        for one in alone:
            row = rows[one] = self._row(calls, wanted[one])
            if None in row:
                return self._rearrange(calls, wanted)
        # No call matches the expected calls without an equal call, so no rearrangement could cover
        # them.
        return _uncovered(wanted, alone, rows, spare)

    def _rearrange(self, calls: Sequence[AnyCall], wanted: Sequence[AnyCall]) -> str | None:
        """Find a maximum matching, using equal calls first."""
        keys = self._keys(calls)
        candidates = [
            [other for other, key in enumerate(keys) if key == wanted_key]
            for wanted_key in self._keys(wanted)
        ]
        rows: dict[int, list[str | None]] = {}

        def neighbours(one: int) -> list[int]:
            row = rows[one] = self._row(calls, wanted[one])
            return [other for other, reason in enumerate(row) if reason is None]

        matching = match_left(len(wanted), len(calls), neighbours, candidates=candidates)
        if not matching.uncovered_left:
            return None
        return _uncovered(wanted, matching.uncovered_left, rows, matching.free_right)

    def _row(self, calls: Sequence[AnyCall], tool: AnyCall) -> list[str | None]:
        """Return, for each actual call, why it does not match the expected call; None if it does."""
        if self._by_tool or not self._default.exact_name or tool is None:
            compare = self._compare
            return [compare(call, tool) for call in calls]
        name, differ = tool.get("name") or "", self._default.evidence_mismatch
        if isinstance(calls[0], LazyCall):
            outlines: Sequence[Any] = calls  # all calls of a turn have the same type
            return [differ(call, tool) if call.name == name else "" for call in outlines]
        return [
            differ(call, tool) if call is not None and (call.get("name") or "") == name else ""
            for call in calls
        ]

    def _match_ordered(self, calls: Sequence[AnyCall], wanted: Sequence[AnyCall]) -> str | None:
        keys, wanted_keys = self._keys(calls), self._keys(wanted)
        position = 0
        for tool, wanted_key in zip(wanted, wanted_keys, strict=True):
            start = position
            while position < len(calls):
                call, key = calls[position], keys[position]
                position += 1
                if key == wanted_key or self._compare(call, tool) is None:
                    break
            else:
                return _explain(tool, [self._compare(call, tool) for call in calls[start:]])
        return None

    def _compare(self, actual: AnyCall | None, expected: AnyCall | None) -> str | None:
        """Return why two calls do not match; an empty text if their names differ."""
        if actual is None or expected is None:
            return ""
        rule = self._rule(actual, expected)
        if rule.exact_name and (actual.get("name") or "") != (expected.get("name") or ""):
            return ""  # most pairs end here, so no reason is formatted
        return rule.mismatch(actual, expected)

    def _keys(self, tools: Sequence[AnyCall | None]) -> list[object]:
        """Return a key for each call; two keys are equal only if the calls match."""
        rule = self._default
        if not self._by_tool and rule.parts is not None:
            try:
                if tools and isinstance(tools[0], LazyCall):
                    return list(map(rule.outline_parts, tools))
                return list(map(orjson.dumps, map(rule.parts, tools)))
            except (KeyError, TypeError):
                pass  # a call without arguments or a null call: compute the keys separately
        return [self._key(tool) for tool in tools]

    def _key(self, tool: AnyCall | None) -> object:
        if tool is None:
            return object()
        rule = self._rule(tool, tool)
        if rule.parts is None:
            return object()
        if isinstance(tool, LazyCall):
            return rule.outline_parts(tool)
        try:
            return orjson.dumps(rule.parts({**_NOTHING, **tool}))
        except orjson.JSONEncodeError:  # beyond 64 bits: needs the deep comparison
            return object()


class _Rule:
    """A compiled strategy: the checks of the parts it compares."""

    __slots__ = (
        "_arguments",
        "_name",
        "_result",
        "compared",
        "exact_name",
        "outline_parts",
        "parts",
    )

    def __init__(self, strategy: ToolTrajectoryStrategy, names: Names | None) -> None:
        name, arguments, result = strategy.name, strategy.arguments, strategy.result
        self._name = None if name is None or name.ignore else text.compile_text(name, names)
        self._arguments = _compiled(arguments, names)
        self._result = _compiled(result, names)
        checks = (self._name, self._arguments, self._result)
        self.compared = [
            part for part, check in zip(_PARTS, checks, strict=True) if check is not None
        ]
        self.exact_name = text.is_exact(name)
        provable = (
            text.accepts_itself(name)
            and json_value.accepts_itself(arguments)
            and json_value.accepts_itself(result)
        )
        # The parts that make two calls match without a comparison if they are equal.  The name is
        # always included, as it selects the strategy.  Any: a call may be null, which raises
        # TypeError.
        more = [part for part in self.compared if part != "name"]
        self.parts: Callable[[Any], object] | None = None
        if provable:
            self.parts = itemgetter("name", *more)
        self.outline_parts: Callable[[object], object] = attrgetter("name", *more)

    def mismatch(self, actual: AnyCall, expected: AnyCall) -> str | None:
        if self._name is not None:
            reason = self._name(actual.get("name") or "", expected.get("name") or "")
            if reason is not None:
                return f"name: {reason}"
        return self.evidence_mismatch(actual, expected)

    def evidence_mismatch(self, actual: AnyCall, expected: AnyCall) -> str | None:
        """Return why two calls with the same name do not match; None if they do."""
        if self._arguments is not None:
            reason = self._arguments(actual.get("arguments"), expected.get("arguments"))
            if reason is not None:
                return f"arguments: {reason}"
        if self._result is not None:
            reason = self._result(actual.get("result"), expected.get("result"))
            if reason is not None:
                return f"result: {reason}"
        return None


def _compiled(criterion: JsonCriterion | None, names: Names | None) -> json_value.JsonCheck | None:
    if criterion is None or criterion.ignore:
        return None
    return json_value.compile_json(criterion, names)


def _uncovered(
    wanted: Sequence[AnyCall],
    uncovered: Sequence[int],
    rows: Mapping[int, Sequence[str | None]],
    spare: Sequence[int],
) -> str:
    """List the uncovered expected calls, in the layout of tRPC-Agent-Go's error list."""
    lines = ["cannot match all left vertices"]
    for one in uncovered:
        row = rows[one]
        lines.append(_explain(wanted[one], [row[other] for other in spare]))
    return f"{len(lines)} errors occurred:\n\t* " + "\n\t* ".join(lines) + "\n\n"


def _explain(tool: AnyCall | None, reasons: Sequence[str | None]) -> str:
    """Name the expected call, and how the first spare call of that name differs from it."""
    if tool is None:
        return "tool call is nil"
    reason = next(filter(None, reasons), None)
    return f"{_label(tool)} mismatch: {reason}" if reason else f"{_label(tool)} mismatch"


def _label(tool: AnyCall) -> str:
    return f"tool id {tool.get('id') or ''} with name {tool.get('name') or ''}"


@comparing_calls
@taking_comparisons
class ToolTrajectory(PairwiseEvaluator):
    """Match the tool calls of each turn one to one with those of the expected turn.

    Raises MetricError if `criterion.toolTrajectory` is missing, or names a comparison that does not exist.
    """

    name = "tool_trajectory_avg_score"

    def __init__(self, metric: EvalMetric, comparisons: Comparisons | None = None) -> None:
        criterion = require(metric, lambda given: given.tool_trajectory, "toolTrajectory")
        names = Names(comparisons)
        if criterion.compare_name:
            check = names.comparison("toolTrajectory", criterion.compare_name)
            matcher: Matcher = WholeTurns(check, "tools")
        else:
            matcher = ToolTrajectoryMatcher(criterion, names)
        super().__init__(metric, matcher)
        self.version = names.version(self.version)
