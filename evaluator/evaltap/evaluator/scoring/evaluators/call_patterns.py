"""Trajectory evaluators without references: calls that an agent must not make, whatever the task.

Each public function here is the factory of one evaluator.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding, TurnEvaluator
from evaltap.evaluator.scoring.criteria.calls.attempts import calls_of, check_attempts, select
from evaltap.evaluator.scoring.criteria.calls.pairs import NO_NAME, CallSimilarity
from evaltap.evaluator.scoring.criteria.calls.patterns import find_loop, identities, recoveries
from evaltap.evaluator.scoring.evaluators.against_references import criterion_of, positive
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted

Measure = Callable[[Sequence[AnyCall]], Finding]

_NAME: Final = ("tools.name",)
_CALL: Final = ("tools.name", "tools.arguments")


class CallsEvaluator(TurnEvaluator):
    """Scores the calls of each turn with a measure that needs no reference."""

    separate_turns = True

    def __init__(
        self,
        name: str,
        metric: EvalMetric,
        measure: Measure,
        *,
        needs: Sequence[str],
        attempts: str = "all",
    ) -> None:
        self.name = name
        self.needs = needs
        super().__init__(metric)
        self._measure = measure
        self._attempts = check_attempts(criterion_of(metric).attempts, attempts)

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding:
        """Return the measure's finding for the calls."""
        return self._measure(select(calls_of(turn), self._attempts))


def forbidden(metric: EvalMetric) -> CallsEvaluator:
    """`trajectory_forbidden`: 1 if no forbidden tool was called, not even in a failed call."""
    if not (names := criterion_of(metric).forbidden):
        raise MetricError("criterion.trajectory.forbidden is empty; name the tools")

    def measure(calls: Sequence[AnyCall]) -> Finding:
        found = [name for name in names if any(call.get("name") == name for call in calls)]
        reason = f"forbidden tools called: {', '.join(found)}" if found else ""
        return Finding(float(not found), reason)

    return CallsEvaluator("trajectory_forbidden", metric, measure, needs=_NAME)


def max_calls(metric: EvalMetric) -> CallsEvaluator:
    """`trajectory_max_calls`: 1 if no bound on the number of calls is exceeded."""
    criterion = criterion_of(metric)
    total, by_tool = criterion.max_calls, criterion.max_calls_per_tool
    if total is None and not by_tool:
        raise MetricError("criterion.trajectory has neither maxCalls nor maxCallsPerTool; give one")
    if min(by_tool.values(), default=0) < 0 or (total is not None and total < 0):
        raise MetricError("criterion.trajectory.maxCalls is below 0; expected 0 or more")

    def measure(calls: Sequence[AnyCall]) -> Finding:
        counts = Counter(call.get("name") for call in calls)
        exceeded = [
            f"{counted(counts[name], 'call')} of {name}, at most {bound}"
            for name, bound in sorted(by_tool.items())
            if counts[name] > bound
        ]
        if total is not None and len(calls) > total:
            exceeded.append(f"{counted(len(calls), 'call')}, at most {total}")
        return Finding(float(not exceeded), "; ".join(exceeded))

    return CallsEvaluator(
        "trajectory_max_calls", metric, measure, needs=_NAME if by_tool else ("tools",)
    )


def single_tool_use(metric: EvalMetric) -> CallsEvaluator:
    """`trajectory_single_tool_use`: the share of the required tools that were called."""
    if not (names := criterion_of(metric).required_tools):
        raise MetricError("criterion.trajectory.requiredTools is empty; name at least one tool")

    def measure(calls: Sequence[AnyCall]) -> Finding:
        called = {call.get("name") for call in calls}
        missing = [name for name in names if name not in called]
        rows = tuple(RubricVerdict(name, float(name in called), "") for name in names)
        reason = f"not called: {', '.join(missing)}" if missing else ""
        return Finding((len(names) - len(missing)) / len(names), reason, rows)

    return CallsEvaluator(
        "trajectory_single_tool_use", metric, measure, needs=_NAME, attempts="successful"
    )


def no_loop(metric: EvalMetric) -> CallsEvaluator:
    """`trajectory_no_loop`: 0 if the same sequence of calls is repeated in a loop, otherwise 1."""
    criterion = criterion_of(metric)
    similarity = CallSimilarity(criterion.arguments, criterion.tool_arguments)
    repeats = positive(criterion.repeats, 3, "repeats")
    period = positive(criterion.max_period, 4, "maxPeriod")
    if repeats < 2:
        raise MetricError(
            "criterion.trajectory.repeats is 1; one call is not a loop, expected 2 or more"
        )

    def measure(calls: Sequence[AnyCall]) -> Finding:
        if (loop := find_loop(identities(calls, similarity), repeats, period)) is None:
            return Finding(1.0)
        names = [call.get("name") or "" for call in calls[loop.start : loop.start + loop.period]]
        reason = f"{', '.join(names)} repeated {loop.repeats} times from call {loop.start + 1} on"
        return Finding(0.0, reason)

    return CallsEvaluator("trajectory_no_loop", metric, measure, needs=_CALL)


def redundancy(metric: EvalMetric) -> CallsEvaluator:
    """`trajectory_redundancy`: distinct calls over all calls, which is 1 - redundancy."""
    criterion = criterion_of(metric)
    similarity = CallSimilarity(criterion.arguments, criterion.tool_arguments)

    def measure(calls: Sequence[AnyCall]) -> Finding:
        distinct = len({*identities(calls, similarity)})
        score = distinct / len(calls) if calls else 1.0
        return Finding(score, "" if score == 1 else f"{distinct} distinct calls of {len(calls)}")

    return CallsEvaluator(
        "trajectory_redundancy", metric, measure, needs=_CALL, attempts="successful"
    )


def error_recovery(metric: EvalMetric) -> CallsEvaluator:
    """`trajectory_error_recovery`: share of failed calls followed by a changed call that succeeded."""
    criterion = criterion_of(metric)
    similarity = CallSimilarity(criterion.arguments, criterion.tool_arguments)
    if criterion.attempts:
        raise MetricError("error recovery looks at all attempts; leave trajectory.attempts out")
    unchanged = criterion.unchanged_retries

    def measure(calls: Sequence[AnyCall]) -> Finding:
        if not (found := recoveries(calls, similarity, unchanged=unchanged)):
            return Finding(None, "no call failed")
        open_ones = [
            f"{calls[place].get('name') or NO_NAME} (call {place + 1})"
            for place, at in found
            if at < 0
        ]
        reason = f"not made up for: {', '.join(open_ones)}" if open_ones else ""
        return Finding((len(found) - len(open_ones)) / len(found), reason)

    return CallsEvaluator(
        "trajectory_error_recovery", metric, measure, needs=(*_CALL, "tools.error")
    )
