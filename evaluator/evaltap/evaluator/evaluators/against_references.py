"""What the evaluators that hold tool calls against references have in common.

Which calls count, which references there are, nested agents, missing evidence, and the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
from evaltap.evaluator.criteria.call_attempts import (
    calls_of,
    check_attempts,
    lacking,
    select,
)
from evaltap.evaluator.criteria.call_pairs import CallLikeness, CallPairs
from evaltap.evaluator.criteria.trajectory_diff import describe, trajectory_diff
from evaltap.evaluator.criteria.trajectory_scores import Finding
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.registry import reject_unknown
from evaltap.schemas.metric import EvalMetric
from evaltap.schemas.trajectory import TrajectoryCriterion

ToolCall = dict[str, Any]
Measure = Callable[[CallPairs], Finding]

_AGENTS: Final = ("flattened", "per_agent")


class AgainstReferences:
    """Scores the calls of each turn by a measure, against the best of its references.

    `fields` are the parts of a call that the measure looks at; `instead` takes the place of the
    references of the case.  Raises MetricError when the criterion makes no sense.
    """

    version = "1"

    def __init__(
        self,
        name: str,
        metric: EvalMetric,
        measure: Measure,
        *,
        fields: Sequence[str] = (),
        attempts: str = "successful",
        all_or_nothing: bool = False,
        with_diff: bool = True,
        instead: Sequence[list[ToolCall]] = (),
    ) -> None:
        criterion = criterion_of(metric)
        self.name = name
        self._measure = measure
        self._fields = fields
        self._attempts = check_attempts(criterion.attempts, attempts)
        self._combine = min if all_or_nothing else _mean
        self._with_diff = with_diff
        self._per_agent = criterion.agents == "per_agent"
        self._instead = instead
        self._more = [
            [call.model_dump(by_alias=True) for call in reference.tools]
            for reference in criterion.references
        ]
        self._likeness = CallLikeness(criterion.arguments, criterion.tool_arguments)
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn and their mean."""
        actual, expected = context.actual, context.expected
        if len(actual) != len(expected):
            return EvaluatorFailure(
                f"turn counts differ: {len(actual)} actual, {len(expected)} expected",
                "TurnCountMismatch",
            )
        written = has_references(context.case)
        turns = [
            self._turn(turn, other, written=written)
            for turn, other in zip(actual, expected, strict=True)
        ]
        return average(tuple(turns), self._threshold)

    def _turn(self, actual: Turn, expected: Turn, *, written: bool) -> TurnScore:
        own = written and not self._instead
        reason = self._lacking(actual)
        if reason is None and own and (reason := self._lacking(expected)):
            reason = f"expected {reason}"
        if reason is not None:
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {reason}")
        references = self._instead or [*(_own(expected) if own else ()), *self._more]
        if not references:
            return TurnScore(
                Status.NOT_EVALUATED,
                reason="evidence missing: the case has no expected conversation and "
                "criterion.trajectory no references",
            )
        made = calls_of(actual)
        calls = select(made, self._attempts)
        results = [
            self._against(select(reference, self._attempts), calls) for reference in references
        ]
        best = max(range(len(results)), key=lambda place: _rank(results[place].score))
        return self._scored(results, best, left_out=len(made) - len(calls))

    def _lacking(self, turn: Turn) -> str | None:
        return lacking(turn, self._fields, lambda name: self._likeness.of(name).ignores_values)

    def _scored(self, results: "list[_Result]", best: int, *, left_out: int) -> TurnScore:
        score, told, rows = results[best]
        if left_out:
            told = _joined("; ", told, f"{left_out} failed calls left out")
        if len(results) > 1:
            told = _joined(": ", f"reference {best + 1} of {len(results)} fits best", told)
            rows += tuple(
                RubricVerdict(
                    f"reference {place}", result.score, "best" if place == best + 1 else ""
                )
                for place, result in enumerate(results, start=1)
                if result.score is not None
            )
        if score is None:
            return TurnScore(Status.NOT_EVALUATED, reason=told, rubric_scores=rows)
        return TurnScore(status_of(score, self._threshold), score, told, score, rows)

    def _against(self, reference: list[ToolCall], calls: list[ToolCall]) -> "_Result":
        if not self._per_agent:
            return self._measured(reference, calls)
        wanted, made = _by_agent(reference), _by_agent(calls)
        results = {
            agent: self._measured(wanted.get(agent, []), made.get(agent, []))
            for agent in {**wanted, **made}
        }
        if len(results) < 2:
            return next(iter(results.values()), None) or self._measured([], [])
        scored = {agent: one for agent, one in results.items() if one.score is not None}
        told = [
            f"{agent or 'no agent'}: {one.reason}" for agent, one in results.items() if one.reason
        ]
        rows = [
            RubricVerdict(f"agent {agent or '(none)'}", one.score, one.reason)
            for agent, one in scored.items()
            if one.score is not None
        ]
        score = self._combine([row.score for row in rows]) if rows else None
        return _Result(score, " | ".join(told), tuple(rows))

    def _measured(self, reference: list[ToolCall], calls: list[ToolCall]) -> "_Result":
        pairs = CallPairs(reference, calls, self._likeness)
        score, note, rows = self._measure(pairs)
        if score is None or score == 1:
            return _Result(score, note if score is None else "", rows)
        difference = describe(trajectory_diff(pairs)) if self._with_diff else ""
        return _Result(score, _joined(": ", note, difference), rows)


class _Result(NamedTuple):
    score: float | None
    reason: str
    rows: tuple[RubricVerdict, ...]


def criterion_of(metric: EvalMetric) -> TrajectoryCriterion:
    """Return `criterion.trajectory`, or its defaults; raise MetricError for keys nobody reads."""
    given = metric.criterion.trajectory if metric.criterion else None
    criterion = given or TrajectoryCriterion()
    for part, where in ((criterion, "trajectory"), (criterion.costs, "trajectory.costs")):
        if part is not None:
            reject_unknown(part, f"criterion.{where}")
    if criterion.agents and criterion.agents not in _AGENTS:
        raise MetricError(f"agents is '{criterion.agents}'; expected one of {', '.join(_AGENTS)}")
    return criterion


def positive(given: int | None, default: int, key: str) -> int:
    """Return a setting of `criterion.trajectory` that must be 1 or more."""
    if given is not None and given < 1:
        raise MetricError(f"criterion.trajectory.{key} is {given}; expected 1 or more")
    return default if given is None else given


def has_references(case: Mapping[str, Any]) -> bool:
    """Tell whether the expected turns were written down, and are not placeholders."""
    return bool(case.get("actualConversation")) and bool(case.get("conversation"))


def _own(expected: Turn) -> list[list[ToolCall]]:
    """Return the expected turn's own calls, and those of its `references`."""
    others = expected.data.get("references") or ()
    return [calls_of(expected), *(calls_of(Turn(other)) for other in others)]


def _by_agent(calls: Sequence[ToolCall]) -> dict[str, list[ToolCall]]:
    groups: dict[str, list[ToolCall]] = {}
    for call in calls:
        groups.setdefault(call.get("agent") or "", []).append(call)
    return groups


def _joined(joint: str, *texts: str) -> str:
    return joint.join(filter(None, texts))


def _rank(score: float | None) -> float:
    return -1.0 if score is None else score


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)
