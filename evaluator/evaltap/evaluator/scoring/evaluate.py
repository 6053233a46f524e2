"""Score one case and return its result in the form of files: the call behind the public API."""

import asyncio
from collections.abc import Mapping, Sequence

from evaltap.evaluator.cases.pairing import PairedTurns, UnscorableCaseError, pair_turns
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.context import MetricScore, Services, Status, TurnScore
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer, MetricOutcome, OnUnknownMetric
from evaltap.schemas.data import Json
from evaltap.schemas.files.documents import case_data, metrics_of
from evaltap.schemas.files.run_error import with_run_error
from evaltap.schemas.formats.case import EvalCase, Invocation
from evaltap.schemas.formats.metric import Criterion, EvalMetric, without_key
from evaltap.schemas.formats.result import (
    EvalCaseResult,
    EvalMetricResult,
    EvalMetricResultDetails,
    EvalMetricResultPerInvocation,
    RubricScore,
    ScoreValue,
)


def evaluate_case(
    case: EvalCase | Case,
    metrics: Sequence[EvalMetric | Mapping[str, Json]],
    *,
    eval_set_id: str = "",
    run_id: int = 0,
    services: Services | None = None,
    registry: Registry | None = None,
    unknown_metrics: OnUnknownMetric = "error",
) -> EvalCaseResult:
    """Score one recorded case and return its result as tRPC-Agent-Go writes it.

    Case and metrics may be plain data in the form of the files; they are validated like files.

    Problems of the case or of a metric are part of the result: the case is `failed` with an
    `error_message`, and metrics that could be scored keep their rows.  Raises UnknownEvaluatorError for a
    metric whose evaluator is not installed, unless `unknown_metrics` is "skip", and FormatError for data that
    is not an eval case, has no `evalId`, or is not a metric.  To score many cases, create a `CaseScorer` once
    and pass its scores to `case_result`.

    >>> case = {
    ...     "evalId": "s-1", "evalMode": "trace", "sessionInput": {}, "actualConversation": [
    ...         {"invocationId": "t-1", "userContent": {"role": "user", "content": "When?"},
    ...          "finalResponse": {"role": "assistant", "content": "On Monday."}}]}
    >>> words = {"rules": [{"id": "polite", "type": "contains", "values": ["please"]}]}
    >>> metric = {"metricName": "rule_avg_score", "threshold": 1, "criterion": {"rules": words}}
    >>> result = evaluate_case(case, [metric])
    >>> result.final_eval_status, result.overall_eval_metric_results[0].score
    ('failed', 0.0)
    """
    scorer = CaseScorer(
        metrics_of(metrics),
        services=services,
        registry=registry,
        unknown_metrics=unknown_metrics,
        broken_metrics="fail",
    )
    data = case_data(case.model_dump(by_alias=True) if isinstance(case, EvalCase) else case)
    return case_result(data, scorer.score(data), eval_set_id=eval_set_id, run_id=run_id)


async def evaluate_case_async(
    case: EvalCase | Case,
    metrics: Sequence[EvalMetric | Mapping[str, Json]],
    *,
    eval_set_id: str = "",
    run_id: int = 0,
    services: Services | None = None,
    registry: Registry | None = None,
    unknown_metrics: OnUnknownMetric = "error",
) -> EvalCaseResult:
    """Score one case like `evaluate_case`, in a worker thread, without blocking the event loop."""
    return await asyncio.to_thread(
        evaluate_case,
        case,
        metrics,
        eval_set_id=eval_set_id,
        run_id=run_id,
        services=services,
        registry=registry,
        unknown_metrics=unknown_metrics,
    )


def case_result(
    case: Case, score: CaseScore, *, eval_set_id: str = "", run_id: int = 0
) -> EvalCaseResult:
    """Return the result of a scored case in the file form, with one row for each turn."""
    session = case.get("sessionInput") or {}
    return EvalCaseResult(
        eval_set_id=eval_set_id,
        eval_id=score.eval_id,
        run_id=run_id,
        score=score.score or 0.0,
        final_eval_status=_file_status(score.status),
        error_message=score.error_message,
        overall_eval_metric_results=[_overall(outcome) for outcome in score.metrics],
        eval_metric_result_per_invocation=_turn_rows(case, score.metrics),
        session_id=session.get("sessionId") or score.eval_id,
        user_id=session.get("userId") or "",
    )


def _overall(outcome: MetricOutcome) -> EvalMetricResult:
    failure: dict[str, Json] = {}
    if outcome.status is Status.ERROR:
        failure["error"] = {"type": outcome.error_type, "message": outcome.reason}
    rubrics = [row for turn in outcome.turns for row in _rubric_scores(turn)]
    return EvalMetricResult(
        metric_name=outcome.name,
        score=_file_score(outcome),
        eval_status=_file_status(outcome.status),
        threshold=outcome.threshold,
        criterion=_criterion(outcome),
        details=EvalMetricResultDetails(
            reason=_joined(outcome), score=outcome.score, rubric_scores=rubrics
        ),
        **failure,
    )


def _joined(outcome: MetricOutcome) -> str:
    """Return the reason as tRPC-Agent-Go writes it: those of all turns, empty ones too."""
    return ";".join(turn.reason for turn in outcome.turns) if outcome.turns else outcome.reason


def _turn_rows(
    case: Case, outcomes: Sequence[MetricOutcome]
) -> list[EvalMetricResultPerInvocation]:
    try:
        conversation = pair_turns(case)
    except (UnscorableCaseError, TypeError, AttributeError, KeyError):
        return []  # the case's error message says so
    scored = [outcome for outcome in outcomes if outcome.turns]
    if outcomes and not scored:
        return []
    return [_turn_row(conversation, index, scored) for index in range(len(conversation.actual))]


def _turn_row(
    conversation: PairedTurns, index: int, outcomes: Sequence[MetricOutcome]
) -> EvalMetricResultPerInvocation:
    return EvalMetricResultPerInvocation(
        actual_invocation=_invocation(conversation.actual[index]),
        expected_invocation=_invocation(conversation.expected[index]),
        eval_metric_results=[_turn_result(outcome, outcome.turns[index]) for outcome in outcomes],
    )


def _turn_result(outcome: MetricOutcome, turn: TurnScore) -> EvalMetricResult:
    failure: dict[str, Json] = {}
    if turn.status is Status.ERROR:
        failure["error"] = {"message": turn.reason}
    return EvalMetricResult(
        metric_name=outcome.name,
        score=_file_score(turn),
        eval_status=_file_status(turn.status),
        threshold=outcome.threshold,
        criterion=_criterion(outcome),
        details=EvalMetricResultDetails(
            reason=turn.reason,
            score=turn.score,
            value=_value(turn.value),
            rubric_scores=_rubric_scores(turn),
        ),
        **failure,
    )


def _file_status(status: Status) -> str:
    # The format has no `error` or `crashed`: an error is the row's `error` object, a crashed run has failed.
    if status is Status.CRASHED:
        return Status.FAILED
    return Status.NOT_EVALUATED if status is Status.ERROR else status


def _file_score(found: MetricScore | TurnScore) -> float | None:
    # Readers of the format average scores, and a crashed run must not raise the mean.  `details` keeps it.
    return 0.0 if found.status is Status.CRASHED else found.score


def _criterion(outcome: MetricOutcome) -> Criterion | None:
    criterion = outcome.metric.criterion
    return None if criterion is None else without_key(criterion)


def _rubric_scores(turn: TurnScore) -> list[RubricScore]:
    rows = turn.rubric_scores
    return [RubricScore(id=row.id, reason=row.reason, score=row.score) for row in rows]


def _value(value: float | bool | str | None) -> ScoreValue | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return ScoreValue(kind="boolean", boolean=value)
    if isinstance(value, str):
        return ScoreValue(kind="categorical", categorical=value)
    return ScoreValue(kind="numeric", numeric=value)


def _invocation(turn: Turn) -> Invocation | None:
    return None if turn.absent else Invocation.model_validate(with_run_error(dict(turn.data)))
