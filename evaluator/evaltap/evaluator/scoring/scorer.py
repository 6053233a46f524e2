"""Score a case under a list of metrics, which are compiled once for millions of calls.

Works on plain JSON data without model objects, and has no side effects.  Thread-safe if its evaluators are.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from evaltap.evaluator.cases.pairing import (
    PairedTurns,
    Placeholders,
    UnscorableCaseError,
    pair_turns,
    with_case_rubrics,
)
from evaltap.evaluator.cases.turn import Case, Turn, run_failure
from evaltap.evaluator.scoring.contract.aggregation import joined_reasons, summarize
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Services,
    Shared,
    Status,
    TurnScore,
)
from evaltap.evaluator.scoring.contract.errors import MetricError, UnknownEvaluatorError
from evaltap.evaluator.scoring.contract.evaluator import (
    CostClass,
    Evaluator,
    Registry,
    cost_class_of,
    reads_answer,
    traits_of,
)
from evaltap.evaluator.scoring.contract.turn_evaluator import TurnEvaluator
from evaltap.evaluator.scoring.settings import checked, with_default
from evaltap.evaluator.scoring.time_limit import DEFAULT_SECONDS, WATCH, TookTooLongError
from evaltap.evaluator.scoring.waiting import in_thread, together
from evaltap.schemas.formats.metric import EvalMetric

if TYPE_CHECKING:  # with HTTP and SQLite, which most runs do not need
    from evaltap.evaluator.scoring.embeddings import EnvironmentEmbedders
    from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges

RunFailures: TypeAlias = Sequence[str | None]
"""Why the run of each turn failed; None for a turn whose run succeeded."""
Outcome = TypeVar("Outcome", bound=MetricScore)

_NO_ANSWER: Final = "no final answer to score"


def run_failures(turns: Sequence[Turn]) -> RunFailures | None:
    """Return why the runs of a case failed, by turn; None if none failed."""
    for turn in turns:
        if turn.run_failed:
            return [run_failure(one.data) for one in turns]
    return None


def recorded_failure(case: Case) -> str | None:
    """Return why runs of a case failed whose turns cannot be paired; None if none is known to have failed."""
    try:
        turns = case.get("actualConversation") or case.get("conversation") or ()
        failures = [run_failure(turn or {}) for turn in turns]
    except (TypeError, AttributeError, KeyError, ValueError):
        return None  # malformed, as the case's own error says
    return crash_reason(failures) or None


def crash_reason(failures: RunFailures) -> str:
    """Return the reasons for failed runs as one text."""
    return joined_reasons([failure or "" for failure in failures])


def no_answers(failures: RunFailures) -> list[TurnScore | None]:
    """Return the scores of failed turns under a metric that reads answers; None for the other turns."""
    return [
        None if failure is None else TurnScore(Status.CRASHED, reason=f"{failure}; {_NO_ANSWER}")
        for failure in failures
    ]


def crashed(
    found: Outcome, failures: RunFailures, turns: Sequence[TurnScore | None], score: float | None
) -> Outcome:
    """Return the outcome of a metric for a case with failed runs; `turns` is empty without rows."""
    rows = tuple(
        turn if failure is None else _crashed_turn(turn, failure)
        for turn, failure in zip(turns, failures, strict=False)
        if turn is not None
    )
    reason = (
        joined_reasons([row.reason for row in rows])
        if rows
        else _with_failure(crash_reason(failures), found.reason)
    )
    return structs.replace(found, status=Status.CRASHED, score=score, reason=reason, turns=rows)


def _crashed_turn(turn: TurnScore, failure: str) -> TurnScore:
    return structs.replace(turn, status=Status.CRASHED, reason=_with_failure(failure, turn.reason))


def _with_failure(failure: str, reason: str) -> str:
    """Return a metric's reason after the failure, unless the reason is about the run itself."""
    if reason.startswith("the run "):
        return reason
    return f"{failure}; {reason}" if reason else failure


@cache
def _judges() -> "EnvironmentJudges":
    from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges

    return EnvironmentJudges()


@cache
def _embedders() -> "EnvironmentEmbedders":
    from evaltap.evaluator.scoring.embeddings import EnvironmentEmbedders

    return EnvironmentEmbedders()


class _Environment:
    """The judges or embedders of the environment, created on first use."""

    def __init__(self, provider: Callable[[], Any]) -> None:
        self._provider = provider

    def __call__(self, model: Any) -> Any:
        return self._provider()(model)

    def named(self, model: Any) -> str:
        """Return the model that the environment names instead of the metric; empty: it names none."""
        found: str = self._provider().named(model)
        return found


DEFAULT_SERVICES: Final = Services(_Environment(_judges), _Environment(_embedders))
"""Shared by all scorers, so that judges reuse connections."""

OnUnknownMetric = Literal["error", "skip"]
KnownScores = Mapping[int, Sequence[TurnScore | None]]
OnBrokenMetric = Literal["error", "fail"]


class AppliedMetric(Struct, frozen=True):
    """A metric as applied, with the fields that every outcome repeats, since model attributes are slow."""

    metric: EvalMetric
    """Including the rubrics that a case adds."""
    name: str
    threshold: float
    evaluator_version: str


class BoundMetric(Struct, frozen=True):
    applied: AppliedMetric
    evaluator: Evaluator
    limits_itself: bool = False
    """Whether its requests or its program have their own time limits."""
    shares_thread: bool = False
    """Whether it lets other cases continue while it waits."""


class MetricOutcome(MetricScore, frozen=True):
    """The score of one metric for a case, with the metric."""

    applied: AppliedMetric
    error_type: str = ""
    """Set when the evaluator failed."""

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.applied.name

    @property
    def threshold(self) -> float:
        """The lowest score that passes."""
        return self.applied.threshold

    @property
    def evaluator_version(self) -> str:
        """The version of the evaluator."""
        return self.applied.evaluator_version

    @property
    def metric(self) -> EvalMetric:
        """The metric as applied, including the rubrics that the case adds."""
        return self.applied.metric


class CaseScore(Struct, frozen=True):
    """The scores of a case under all metrics.

    `score` is 1 for a passed case and 0 for a failed or crashed one.  It is None if no metric was evaluated
    or the case failed only because of errors.
    """

    eval_id: str
    status: Status
    score: float | None
    error_message: str
    metrics: tuple[MetricOutcome, ...]
    turn_ids: Sequence[str] = ()
    """The invocation ids of the actual turns; empty if the turns could not be paired."""
    placeholders: bool = False
    """Whether it was compared with placeholders because it has no reference."""
    stored: Collection[int] = ()
    """The places of turns that the case lacks, as their scores are stored; their ids are empty."""

    @property
    def overall(self) -> float | None:
        """The mean of the metrics' scores by their `weight`; None if no metric with a weight has a score.

        Metrics with an error or without a score are left out, a crashed run counts as 0.  Scores above 1 and
        up to 100 are percentages; other scores beyond 0 to 1, which only evaluators of your own return, are
        left out.
        """
        weighed = [
            (1.0 if one.metric.weight is None else one.metric.weight, score)
            for one in self.metrics
            if (score := from_0_to_1(one.status, one.score)) is not None
        ]
        total = math.fsum(weight for weight, _ in weighed)
        return math.fsum(weight * score for weight, score in weighed) / total if total else None


def from_0_to_1(status: Status, score: float | None) -> float | None:
    """Return what a metric's score counts, 0 after a crash; None if there is no such score."""
    if status is Status.CRASHED:
        return 0.0
    if score is None or status in (Status.ERROR, Status.NOT_EVALUATED) or not 0 <= score <= 100:
        return None
    return score if score <= 1 else score / 100


class CaseScorer:
    """Scores cases under a list of metrics.

    `unknown_metrics="skip"` skips metrics whose evaluator is not installed, as tRPC-Agent-Go does; otherwise
    they raise UnknownEvaluatorError.  The constructor raises MetricError for a metric that cannot be built;
    `broken_metrics="fail"` makes it fail each case instead.  Rubrics that a case adds to `other_metrics`
    belong to another scorer and are ignored.  `placeholders="peer"` compares turns without a reference with
    an empty turn, even those that evaltap recorded.  A metric that takes longer than `case_seconds` for a
    case gets an error, unless it calls a judge or has its own time limit.
    """

    def __init__(
        self,
        metrics: Sequence[EvalMetric | BoundMetric],
        *,
        services: Services | None = None,
        registry: Registry | None = None,
        unknown_metrics: OnUnknownMetric = "error",
        broken_metrics: OnBrokenMetric = "error",
        other_metrics: Collection[str] = (),
        placeholders: Placeholders = "auto",
        case_seconds: float = DEFAULT_SECONDS,
    ) -> None:
        self.case_seconds = case_seconds
        self._services = services or DEFAULT_SERVICES
        self._other_metrics = other_metrics
        self.placeholders: Placeholders = placeholders
        self._bound: list[BoundMetric] = []
        registry = registry or Registry()
        for metric in metrics:
            try:
                if isinstance(metric, EvalMetric):
                    metric = checked(metric) if broken_metrics == "error" else with_default(metric)
                self._bound.append(_bound(metric, registry))
            except UnknownEvaluatorError:
                if unknown_metrics == "error":
                    raise
            except MetricError as error:
                if broken_metrics == "error":
                    raise
                self._bound.append(_bound(metric, registry, error))

    def only(self, indexes: Sequence[int]) -> "CaseScorer":
        """Return a scorer for some of the metrics, sharing their compiled evaluators."""
        if len(indexes) == len(self._bound):
            return self
        chosen = [self._bound[index] for index in indexes]
        others = {*self.versions()} - {one.applied.name for one in chosen}
        return CaseScorer(
            chosen,
            services=self._services,
            other_metrics=others,
            placeholders=self.placeholders,
            case_seconds=self.case_seconds,
        )

    @property
    def applied(self) -> Sequence[AppliedMetric]:
        """The metrics as applied, in order."""
        return [bound.applied for bound in self._bound]

    @property
    def metrics(self) -> list[EvalMetric]:
        """The metrics, in order."""
        return [bound.applied.metric for bound in self._bound]

    @property
    def outline_suffices(self) -> bool:
        """Whether all evaluators declare that they rarely read the arguments and results of calls."""
        return all(traits_of(bound.evaluator).outline_suffices for bound in self._bound)

    @property
    def reads_latency(self) -> bool:
        """Whether a score depends on how long turns took."""
        return any(traits_of(bound.evaluator).reads_latency for bound in self._bound)

    @property
    def separate_turns(self) -> bool:
        """Whether all evaluators score turns separately and free of charge."""
        return not self.waits and all(
            traits_of(bound.evaluator).separate_turns and isinstance(bound.evaluator, TurnEvaluator)
            for bound in self._bound
        )

    def versions(self) -> dict[str, str]:
        """Return the evaluator version of each metric, by metric name."""
        return {one.applied.name: one.applied.evaluator_version for one in self._bound}

    def cost_classes(self) -> list[CostClass]:
        """Return the cost class of each metric, in order."""
        return [cost_class_of(bound.applied.metric, bound.evaluator) for bound in self._bound]

    @property
    def services(self) -> Services:
        """What gives the metrics their judges and embedders."""
        return self._services

    @property
    def waits(self) -> bool:
        """Whether scoring waits for judges or other services, so that threads help."""
        return any(one is not CostClass.FREE for one in self.cost_classes())

    def score(self, case: Case, known: KnownScores | None = None) -> CaseScore:
        """Return the scores of a case; never raises because of the case's content.

        `known` holds earlier scores of the case's turns, by the index of the metric.  If evaluators score
        turns separately, the case may lack the turns with known scores.
        """
        eval_id = case.get("evalId") or ""
        try:
            conversation = pair_turns(case, self.placeholders)
            rubrics = conversation.rubrics
            bounds = self._with_rubrics(rubrics) if rubrics else self._bound
        except (UnscorableCaseError, TypeError, AttributeError, KeyError, ValueError) as problem:
            # Besides known problems, a case may be malformed in any way.
            return _unpaired(eval_id, case, problem)
        failures = run_failures(conversation.actual)
        count = len(conversation.actual)
        # A session that the case has only the end of: all turns, with their known scores.
        session = known if known and any(len(one) > count for one in known.values()) else None
        before = (known if session is None else None) or {}
        outcomes, shared = [], Shared()
        for index, bound in enumerate(bounds):
            scores = before.get(index, ())
            if failures is None:
                outcome = self._evaluate(case, conversation, bound, scores, shared)
            else:
                outcome = self._of_crashed(case, conversation, bound, scores, shared, failures)
            if session is not None:
                outcome = _completed(outcome, bound.evaluator, session[index])
            outcomes.append(outcome)
        status, score, message = _summed(outcomes)
        if failures is not None and status is not Status.FAILED:
            message = crash_reason(failures)
        ids, stored = _ids(conversation, session[0] if session else ())
        return CaseScore(
            eval_id, status, score, message, tuple(outcomes), ids, conversation.placeholders, stored
        )

    def _with_rubrics(self, rubrics: Sequence[Case | None]) -> list[BoundMetric]:
        if others := self._other_metrics:
            rubrics = [one for one in rubrics if one is None or one.get("metricName") not in others]
        extended = with_case_rubrics(self.metrics, rubrics)
        return [
            structs.replace(bound, applied=structs.replace(bound.applied, metric=metric))
            for bound, metric in zip(self._bound, extended, strict=True)
        ]

    def _of_crashed(
        self,
        case: Case,
        conversation: PairedTurns,
        bound: BoundMetric,
        known: Sequence[TurnScore | None],
        shared: Shared,
        failures: RunFailures,
    ) -> MetricOutcome:
        """Return the outcome for a case with a failed run; turns without an answer are not scored."""
        if not reads_answer(bound.applied.metric, bound.evaluator):
            found = self._evaluate(case, conversation, bound, known, shared)
            return crashed(found, failures, found.turns, found.score)
        turns = no_answers(failures)
        kept = [place for place, failure in enumerate(failures) if failure is None]
        if not kept:
            return crashed(failed(bound.applied, "", ""), failures, turns, None)
        if traits_of(bound.evaluator).takes_known:
            # The crashed turns are not scored but remain part of the conversation.
            before = known or [None] * len(turns)
            known = [here or gone for here, gone in zip(turns, before, strict=True)]
            found = self._evaluate(case, conversation, bound, known, shared)
            rows = [found.turns[place] for place in kept if found.turns]
        else:
            found = self._evaluate(case, conversation.only(kept), bound, (), shared)
            rows = [*found.turns]
        for place, row in zip(kept, rows, strict=False):
            turns[place] = row
        return crashed(found, failures, turns if rows else (), None)

    def _evaluate(
        self,
        case: Case,
        conversation: PairedTurns,
        bound: BoundMetric,
        known: Sequence[TurnScore | None],
        shared: Shared,
    ) -> MetricOutcome:
        applied = bound.applied
        context = EvaluationContext(
            case,
            conversation.actual,
            conversation.expected,
            applied.metric,
            self._services,
            known,
            shared,
        )
        if bound.shares_thread or not together():
            result = self._result(bound, context)
        else:
            result = in_thread(self._result, bound, context)
        if isinstance(result, EvaluatorFailure):
            return failed(applied, result.reason, result.error_type)
        return MetricOutcome(result.status, result.score, result.reason, result.turns, applied)

    def _result(
        self, bound: BoundMetric, context: EvaluationContext
    ) -> MetricScore | EvaluatorFailure:
        """Run the evaluator within its time limit; return a failure for anything it raises."""
        result: MetricScore | EvaluatorFailure
        work = None if bound.limits_itself else WATCH.begin(self.case_seconds)
        try:
            try:
                result = bound.evaluator.evaluate(context)
            finally:
                if work is not None:
                    WATCH.end(work)
            if isinstance(result, MetricScore):
                result = _sound(result, len(context.actual))
        except TookTooLongError:
            if work is not None:
                WATCH.end(work)  # the exception may have prevented the call above
            result = EvaluatorFailure(
                f"took longer than {self.case_seconds:g} s for this case; raise --case-seconds, or look"
                " at what is large or endless in it",
                "TookTooLongError",
            )
        except (Exception, SystemExit) as error:  # of a custom evaluator: only this case fails
            result = EvaluatorFailure(f"{type(error).__name__}: {error}", type(error).__name__)
        return result


def _bound(
    metric: EvalMetric | BoundMetric, registry: Registry, error: MetricError | None = None
) -> BoundMetric:
    """Return a metric with its evaluator, or with one that always fails if there is an `error`."""
    if isinstance(metric, BoundMetric):
        return metric
    evaluator = _Broken(metric, error) if error else registry.build(metric)
    applied = AppliedMetric(metric, metric.metric_name, metric.threshold, evaluator.version)
    own_limits = cost_class_of(metric, evaluator) is CostClass.PAID_JUDGE
    traits = traits_of(evaluator)
    return BoundMetric(applied, evaluator, own_limits or traits.limits_itself, traits.shares_thread)


def _completed(
    found: MetricOutcome, evaluator: Evaluator, known: Sequence[TurnScore | None]
) -> MetricOutcome:
    """Return the outcome for a session, given that for its turns without a known score."""
    if not found.turns or not isinstance(evaluator, TurnEvaluator):
        return found  # it could not be evaluated
    new = iter(found.turns)
    whole = evaluator.sum_up(tuple(next(new) if one is None else one for one in known))
    return MetricOutcome(whole.status, whole.score, whole.reason, whole.turns, found.applied)


def failed(applied: AppliedMetric, reason: str, error_type: str) -> MetricOutcome:
    """Return the outcome of a metric that could not be evaluated."""
    return MetricOutcome(Status.ERROR, None, reason, (), applied, error_type)


class _Broken:
    """Replaces an evaluator that could not be built; fails each case with the reason."""

    version = ""

    def __init__(self, metric: EvalMetric, error: MetricError) -> None:
        self.name = metric.evaluator_name or metric.metric_name
        self._failure = EvaluatorFailure(str(error), type(error).__name__)

    def evaluate(self, context: EvaluationContext) -> EvaluatorFailure:
        return self._failure


_SCORES = {Status.PASSED: 1.0, Status.CRASHED: 0.0, Status.NOT_EVALUATED: None}


def _unpaired(eval_id: str, case: Case, problem: Exception) -> CaseScore:
    """Return the score of a case whose turns cannot be paired."""
    text = str(problem) if isinstance(problem, UnscorableCaseError) else f"malformed: {problem}"
    if (failure := recorded_failure(case)) is not None:
        return CaseScore(eval_id, Status.CRASHED, 0.0, f"{failure}; {text}", ())
    return CaseScore(eval_id, Status.FAILED, None, text, ())


def _ids(
    conversation: PairedTurns, session: Sequence[TurnScore | None]
) -> tuple[list[str], list[int]]:
    """Return the ids of the turns, empty for those of the session already scored, and the latter's places."""
    ids = [turn.invocation_id for turn in conversation.actual]
    if not session:
        return ids, []
    new, stored = iter(ids), [place for place, one in enumerate(session) if one is not None]
    return [next(new) if one is None else "" for one in session], stored


def _summed(outcomes: Sequence[MetricOutcome]) -> tuple[Status, float | None, str]:
    """Return the status of a case, its score, and the errors that explain a failure."""
    statuses = [outcome.status for outcome in outcomes]
    status = summarize(statuses)
    if status is not Status.FAILED:
        return status, _SCORES.get(status), ""
    score = 0.0 if Status.FAILED in statuses else None
    return status, score, _errors(outcomes) if Status.ERROR in statuses else ""


def _errors(outcomes: Sequence[MetricOutcome]) -> str:
    return "; ".join(
        f"metric {outcome.name}: {outcome.reason}"
        for outcome in outcomes
        if outcome.status is Status.ERROR
    )


def _sound(result: MetricScore, turns: int) -> MetricScore | EvaluatorFailure:
    """Return a result, or what is wrong with it, as evaluators may be anybody's."""
    if len(result.turns) != turns:
        return EvaluatorFailure(
            f"the evaluator returned {len(result.turns)} turn rows, expected {turns}: one for each turn",
            "RowCountMismatch",
        )
    if result.score is not None and not math.isfinite(result.score):
        reason = f"the evaluator returned the score {result.score}; expected a finite number"
        return EvaluatorFailure(reason, "ScoreNotFinite")
    return result
