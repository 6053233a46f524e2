"""The trajectory suite without references: what an agent must not do, whatever the task is.

Each public function here is the factory of one evaluator.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

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
from evaltap.evaluator.criteria.call_habits import find_loop, identities, recoveries
from evaltap.evaluator.criteria.call_pairs import CallLikeness
from evaltap.evaluator.criteria.trajectory_scores import Finding
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.evaluators.against_references import criterion_of, positive
from evaltap.schemas.metric import EvalMetric

ToolCall = dict[str, Any]
Measure = Callable[[Sequence[ToolCall]], Finding]

_NAME: Final = ("name",)
_CALL: Final = ("name", "arguments")


class OfCalls:
    """Scores the calls of each turn by a measure that needs no reference."""

    version = "1"

    def __init__(
        self,
        name: str,
        metric: EvalMetric,
        measure: Measure,
        *,
        fields: Sequence[str],
        attempts: str = "all",
    ) -> None:
        self.name = name
        self._measure = measure
        self._fields = fields
        self._attempts = check_attempts(criterion_of(metric).attempts, attempts)
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn and their mean."""
        return average(tuple(map(self._turn, context.actual)), self._threshold)

    def _turn(self, turn: Turn) -> TurnScore:
        reason = lacking(turn, self._fields)
        if reason is not None:
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {reason}")
        score, told, rows = self._measure(select(calls_of(turn), self._attempts))
        if score is None:
            return TurnScore(Status.NOT_EVALUATED, reason=told, rubric_scores=rows)
        return TurnScore(status_of(score, self._threshold), score, told, score, rows)


def forbidden(metric: EvalMetric) -> OfCalls:
    """`trajectory_forbidden`: 1 when none of the forbidden tools was called, failed calls included."""
    names = criterion_of(metric).forbidden
    if not names:
        raise MetricError("criterion.trajectory.forbidden is empty; name the tools")

    def measure(calls: Sequence[ToolCall]) -> Finding:
        found = [name for name in names if any(call.get("name") == name for call in calls)]
        return float(not found), f"forbidden tools called: {', '.join(found)}" if found else "", ()

    return OfCalls("trajectory_forbidden", metric, measure, fields=_NAME)


def max_calls(metric: EvalMetric) -> OfCalls:
    """`trajectory_max_calls`: 1 when no bound on the number of calls is exceeded."""
    criterion = criterion_of(metric)
    total, by_tool = criterion.max_calls, criterion.max_calls_per_tool
    if total is None and not by_tool:
        raise MetricError("criterion.trajectory has neither maxCalls nor maxCallsPerTool; give one")
    if min(by_tool.values(), default=0) < 0 or (total is not None and total < 0):
        raise MetricError("criterion.trajectory.maxCalls is below 0; expected 0 or more")

    def measure(calls: Sequence[ToolCall]) -> Finding:
        counts = Counter(call.get("name") for call in calls)
        told = [
            f"{counts[name]} calls of {name}, at most {bound}"
            for name, bound in sorted(by_tool.items())
            if counts[name] > bound
        ]
        if total is not None and len(calls) > total:
            told.append(f"{len(calls)} calls, at most {total}")
        return float(not told), "; ".join(told), ()

    return OfCalls("trajectory_max_calls", metric, measure, fields=_NAME if by_tool else ())


def single_tool_use(metric: EvalMetric) -> OfCalls:
    """`trajectory_single_tool_use`: the share of the required tools that were called."""
    names = criterion_of(metric).required_tools
    if not names:
        raise MetricError("criterion.trajectory.requiredTools is empty; name at least one tool")

    def measure(calls: Sequence[ToolCall]) -> Finding:
        called = {call.get("name") for call in calls}
        missing = [name for name in names if name not in called]
        rows = tuple(RubricVerdict(name, float(name in called), "") for name in names)
        told = f"not called: {', '.join(missing)}" if missing else ""
        return 1 - len(missing) / len(names), told, rows

    return OfCalls(
        "trajectory_single_tool_use", metric, measure, fields=_NAME, attempts="successful"
    )


def no_loop(metric: EvalMetric) -> OfCalls:
    """`trajectory_no_loop`: 0 when the same calls are made over and over, else 1."""
    criterion = criterion_of(metric)
    likeness = CallLikeness(criterion.arguments, criterion.tool_arguments)
    repeats = positive(criterion.repeats, 3, "repeats")
    period = positive(criterion.max_period, 4, "maxPeriod")
    if repeats < 2:
        raise MetricError(
            "criterion.trajectory.repeats is 1; one call is no loop, expected 2 or more"
        )

    def measure(calls: Sequence[ToolCall]) -> Finding:
        loop = find_loop(identities(calls, likeness), repeats, period)
        if loop is None:
            return 1.0, "", ()
        names = [call.get("name") or "" for call in calls[loop.start : loop.start + loop.period]]
        told = f"{', '.join(names)} repeated {loop.repeats} times from call {loop.start + 1} on"
        return 0.0, told, ()

    return OfCalls("trajectory_no_loop", metric, measure, fields=_CALL)


def redundancy(metric: EvalMetric) -> OfCalls:
    """`trajectory_redundancy`: distinct calls over all calls, which is 1 - redundancy."""
    criterion = criterion_of(metric)
    likeness = CallLikeness(criterion.arguments, criterion.tool_arguments)

    def measure(calls: Sequence[ToolCall]) -> Finding:
        distinct = len({*identities(calls, likeness)})
        score = distinct / len(calls) if calls else 1.0
        return score, "" if score == 1 else f"{distinct} distinct calls of {len(calls)}", ()

    return OfCalls("trajectory_redundancy", metric, measure, fields=_CALL, attempts="successful")


def error_recovery(metric: EvalMetric) -> OfCalls:
    """`trajectory_error_recovery`: share of failed calls made up for by a later, changed call."""
    criterion = criterion_of(metric)
    likeness = CallLikeness(criterion.arguments, criterion.tool_arguments)
    if criterion.attempts:
        raise MetricError("error recovery looks at all attempts; leave trajectory.attempts out")
    unchanged = criterion.unchanged_retries

    def measure(calls: Sequence[ToolCall]) -> Finding:
        found = recoveries(calls, likeness, unchanged=unchanged)
        if not found:
            return None, "no call failed", ()
        open_ones = [
            f"{calls[place].get('name')} (call {place + 1})" for place, at in found if at < 0
        ]
        told = f"not made up for: {', '.join(open_ones)}" if open_ones else ""
        return 1 - len(open_ones) / len(found), told, ()

    return OfCalls("trajectory_error_recovery", metric, measure, fields=(*_CALL, "error"))
