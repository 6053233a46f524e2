"""The common part of evaluators that compare tool calls with references.

It selects the calls that count and the references, separates nested agents, and handles missing evidence and
reasons.  Metrics that do so in the same way share the result for each turn (`ComparedTurn`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Final, NamedTuple

from msgspec import Struct

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.pairing import has_references
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.aggregation import average
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
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
from evaltap.evaluator.scoring.criteria.calls.diff import difference
from evaltap.evaluator.scoring.criteria.calls.pairs import CallPairs, CallSimilarity
from evaltap.evaluator.scoring.criteria.calls.shape import Once
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

    version = "3"
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
        self._combine = min if all_or_nothing else fmean
        self._with_diff = with_diff
        self._same_is_perfect = same_is_perfect
        self._perfect: Final = PerfectScores(self.threshold)
        self._choice = _chosen(criterion, attempts, instead)

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the score of each turn against its best-matching reference, and their mean."""
        if len(context.actual) != len(context.expected):
            return super().evaluate(context)
        once, choice = context.shared.once, self._choice
        key = choice.key, tuple(context.actual), tuple(context.expected)
        compared = once(key, _compared_turns, context, choice)
        turns = tuple(map(self._score, compared))
        if perfect := self._perfect.of_case(turns):
            return perfect
        # Metrics whose measures do not hold have the same scores, so their mean and its reason are the same.
        return once((average, self.threshold, *map(id, turns)), average, turns, self.threshold)

    def sum_up(self, turns: tuple[TurnScore, ...]) -> MetricScore:
        """Return the mean."""
        return self._perfect.of_case(turns) or super().sum_up(turns)

    def _score(self, compared: "ComparedTurn") -> TurnScore:
        if compared.marked and (reason := self._lacking(compared)):
            return turn_score(MissingEvidence(reason), self.threshold)
        calls, threshold = compared.only, self.threshold
        if calls is not None:
            if self._same_is_perfect and calls.pairs.same:
                return self._perfect.turn
            found = self._measure(calls.pairs)
            if found.score == 1 and not found.rows:
                return self._perfect.turn
            return calls.score(found, threshold, with_diff=self._with_diff)
        if not compared.references:
            return turn_score(_NO_REFERENCE, threshold)
        results = [self._against(one.parts) for one in compared.references]
        best = _best_of(results, [one.left_out for one in compared.references])
        return self._perfect.turn if best == PERFECT else turn_score(best, threshold)

    def _lacking(self, compared: "ComparedTurn") -> str | None:
        if compared.expected is not None and (reason := self._turn_lacks(compared.expected)):
            return f"expected {reason}"
        return self._turn_lacks(compared.turn)

    def _turn_lacks(self, turn: Turn) -> str | None:
        similarity = self._choice.similarity
        return lacking(turn, self._fields, lambda name: similarity.of(name).ignores_values)

    def _against(self, parts: Mapping[str, "ComparedCalls"]) -> Finding:
        results = {
            agent: one.reasoned(self._measure(one.pairs), with_diff=self._with_diff)
            for agent, one in parts.items()
        }
        if len(results) == 1:
            return next(iter(results.values()))
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

    @Once
    def only(self) -> "ComparedCalls | None":
        """The calls against the only reference, if agents are not compared separately and all calls count."""
        if len(self.references) != 1:
            return None
        parts, left_out = self.references[0]
        return next(iter(parts.values())) if len(parts) == 1 and not left_out else None

    @Once
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
        self._scores: dict[tuple[Finding, float, bool], TurnScore] = {}

    @Once
    def difference(self) -> str:
        """The difference as one line."""
        return difference(self.pairs)

    def score(self, found: Finding, threshold: float, *, with_diff: bool) -> TurnScore:
        """Return the score of the turn for a finding; metrics that agree share it."""
        if _needs_no_difference(found):
            return _settled_score(found, threshold)
        key = found, threshold, with_diff
        known = self._scores.get(key)
        if known is None:
            reasoned = self.reasoned(found, with_diff=with_diff)
            known = self._scores[key] = turn_score(reasoned, threshold)
        return known

    def reasoned(self, found: Finding, *, with_diff: bool) -> Finding:
        """Return the result of a measure with its reason: what the measure notes, and the difference."""
        if _needs_no_difference(found):
            return _settled(found)
        score, note, rows, _ = found
        difference = self.difference if with_diff else ""
        joint = ": " if note and difference else ""
        return Finding(score, f"{note}{joint}{difference}", rows)


def _needs_no_difference(found: Finding) -> bool:
    return found.score is None or found.score == 1


def _settled(found: Finding) -> Finding:
    """Return a result that needs no difference; a full score has no reason."""
    return found._replace(reason="") if found.score and found.reason else found


@lru_cache(maxsize=2048)
def _settled_score(found: Finding, threshold: float) -> TurnScore:
    return turn_score(_settled(found), threshold)


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


def _compared_turns(context: EvaluationContext, choice: CallChoice) -> list[ComparedTurn]:
    """Return the turns with their expected turns, if these are references."""
    own = not choice.instead and has_references(context.case)
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
    left_out = len(made) - len(calls)
    if not choice.per_agent:
        pairs = CallPairs(wanted, calls, choice.similarity)
        return ComparedReference({"": ComparedCalls(pairs)}, left_out)
    ours, theirs = _by_agent(wanted), _by_agent(calls)
    parts = {}
    for agent in {**ours, **theirs} or {"": []}:
        pairs = CallPairs(ours.get(agent, []), theirs.get(agent, []), choice.similarity)
        parts[agent] = ComparedCalls(pairs)
    return ComparedReference(parts, left_out)


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
