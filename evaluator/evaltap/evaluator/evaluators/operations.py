"""`cost_within`, `completed_within` and `tokens_within`: what turns cost, by their telemetry.

Each public function here is the factory of one evaluator.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric
from evaltap.schemas.operations import OperationsCriterion

Telemetry = Mapping[str, Any]
Amount = Callable[[Telemetry], float | None]
"""Return what a turn used, None when that was not recorded."""

_NEVER: Final = float("inf")


class Bound:
    """An upper bound on an amount, and how the amount is called."""

    def __init__(self, title: str, unit: str, limit: float, amount: Amount) -> None:
        if not 0 <= limit < _NEVER:
            raise MetricError(f"the bound on {title} is {limit}; expected 0 or more")
        self.title = title
        self.unit = unit
        self.limit = limit
        self.amount = amount


class Within:
    """Each turn, or the whole case, stays within its bounds: 1 or 0."""

    version = "1"

    def __init__(
        self, name: str, metric: EvalMetric, bounds: Sequence[Bound], *, whole_case: bool
    ) -> None:
        self.name = name
        self._bounds = bounds
        self._whole_case = whole_case
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return 1 or 0 for each turn that was measured, and their mean."""
        if self._whole_case:
            verdict = self._verdict([*map(_telemetry, context.actual)])
            return average((verdict,) * len(context.actual), self._threshold)
        turns = tuple(self._verdict([_telemetry(turn)]) for turn in context.actual)
        return average(turns, self._threshold)

    def _verdict(self, turns: Sequence[Telemetry]) -> TurnScore:
        told, over = [], False
        for bound in self._bounds:
            amounts = [bound.amount(turn) for turn in turns]
            known = [amount for amount in amounts if amount is not None]
            total = sum(known)
            if len(known) < len(amounts) and total <= bound.limit:
                reason = f"evidence missing: {bound.title} was not recorded"
                return TurnScore(Status.NOT_EVALUATED, reason=reason)
            if total > bound.limit:
                over = True
                found = f"{total:.6g}{bound.unit}" if total < _NEVER else "unlimited"
                told.append(f"{bound.title} {found}, at most {bound.limit:.6g}{bound.unit}")
        score = float(not over)
        return TurnScore(status_of(score, self._threshold), score, "; ".join(told), score)


def cost_within(metric: EvalMetric) -> Within:
    """`cost_within`: 1 when the cost in USD is at most `maxCostUsd`."""
    criterion = _criterion(metric)
    limit = _required(criterion.max_cost_usd, "maxCostUsd")
    bound = Bound("cost", " USD", limit, lambda turn: turn.get("costUsd"))
    return Within("cost_within", metric, [bound], whole_case=criterion.whole_case)


def completed_within(metric: EvalMetric) -> Within:
    """`completed_within`: 1 when the turn was completed, and in at most `maxSeconds`."""
    criterion = _criterion(metric)
    limit = _required(criterion.max_seconds, "maxSeconds")

    def seconds(turn: Telemetry) -> float | None:
        if turn.get("status") in ("error", "incomplete"):
            return _NEVER
        latency = turn.get("latencyMs")
        return None if latency is None else latency / 1000

    bound = Bound("time to completion", " s", limit, seconds)
    return Within("completed_within", metric, [bound], whole_case=criterion.whole_case)


def tokens_within(metric: EvalMetric) -> Within:
    """`tokens_within`: 1 when no bound on tokens is exceeded."""
    criterion = _criterion(metric)

    def both(turn: Telemetry) -> float | None:
        one, other = turn.get("inputTokens"), turn.get("outputTokens")
        return None if one is None or other is None else one + other

    given: list[tuple[str, int | None, Amount]] = [
        ("tokens", criterion.max_tokens, both),
        ("input tokens", criterion.max_input_tokens, lambda turn: turn.get("inputTokens")),
        ("output tokens", criterion.max_output_tokens, lambda turn: turn.get("outputTokens")),
    ]
    bounds = [Bound(title, "", limit, of) for title, limit, of in given if limit is not None]
    if not bounds:
        raise MetricError(
            "criterion.operations has no bound on tokens; "
            "give maxTokens, maxInputTokens or maxOutputTokens"
        )
    return Within("tokens_within", metric, bounds, whole_case=criterion.whole_case)


def _criterion(metric: EvalMetric) -> OperationsCriterion:
    part = metric.criterion.operations if metric.criterion else None
    return require(metric, part, "operations")


def _required(limit: float | None, key: str) -> float:
    if limit is None:
        raise MetricError(f"criterion.operations.{key} is not given; add it")
    return limit


def _telemetry(turn: Turn) -> Telemetry:
    return turn.data.get("telemetry") or {}
