"""`TurnEvaluator`: base class of evaluators that score turns separately.

A subclass names the evidence that it needs and scores a turn.  Missing evidence, scores out of range,
statuses, the mean and the reason of the case are handled here.
"""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import structs

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.aggregation import average, status_of
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    RubricVerdict,
    Status,
    TurnScore,
)
from evaltap.evaluator.scoring.contract.embedder import EmbeddingError, EmbeddingsNotConfiguredError
from evaltap.evaluator.scoring.contract.evaluator import CostClass
from evaltap.evaluator.scoring.contract.judge import JudgeError, JudgeNotConfigured
from evaltap.schemas.formats.metric import EvalMetric


class MissingEvidence(NamedTuple):
    """The reason why a turn is not evaluated: needed evidence was not recorded, or was redacted."""

    reason: str


NO_REFERENCE: Final = "no reference"
"""The start of the reason if a metric compares turns but no expected turn is given."""
EVIDENCE_MISSING: Final = "evidence missing"
"""The start of the reason if a turn lacks what a metric needs."""
NOT_ASKED: Final = {
    "expected tools is missing": "not applicable: the case expects no particular calls",
    "expected finalResponse is missing": "not applicable: the case expects no particular answer",
}
"""The reason, by what is missing, if the expected turn itself says that it expects nothing of what the metric
compares: no evidence was lost."""
NOT_APPLICABLE: Final = frozenset(NOT_ASKED.values())
"""The reasons of metrics that do not apply to a case."""
NOTHING_EXPECTED: Final = MissingEvidence(
    f"{NO_REFERENCE}: no expected turn was given for this one"
)


class Finding(NamedTuple):
    """A score from 0 to 1 (None: there is nothing to score), the reason, and the rows it consists of."""

    score: float | None
    reason: str = ""
    rows: tuple[RubricVerdict, ...] = ()
    value: float | bool | str | None = None
    """The typed score, if it is not `score` itself."""


TurnResult: TypeAlias = (
    float | tuple[float | None, str] | Finding | TurnScore | MissingEvidence | None
)
"""The possible results for a turn; None: it contains nothing to score.  True and False mean 1 and 0."""
CaseResult: TypeAlias = Iterable[TurnResult] | MetricScore | EvaluatorFailure
"""The possible results for a case: one for each turn, or one for the whole case."""

_OF_THE_CASE: Final = (MetricScore, EvaluatorFailure)


class TurnEvaluator:
    """Scores each turn with `score`, and the case with the mean of its turns.

    Use the class itself as the factory of the evaluator: it is called once for each metric.  `needs` and
    `needs_expected` name the fields without which an actual or an expected turn is not evaluated:
    `finalResponse`, `userContent`, `state`, `tools`, or a field of every tool call, such as
    `tools.arguments`.

    >>> from evaltap.evaluator import Registry, evaluate_case
    >>> class FewCalls(TurnEvaluator):
    ...     needs = ("tools",)
    ...     def score(self, turn, expected, case):
    ...         return len(turn.tools) <= 1, f"{len(turn.tools)} tool calls, at most 1"
    >>> case = {
    ...     "evalId": "s-1", "evalMode": "trace", "sessionInput": {}, "actualConversation": [
    ...         {"invocationId": "t-1", "userContent": {"role": "user", "content": "When?"},
    ...          "tools": [{"name": "get_order"}, {"name": "get_order"}]}]}
    >>> registry = Registry({"few_calls": FewCalls})
    >>> metrics = [{"metricName": "few_calls", "threshold": 1}]
    >>> (row,) = evaluate_case(case, metrics, registry=registry).overall_eval_metric_results
    >>> row.score, row.details.reason
    (0.0, '2 tool calls, at most 1')
    """

    name: str = ""
    version: str = "1"
    """Change it whenever the same case could get another score; older scores then count as stale."""
    needs: Sequence[str] = ()
    needs_expected: Sequence[str] = ()
    threshold: float = 1.0
    cost_class: CostClass | None = None
    """None: a paid judge if the metric has `llmJudge`, otherwise free."""
    reads_answer: bool | None = None
    """Whether turns of failed runs are not scored.  None: they are not if it `needs` the final response, or
    if scoring costs something."""
    separate_turns: bool = False
    """Whether `score` reads nothing but the turn and its expected turn, so that only the new turns of a long
    session have to be read and scored."""
    outline_suffices: bool = False
    """Whether arguments and results of calls are rarely read, so that decoding them can be deferred."""
    reads_latency: bool = False
    """Whether scores depend on how long turns took, so that recorded tool calls take as long as they took."""

    def __init__(self, metric: EvalMetric) -> None:
        self.metric = metric
        self.threshold = metric.threshold
        self.name = self.name or metric.evaluator_name or metric.metric_name

    def score(self, turn: Turn, expected: Turn, case: Case) -> TurnResult:
        """Return the score of a turn, optionally with a reason; called from several threads concurrently.

        `expected` may be a placeholder that only contains the user's message.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `score`")

    def score_turns(self, context: EvaluationContext) -> CaseResult:
        """Return the result of each turn; override it to score all turns of a case together."""
        return (
            self._of_turn(turn, expected, context.case)
            for turn, expected in zip(context.actual, context.expected, strict=True)
        )

    def _of_turn(self, turn: Turn, expected: Turn, case: Case) -> TurnResult:
        """Return the result against the expected turn, or against the best of its `references`."""
        others = expected.references if self.needs_expected else ()
        if not others:
            return self.missing(turn, expected) or self.score(turn, expected, case)
        return best_reference(
            [
                turn_score(self.missing(turn, one) or self.score(turn, one, case), self.threshold)
                for one in (expected, *others)
            ]
        )

    def missing(self, turn: Turn, expected: Turn) -> MissingEvidence | None:
        """Return the first piece of needed evidence that is missing; None if all is present."""
        for field in self.needs:
            if (reason := turn.missing(field)) is not None:
                return MissingEvidence(reason)
        if self.needs_expected and not expected.referenced:
            return NOTHING_EXPECTED
        for field in self.needs_expected:
            if (reason := expected.missing(field)) is not None:
                return MissingEvidence(f"expected {reason}")
        return None

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn and their mean."""
        turns, wanted = len(context.actual), len(context.expected)
        if turns != wanted:
            return EvaluatorFailure(
                f"turn counts differ: {turns} actual, {wanted} expected", "TurnCountMismatch"
            )
        try:
            result = self.score_turns(context)
            if isinstance(result, _OF_THE_CASE):
                return result
            threshold = self.threshold
            found = [
                one if type(one) is TurnScore else turn_score(one, threshold) for one in result
            ]
        except (JudgeNotConfigured, EmbeddingsNotConfiguredError) as error:
            found = [TurnScore(Status.NOT_EVALUATED, reason=str(error))] * turns
        except (JudgeError, EmbeddingError) as error:
            return EvaluatorFailure(str(error), type(error).__name__)
        return self.sum_up(tuple(found))

    def sum_up(self, turns: tuple[TurnScore, ...]) -> MetricScore:
        """Return the score of the case: the mean over its turns."""
        return average(turns, self.threshold)


class PerfectScores:
    """The scores of turns and cases without any fault, as shared objects: most of millions are perfect."""

    def __init__(self, threshold: float) -> None:
        self.turn: Final = turn_score(1.0, threshold)
        self._threshold = threshold
        self._cases: dict[int, MetricScore] = {}

    def of_case(self, turns: tuple[TurnScore, ...]) -> MetricScore | None:
        """Return the score of a case whose turns all have the shared score; None for other cases."""
        perfect = self.turn
        for turn in turns:
            if turn is not perfect:
                return None
        known = self._cases.get(len(turns))
        if known is None:
            known = self._cases[len(turns)] = average(turns, self._threshold)
        return known


def best_reference(results: Sequence[TurnScore]) -> TurnScore:
    """Return the best of a turn's scores against several references; the reason names the reference."""
    ranks = [-1.0 if one.score is None else one.score for one in results]
    best = max(range(len(ranks)), key=ranks.__getitem__)
    found = results[best]
    if found.score is None:
        return found
    which = f"reference {best + 1} of {len(results)} fits best"
    return structs.replace(found, reason=f"{which}: {found.reason}" if found.reason else which)


def turn_score(found: TurnResult, threshold: float) -> TurnScore:
    """Convert a result for a turn into its score; anything that is not a score becomes an error."""
    if isinstance(found, Finding):  # first, since it is the most frequent
        finding = found
    elif isinstance(found, TurnScore):
        return found
    elif found is None:
        return TurnScore(Status.NOT_EVALUATED, reason="there is nothing to score")
    elif isinstance(found, MissingEvidence):
        told = found.reason.startswith(NO_REFERENCE)
        reason = found.reason if told else f"{EVIDENCE_MISSING}: {found.reason}"
        reason = NOT_ASKED.get(found.reason, reason)
        return TurnScore(Status.NOT_EVALUATED, reason=reason)
    elif isinstance(found, tuple) and len(found) == 2:
        finding = Finding(*found)
    else:
        finding = Finding(found)
    score, reason, rows, value = finding
    if score is None:
        return TurnScore(Status.NOT_EVALUATED, reason=reason, rubric_scores=rows)
    if getattr(score, "ndim", None) == 0:
        scalar: Any = score  # of numpy or torch: what a comparison of their numbers returns
        score = scalar.item()
    if not isinstance(score, (bool, int, float)) or not isinstance(reason, str):
        wrong = f"the evaluator returned {found!r:.200}; expected a score, or a score and a reason"
        return TurnScore(Status.ERROR, reason=wrong)
    if not isfinite(score) or not 0 <= score <= 1:
        return TurnScore(Status.ERROR, reason=f"score {score} is out of range; expected 0 to 1")
    status = status_of(score, threshold)
    return TurnScore(status, float(score), reason, score if value is None else value, rows)
