"""The common part of evaluators that compare tool calls with references.

It selects the calls that count and the references, separates nested agents, and handles missing evidence and
reasons.
"""

from collections.abc import Callable, Sequence
from typing import Final

from evaltap.evaluator.cases.pairing import has_references
from evaltap.evaluator.cases.turn import Case, ToolCall, Turn
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    NO_REFERENCE,
    Finding,
    MissingEvidence,
    TurnEvaluator,
)
from evaltap.evaluator.scoring.contract.validation import reject_unknown
from evaltap.evaluator.scoring.criteria.calls.attempts import (
    calls_of,
    check_attempts,
    lacking,
    select,
)
from evaltap.evaluator.scoring.criteria.calls.diff import describe, trajectory_diff
from evaltap.evaluator.scoring.criteria.calls.pairs import CallPairs, CallSimilarity
from evaltap.schemas.formats.criteria import TrajectoryCriterion
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted, did_you_mean_one_of

Measure = Callable[[CallPairs], Finding]

_AGENTS: Final = ("flattened", "per_agent")


class AgainstReferences(TurnEvaluator):
    """Scores the calls of each turn with a measure, against the best of its references.

    `fields` are the parts of a call that the measure reads; `instead` replaces the references of the case.
    Raises MetricError if the criterion is invalid.
    """

    version = "2"

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
        self.name = name
        super().__init__(metric)
        criterion = criterion_of(metric)
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
        self._similarity = CallSimilarity(criterion.arguments, criterion.tool_arguments)

    def score(self, turn: Turn, expected: Turn, case: Case) -> MissingEvidence | Finding:
        """Return the score against the best-matching reference."""
        own = expected.referenced and has_references(case) and not self._instead
        reason = self._lacking(turn)
        if reason is None and own and (reason := self._lacking(expected)):
            reason = f"expected {reason}"
        if reason is not None:
            return MissingEvidence(reason)
        references = self._instead or [*(_own(expected) if own else ()), *self._more]
        if not references:
            return MissingEvidence(
                f"{NO_REFERENCE}: no expected turn was given for this one, and criterion.trajectory has no"
                " references"
            )
        made = calls_of(turn)
        kept = [select(made, self._attempts, reference) for reference in references]
        results = [
            self._against(select(reference, self._attempts), calls)
            for reference, calls in zip(references, kept, strict=True)
        ]
        best = max(range(len(results)), key=lambda place: _rank(results[place].score))
        return self._best_of(results, best, left_out=len(made) - len(kept[best]))

    def _lacking(self, turn: Turn) -> str | None:
        return lacking(turn, self._fields, lambda name: self._similarity.of(name).ignores_values)

    def _best_of(self, results: list[Finding], best: int, *, left_out: int) -> Finding:
        score, reason, rows, _ = results[best]
        if left_out:
            reason = _joined("; ", reason, f"{counted(left_out, 'failed call')} left out")
        if len(results) > 1:
            reason = _joined(": ", f"reference {best + 1} of {len(results)} fits best", reason)
            rows += tuple(
                RubricVerdict(
                    f"reference {place}", result.score, "best" if place == best + 1 else ""
                )
                for place, result in enumerate(results, start=1)
                if result.score is not None
            )
        return Finding(score, reason, rows)

    def _against(self, reference: list[ToolCall], calls: list[ToolCall]) -> Finding:
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
        reasons = [
            f"{agent or 'no agent'}: {one.reason}" for agent, one in results.items() if one.reason
        ]
        rows = [
            RubricVerdict(f"agent {agent or '(none)'}", one.score, one.reason)
            for agent, one in scored.items()
            if one.score is not None
        ]
        score = self._combine([row.score for row in rows]) if rows else None
        return Finding(score, " | ".join(reasons), tuple(rows))

    def _measured(self, reference: list[ToolCall], calls: list[ToolCall]) -> Finding:
        pairs = CallPairs(reference, calls, self._similarity)
        score, note, rows, _ = self._measure(pairs)
        if score is None or score == 1:
            return Finding(score, note if score is None else "", rows)
        difference = describe(trajectory_diff(pairs)) if self._with_diff else ""
        return Finding(score, _joined(": ", note, difference), rows)


def criterion_of(metric: EvalMetric) -> TrajectoryCriterion:
    """Return `criterion.trajectory`, or its defaults; raise MetricError for unknown keys."""
    given = metric.criterion.trajectory if metric.criterion else None
    criterion = given or TrajectoryCriterion()
    for part, where in ((criterion, "trajectory"), (criterion.costs, "trajectory.costs")):
        if part is not None:
            reject_unknown(part, f"criterion.{where}")
    if criterion.agents and criterion.agents not in _AGENTS:
        raise MetricError(
            f"agents is '{criterion.agents}'; {did_you_mean_one_of(criterion.agents, _AGENTS)}"
        )
    return criterion


def positive(given: int | None, default: int, key: str) -> int:
    """Return a setting of `criterion.trajectory` that must be 1 or more."""
    if given is not None and given < 1:
        raise MetricError(f"criterion.trajectory.{key} is {given}; expected 1 or more")
    return default if given is None else given


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
