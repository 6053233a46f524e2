"""The common part of evaluators that compare tool calls with references.

It selects the calls that count and the references, separates nested agents, and handles missing evidence and
reasons.  Metrics that do so in the same way share the result for each turn (`ComparedTurn`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.pairing import has_references
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    MetricScore,
    RubricVerdict,
    TurnScore,
)
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    NO_REFERENCE,
    Finding,
    MissingEvidence,
    PerfectScores,
    TurnEvaluator,
    turn_score,
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
_NO_REFERENCE: Final = MissingEvidence(
    f"{NO_REFERENCE}: no expected turn was given for this one, and criterion.trajectory has no references"
)


PERFECT: Final = Finding(1.0)
MISSED: Final = Finding(0.0)


class AgainstReferences(TurnEvaluator):
    """Scores the calls of each turn with a measure, against the best of its references.

    `fields` are the parts of a call that the measure reads; `instead` replaces the references of the case.
    With `same_is_perfect`, calls with the names and arguments of the reference always score 1.  Raises
    MetricError if the criterion is invalid.
    """

    version = "2"
    separate_turns = True
    outline_suffices = True

    def __init__(
        self,
        name: str,
        metric: EvalMetric,
        measure: Measure,
        *,
        fields: Sequence[str] = (),
        attempts: str = "successful",
        all_or_nothing: bool = False,
        same_is_perfect: bool = False,
        with_diff: bool = True,
        instead: Sequence[list[AnyCall]] = (),
    ) -> None:
        self.name = name
        super().__init__(metric)
        criterion = criterion_of(metric)
        self._measure = measure
        self._fields = fields
        self._combine = min if all_or_nothing else _mean
        self._with_diff = with_diff
        self._own = not instead
        self._same_is_perfect = same_is_perfect
        self._perfect: Final = PerfectScores(self.threshold)
        self._choice = _chosen(criterion, attempts, instead)

    def score_turns(self, context: EvaluationContext) -> list[TurnScore]:
        """Return the score of each turn against its best-matching reference."""
        own = self._own and has_references(context.case)
        turns = context.shared.once(
            (self._choice.key, own, tuple(context.actual), tuple(context.expected)),
            _compared_turns,
            context,
            self._choice,
            own=own,
        )
        return [*map(self._score, turns)]

    def sum_up(self, turns: tuple[TurnScore, ...]) -> MetricScore:
        """Return the mean."""
        return self._perfect.of_case(turns) or super().sum_up(turns)

    def _score(self, compared: "ComparedTurn") -> TurnScore:
        if compared.marked and (reason := self._lacking(compared)):
            return turn_score(MissingEvidence(reason), self.threshold)
        if compared.same and self._same_is_perfect:
            return self._perfect.turn
        references = compared.references
        if not references:
            return turn_score(_NO_REFERENCE, self.threshold)
        parts, left_out = references[0]
        if len(references) == 1 and not left_out:
            found = self._against(parts)
        else:
            results = [self._against(one.parts) for one in references]
            found = _best_of(results, [one.left_out for one in references])
        return self._perfect.turn if found is PERFECT else turn_score(found, self.threshold)

    def _lacking(self, compared: "ComparedTurn") -> str | None:
        if reason := self._turn_lacks(compared.turn):
            return reason
        reason = self._turn_lacks(compared.expected) if compared.expected is not None else None
        return f"expected {reason}" if reason else None

    def _turn_lacks(self, turn: Turn) -> str | None:
        similarity = self._choice.similarity
        return lacking(turn, self._fields, lambda name: similarity.of(name).ignores_values)

    def _against(self, parts: Mapping[str, "ComparedCalls"]) -> Finding:
        if len(parts) == 1:
            return self._measured(*parts.values())
        results = {agent: self._measured(one) for agent, one in parts.items()}
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

    def _measured(self, compared: "ComparedCalls") -> Finding:
        found = self._measure(compared.pairs)
        if found is MISSED:
            return compared.missed
        score, note, rows, _ = found
        if score == 1 and not rows:
            return PERFECT
        if score is None or score == 1:
            return Finding(score, note if score is None else "", rows)
        difference = compared.difference if self._with_diff else ""
        return Finding(score, _joined(": ", note, difference), rows)


class CallChoice(Struct, frozen=True):
    """Which calls are compared with which references, and how; metrics with equal keys do it alike."""

    key: str
    attempts: str
    per_agent: bool
    similarity: CallSimilarity
    instead: Sequence[list[AnyCall]]
    """The references that replace those of the case."""
    more: Sequence[list[AnyCall]]
    """The references of the criterion."""


class ComparedTurn:
    """The calls of a turn against its references; each result is computed at most once, on demand."""

    def __init__(self, turn: Turn, expected: Turn | None, choice: CallChoice) -> None:
        self.turn = turn
        self.expected = expected
        """None if it is not a reference."""
        self._choice = choice
        self.marked = _is_marked(turn) or (expected is not None and _is_marked(expected))
        """Whether some evidence of the calls may be missing."""

    @cached_property
    def same(self) -> bool:
        """Whether the calls are those of the only reference and of one agent, as equal bytes prove."""
        if len(self.references) != 1:
            return False
        parts, left_out = self.references[0]
        return not left_out and len(parts) == 1 and next(iter(parts.values())).pairs.same

    @cached_property
    def references(self) -> Sequence["ComparedReference"]:
        """The calls that count, against each reference."""
        made, choice = calls_of(self.turn), self._choice
        own: Sequence[list[AnyCall]] = ()
        if self.expected is not None:
            own = [calls_of(one) for one in (self.expected, *self.expected.references)]
        return [
            _compared(made, reference, choice)
            for reference in choice.instead or (*own, *choice.more)
        ]


class ComparedReference(NamedTuple):
    """The calls of a turn against one reference."""

    parts: Mapping[str, "ComparedCalls"]
    """By agent, if agents are compared separately."""
    left_out: int
    """How many failed calls do not count."""


class ComparedCalls:
    """Calls against those of a reference, with the difference in words."""

    def __init__(self, pairs: CallPairs) -> None:
        self.pairs = pairs

    @cached_property
    def difference(self) -> str:
        """The difference as one line."""
        return describe(trajectory_diff(self.pairs))

    @cached_property
    def missed(self) -> Finding:
        """The result of all measures that do not hold."""
        return Finding(0.0, self.difference)


def _chosen(
    criterion: TrajectoryCriterion, default: str, instead: Sequence[list[AnyCall]]
) -> CallChoice:
    attempts = check_attempts(criterion.attempts, default)
    similarity = CallSimilarity(criterion.arguments, criterion.tool_arguments)
    more: list[list[AnyCall]] = [
        [call.model_dump(by_alias=True) for call in reference.tools]
        for reference in criterion.references
    ]
    per_agent = criterion.agents == "per_agent"
    key = repr((attempts, per_agent, criterion.arguments, criterion.tool_arguments, instead, more))
    return CallChoice(key, attempts, per_agent, similarity, instead, more)


def _compared_turns(
    context: EvaluationContext, choice: CallChoice, *, own: bool
) -> list[ComparedTurn]:
    """Return the turns with their expected turns, if these are references (`own`)."""
    return [
        ComparedTurn(turn, expected if own and expected.referenced else None, choice)
        for turn, expected in zip(context.actual, context.expected, strict=True)
    ]


def _is_marked(turn: Turn) -> bool:
    return not turn.unmarked and bool(turn.capture or turn.marked_calls)


def _compared(
    made: Sequence[AnyCall], reference: Sequence[AnyCall], choice: CallChoice
) -> ComparedReference:
    calls = select(made, choice.attempts, reference)
    wanted = select(reference, choice.attempts)
    parts = {"": (wanted, calls)}
    if choice.per_agent:
        ours, theirs = _by_agent(wanted), _by_agent(calls)
        agents = {**ours, **theirs} or parts
        parts = {agent: (ours.get(agent, []), theirs.get(agent, [])) for agent in agents}
    return ComparedReference(
        {
            agent: ComparedCalls(CallPairs(*both, choice.similarity))
            for agent, both in parts.items()
        },
        len(made) - len(calls),
    )


def _best_of(results: Sequence[Finding], left_out: Sequence[int]) -> Finding:
    """Return the best result; `left_out` says how many failed calls do not count for each reference."""
    best = max(range(len(results)), key=lambda place: _rank(results[place].score))
    score, reason, rows, _ = results[best]
    if left_out[best]:
        reason = _joined("; ", reason, f"{counted(left_out[best], 'failed call')} left out")
    if len(results) > 1:
        reason = _joined(": ", f"reference {best + 1} of {len(results)} fits best", reason)
        rows += tuple(
            RubricVerdict(f"reference {place}", result.score, "best" if place == best + 1 else "")
            for place, result in enumerate(results, start=1)
            if result.score is not None
        )
    return Finding(score, reason, rows)


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


def _by_agent(calls: Sequence[AnyCall]) -> dict[str, list[AnyCall]]:
    groups: dict[str, list[AnyCall]] = {}
    for call in calls:
        groups.setdefault(call.get("agent") or "", []).append(call)
    return groups


def _joined(joint: str, *texts: str) -> str:
    return joint.join(filter(None, texts))


def _rank(score: float | None) -> float:
    return -1.0 if score is None else score


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)
