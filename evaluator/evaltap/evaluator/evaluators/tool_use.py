"""`tool_use`: the share of wishes about tools that a turn fulfils; no reference is needed."""

from collections.abc import Sequence
from typing import Any

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    RubricVerdict,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.criteria.call_attempts import calls_of, check_attempts, lacking, select
from evaltap.evaluator.criteria.likeness import Likeness
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric
from evaltap.schemas.operations import ToolUse
from evaltap.schemas.trajectory import ValueCriterion

ToolCall = dict[str, Any]


class ToolUseChecks:
    """Check the calls of each turn against what is wanted of each tool.

    Raises MetricError when `criterion.toolUse` is missing or makes no sense.
    """

    name = "tool_use"
    version = "1"

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.tool_use if metric.criterion else None
        criterion = require(metric, part, "toolUse")
        self._tools = criterion.tools
        self._no_others = criterion.no_others
        if not self._tools:
            raise MetricError("criterion.toolUse.tools is empty; name at least one tool")
        for tool in self._tools:
            low, high = tool.min_calls or 0, tool.max_calls
            if not tool.name or low < 0 or (high is not None and high < low):
                raise MetricError(
                    f"criterion.toolUse.tools has name '{tool.name}', minCalls {tool.min_calls}, "
                    f"maxCalls {high}; expected a name and 0 <= minCalls <= maxCalls"
                )
        self._attempts = check_attempts(criterion.attempts, "successful")
        self._likeness = Likeness(ValueCriterion(mode="superset"))
        wants_arguments = any(tool.arguments is not None for tool in self._tools)
        self._fields = ("name", "arguments") if wants_arguments else ("name",)
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the share of fulfilled wishes for each turn, and the mean."""
        return average(tuple(map(self._turn, context.actual)), self._threshold)

    def _turn(self, turn: Turn) -> TurnScore:
        reason = lacking(turn, self._fields)
        if reason is not None:
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {reason}")
        calls = select(calls_of(turn), self._attempts)
        rows = [self._verdict(tool, calls) for tool in self._tools]
        if self._no_others:
            named = {tool.name for tool in self._tools}
            others = sorted({call.get("name") or "" for call in calls} - named)
            rows.append(RubricVerdict("no others", float(not others), ", ".join(others)))
        score = sum(row.score for row in rows) / len(rows)
        told = "; ".join(f"{row.id}: {row.reason}" for row in rows if row.score < 1)
        return TurnScore(status_of(score, self._threshold), score, told, score, tuple(rows))

    def _verdict(self, tool: ToolUse, calls: Sequence[ToolCall]) -> RubricVerdict:
        own = [call for call in calls if call.get("name") == tool.name]
        low = tool.min_calls if tool.min_calls is not None else int(not tool.optional)
        if len(own) < low:
            return RubricVerdict(tool.name, 0.0, f"{len(own)} calls, at least {low}")
        if tool.max_calls is not None and len(own) > tool.max_calls:
            return RubricVerdict(tool.name, 0.0, f"{len(own)} calls, at most {tool.max_calls}")
        if tool.arguments is None or not own:
            return RubricVerdict(tool.name, 1.0, f"{len(own)} calls")
        scores = [self._likeness.pair(tool.arguments, call.get("arguments")) for call in own]
        score = min(scores) if tool.optional else max(scores)
        told = "arguments as wanted" if score == 1 else "other arguments than wanted"
        return RubricVerdict(tool.name, score, told)
