"""The tool trajectory criterion: which actual tool calls stand for which expected ones.

Two calls are a pair when every part of the strategy for their names holds; a part that is absent
from the strategy is not compared.  Equal encoded bytes prove a pair without a deep comparison,
which is what keeps scoring fast: most calls of a recorded trace equal their reference.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from evaltap.evaluator.context import Turn
from evaltap.evaluator.criteria import json_value, text
from evaltap.evaluator.criteria.matching import match_left
from evaltap.schemas.metric import (
    JsonCriterion,
    TextCriterion,
    ToolTrajectoryCriterion,
    ToolTrajectoryStrategy,
)

ToolCall = dict[str, Any]

_EXACT: Final = ToolTrajectoryStrategy(
    name=TextCriterion(), arguments=JsonCriterion(), result=JsonCriterion()
)
_PARTS: Final = ("name", "arguments", "result")


class ToolTrajectoryMatcher:
    """A compiled criterion; use it from any thread.

    Raises MetricError when the criterion names a custom comparison.
    """

    def __init__(self, criterion: ToolTrajectoryCriterion) -> None:
        text.reject_custom(criterion.compare_name, "toolTrajectory")
        self._default = _Rule(criterion.default_strategy or _EXACT)
        self._by_tool = {name: _Rule(part) for name, part in criterion.tool_strategy.items()}
        self._subset = criterion.subset_matching
        self._match = self._match_ordered if criterion.order_sensitive else self._match_unordered

    def mismatch(self, actual: Turn, expected: Turn) -> str | None:
        """Return why the tool calls of two turns do not match, None when they do."""
        if actual.absent or expected.absent:
            return "actual or expected invocation is nil"
        calls, wanted = actual.tools, expected.tools
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

    def lacking(self, turn: Turn) -> str | None:
        """Return which evidence is compared but not there, None when all of it is."""
        reason = turn.lacks("tools")
        if reason is not None:
            return reason
        for tool in turn.tools:
            capture = tool.get("capture") if tool else None
            if not capture:
                continue
            compared = self._rule(tool, tool).compared
            for field in _PARTS:
                if field in compared and capture.get(field) in ("missing", "redacted", "truncated"):
                    return f"{field} of {_label(tool)} is {capture[field]}"
        return None

    def pair_mismatch(self, actual: ToolCall | None, expected: ToolCall | None) -> str | None:
        """Return why two calls are not a pair, None when they are; ids never matter."""
        if actual is None or expected is None:
            return "tool call is nil"
        return self._rule(actual, expected).mismatch(actual, expected)

    def _rule(self, actual: ToolCall, expected: ToolCall) -> "_Rule":
        if not self._by_tool:
            return self._default
        return (
            self._by_tool.get(actual.get("name") or "")
            or self._by_tool.get(expected.get("name") or "")
            or self._default
        )

    def _match_unordered(self, calls: Sequence[ToolCall], wanted: Sequence[ToolCall]) -> str | None:
        equal_bytes: dict[bytes, list[int]] = {}
        for index, call in enumerate(calls):
            key = self._key(call)
            if key is not None:
                equal_bytes.setdefault(key, []).append(index)
        candidates: list[Sequence[int]] = []
        for tool in wanted:
            key = self._key(tool)
            candidates.append(equal_bytes.get(key, ()) if key is not None else ())

        def edge(one: int, other: int) -> bool:
            return self.pair_mismatch(calls[other], wanted[one]) is None

        matching = match_left(len(wanted), len(calls), edge, candidates=candidates)
        if not matching.uncovered_left:
            return None
        spare = [calls[index] for index in matching.free_right]
        lines = [self._explain(wanted[index], spare) for index in matching.uncovered_left]
        # The layout is that of the peer's error list, so that its users find what they know.
        lines.insert(0, "cannot match all left vertices")
        listed = "".join(f"\n\t* {line}" for line in lines)
        return f"{len(lines)} errors occurred:{listed}\n\n"

    def _match_ordered(self, calls: Sequence[ToolCall], wanted: Sequence[ToolCall]) -> str | None:
        position = 0
        for tool in wanted:
            start = position
            while position < len(calls):
                position += 1
                if self._is_pair(calls[position - 1], tool):
                    break
            else:
                return self._explain(tool, calls[start:])
        return None

    def _is_pair(self, actual: ToolCall | None, expected: ToolCall | None) -> bool:
        key = self._key(actual)
        if key is not None and key == self._key(expected):
            return True
        return self.pair_mismatch(actual, expected) is None

    def _key(self, tool: ToolCall | None) -> bytes | None:
        """Return bytes that two calls share only if they are a pair, None when none prove it."""
        if tool is None:
            return None
        rule = self._by_tool.get(tool.get("name") or "", self._default)
        if rule.encoded is None:
            return None
        try:
            return orjson.dumps(rule.encoded(tool))
        except orjson.JSONEncodeError:  # an integer beyond 64 bits: the deep comparison knows it
            return None

    def _explain(self, tool: ToolCall | None, spare: Sequence[ToolCall]) -> str:
        """Name the expected call, and say how the first spare call of that name differs from it."""
        if tool is None:
            return "tool call is nil"
        name = tool.get("name")
        for call in spare:
            if call is not None and call.get("name") == name:
                reason = self.pair_mismatch(call, tool)
                if reason is not None:
                    return f"{_label(tool)} mismatch: {reason}"
        return f"{_label(tool)} mismatch"


class _Rule:
    """A compiled strategy: the checks of the parts it compares."""

    __slots__ = ("_arguments", "_name", "_result", "compared", "encoded")

    def __init__(self, strategy: ToolTrajectoryStrategy) -> None:
        name, arguments, result = strategy.name, strategy.arguments, strategy.result
        self._name = None if name is None or name.ignore else text.compile_text(name)
        self._arguments = _compiled(arguments)
        self._result = _compiled(result)
        checks = (self._name, self._arguments, self._result)
        self.compared = frozenset(
            part for part, check in zip(_PARTS, checks, strict=True) if check is not None
        )
        provable = (
            text.accepts_itself(name)
            and json_value.accepts_itself(arguments)
            and json_value.accepts_itself(result)
        )
        self.encoded = _encoded_parts(self.compared) if provable else None

    def mismatch(self, actual: ToolCall, expected: ToolCall) -> str | None:
        if self._name is not None:
            reason = self._name(actual.get("name") or "", expected.get("name") or "")
            if reason is not None:
                return f"name: {reason}"
        if self._arguments is not None:
            reason = self._arguments(actual.get("arguments"), expected.get("arguments"))
            if reason is not None:
                return f"arguments: {reason}"
        if self._result is not None:
            reason = self._result(actual.get("result"), expected.get("result"))
            if reason is not None:
                return f"result: {reason}"
        return None


def _compiled(criterion: JsonCriterion | None) -> json_value.JsonCheck | None:
    if criterion is None or criterion.ignore:
        return None
    return json_value.compile_json(criterion)


def _encoded_parts(compared: frozenset[str]) -> Callable[[ToolCall], object]:
    """Choose what two calls must have in common: the name, as it selects the strategy, and more."""
    if {"arguments", "result"} <= compared:
        return lambda tool: (tool.get("name"), tool.get("arguments"), tool.get("result"))
    if "arguments" in compared:
        return lambda tool: (tool.get("name"), tool.get("arguments"))
    if "result" in compared:
        return lambda tool: (tool.get("name"), tool.get("result"))
    return lambda tool: tool.get("name")


def _label(tool: ToolCall) -> str:
    return f"tool id {tool.get('id') or ''} with name {tool.get('name') or ''}"
