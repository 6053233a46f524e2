"""`cost_within`, `completed_within`, `tokens_within` and `run_succeeded`: score turns by telemetry.

Each public function and class here is the factory of one evaluator.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isclose
from typing import Any, Final

from evaltap.evaluator.cases.costs import cost_of
from evaltap.evaluator.cases.turn import FAILED_RUNS, Case, Turn, run_failure
from evaltap.evaluator.scoring.contract.context import EvaluationContext
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    MissingEvidence,
    TurnEvaluator,
    TurnResult,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.schemas.formats.criteria import OperationsCriterion
from evaltap.schemas.formats.metric import EvalMetric

Telemetry = Mapping[str, Any]
Amount = Callable[[Telemetry], float | None]
"""Returns the amount that a turn used; None if it was not recorded."""

_NEVER: Final = float("inf")


class Bound:
    """An upper bound on an amount, and the name of the amount."""

    def __init__(self, title: str, unit: str, limit: float, amount: Amount) -> None:
        if not 0 <= limit < _NEVER:
            raise MetricError(f"the bound on {title} is {limit}; expected 0 or more")
        self.title = title
        self.unit = unit
        self.limit = limit
        self.amount = amount


class Within(TurnEvaluator):
    """Scores 1 if each turn, or the whole case, stays within its bounds, otherwise 0."""

    version = "2"

    def __init__(
        self, name: str, metric: EvalMetric, bounds: Sequence[Bound], *, whole_case: bool
    ) -> None:
        self.name = name
        super().__init__(metric)
        self._bounds = bounds
        self._whole_case = whole_case

    def score_turns(self, context: EvaluationContext) -> Iterable[TurnResult]:
        """Return 1 or 0 for each measured turn; for a whole case, all turns have the same result."""
        turns = [turn.data for turn in context.actual]
        if self._whole_case:
            return [self._verdict(turns)] * len(turns)
        return [self._verdict([turn]) for turn in turns]

    def _verdict(self, turns: Sequence[Case]) -> TurnResult:
        exceeded, unknown = [], ""
        for bound in self._bounds:
            amounts = [bound.amount(turn.get("telemetry") or {}) for turn in turns]
            # Some frameworks write -1 for what they do not know.
            known = [amount for amount in amounts if amount is not None and amount >= 0]
            total = sum(known)
            if total == _NEVER:
                failure = run_failure(turns[amounts.index(_NEVER)], message=False)
                exceeded.append(f"{failure}; it did not complete")
            elif total > bound.limit and not isclose(total, bound.limit):
                exceeded.append(
                    f"{bound.title} {total:.6g}{bound.unit}, at most {bound.limit:.6g}{bound.unit}"
                )
            elif len(known) < len(amounts):
                unknown = unknown or f"{bound.title} was not recorded"
        if unknown and not exceeded:
            return MissingEvidence(unknown)
        return float(not exceeded), "; ".join(exceeded)


def cost_within(metric: EvalMetric) -> Within:
    """`cost_within`: 1 if the cost in USD is at most `maxCostUsd`."""
    criterion = _criterion(metric)
    limit = _required(criterion.max_cost_usd, "maxCostUsd")
    bound = Bound("cost", " USD", limit, cost_of)
    return Within("cost_within", metric, [bound], whole_case=criterion.whole_case)


def completed_within(metric: EvalMetric) -> Within:
    """`completed_within`: 1 if the turn was completed within `maxSeconds`."""
    criterion = _criterion(metric)
    limit = _required(criterion.max_seconds, "maxSeconds")

    def seconds(turn: Telemetry) -> float | None:
        if turn.get("status") in FAILED_RUNS:
            return _NEVER
        latency = turn.get("latencyMs")
        return None if latency is None else latency / 1000

    bound = Bound("time to completion", " s", limit, seconds)
    found = Within("completed_within", metric, [bound], whole_case=criterion.whole_case)
    found.reads_latency = True
    return found


def tokens_within(metric: EvalMetric) -> Within:
    """`tokens_within`: 1 if no bound on tokens is exceeded."""
    criterion = _criterion(metric)

    def both(turn: Telemetry) -> float | None:
        one, other = turn.get("inputTokens"), turn.get("outputTokens")
        return None if one is None or other is None or min(one, other) < 0 else one + other

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


class RunSucceeded(TurnEvaluator):
    """`run_succeeded`: 1 if the turn's run succeeded, 0 if it failed, never ended or was cut off."""

    name = "run_succeeded"

    def score(self, turn: Turn, expected: Turn, case: Case) -> TurnResult:
        """Return 1 or 0 by the recorded status."""
        if not (turn.data.get("telemetry") or {}).get("status"):
            return MissingEvidence("how the run ended was not recorded (telemetry.status)")
        failure = run_failure(turn.data)
        return float(failure is None), failure or ""


def _criterion(metric: EvalMetric) -> OperationsCriterion:
    return require(metric, lambda given: given.operations, "operations")


def _required(limit: float | None, key: str) -> float:
    if limit is None:
        raise MetricError(f"criterion.operations.{key} is not given; add it")
    return limit
