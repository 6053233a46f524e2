"""Evaluation results: the content of `<id>.evalset_result.json`.

Field names, order and defaults are those of tRPC-Agent-Go's result file. Its statuses are `passed`,
`failed`, `not_evaluated` and `unknown`; evaltap adds `error`: the evaluator tried and failed, so
there is no score.
"""

from typing import Annotated

from pydantic import field_serializer

from evaltap.schemas.formats.case import Invocation, Seconds
from evaltap.schemas.formats.metric import Criterion, without_key
from evaltap.schemas.formats.model import Keep, WireModel


class ScoreValue(WireModel):
    """A typed score: exactly one of the three fields after `kind` is set."""

    kind: str = ""
    numeric: Annotated[float | None, Keep] = None
    boolean: Annotated[bool | None, Keep] = None
    categorical: Annotated[str | None, Keep] = None


class RubricScore(WireModel):
    """The judge's answer to one rubric."""

    id: str = ""
    reason: str = ""
    score: float | None = None


class EvalMetricResultDetails(WireModel):
    """Why a metric has its score."""

    reason: str = ""
    score: float | None = None
    value: ScoreValue | None = None
    rubric_scores: list[RubricScore] = []


class EvalMetricResult(WireModel):
    """The outcome of one metric, for one turn or for the whole case."""

    metric_name: str = ""
    score: float | None = None
    """`None` when there is none; the format omits a zero score from the file."""
    eval_status: str = ""
    threshold: float = 0.0
    criterion: Criterion | None = None
    details: EvalMetricResultDetails | None = None

    @field_serializer("criterion", mode="wrap")
    def _write_without_key(self, value: Criterion | None, handler: object) -> object:
        return None if value is None else without_key(value).model_dump(by_alias=True)


class EvalMetricResultPerInvocation(WireModel):
    """The outcomes of all metrics for one turn."""

    actual_invocation: Invocation | None = None
    expected_invocation: Invocation | None = None
    eval_metric_results: list[EvalMetricResult] = []


class EvalCaseResult(WireModel):
    """The outcome of one case in one run."""

    eval_set_id: str = ""
    eval_id: str = ""
    run_id: int = 0
    score: float = 0.0
    final_eval_status: str = ""
    error_message: str = ""
    overall_eval_metric_results: list[EvalMetricResult] = []
    eval_metric_result_per_invocation: list[EvalMetricResultPerInvocation] = []
    session_id: str = ""
    user_id: str = ""
    ended_by: str = ""
    """Why the conversation with a simulated user ended; empty without one.  Added by evaltap."""


class StatusCounts(WireModel):
    """How many outcomes have which status."""

    passed: int = 0
    failed: int = 0
    not_evaluated: int = 0


class MetricSummary(WireModel):
    """One metric over several outcomes."""

    metric_name: str = ""
    average_score: float = 0.0
    eval_status: str = ""
    threshold: float = 0.0
    status_counts: StatusCounts | None = None


class RunSummary(WireModel):
    """One run over all cases."""

    run_id: int = 0
    overall_status: str = ""
    case_status_counts: StatusCounts | None = None
    metric_summaries: list[MetricSummary] = []


class MetricRunResult(WireModel):
    """One metric of one case in one run."""

    metric_name: str = ""
    score: float = 0.0
    eval_status: str = ""
    threshold: float = 0.0


class CaseRunSummary(WireModel):
    """One case in one run."""

    run_id: int = 0
    final_eval_status: str = ""
    error_message: str = ""
    metric_results: list[MetricRunResult] = []


class EvalCaseSummary(WireModel):
    """One case over all runs."""

    eval_id: str = ""
    overall_status: str = ""
    run_status_counts: StatusCounts | None = None
    metric_summaries: list[MetricSummary] = []
    run_summaries: list[CaseRunSummary] = []


class EvalSetResultSummary(WireModel):
    """The whole result at a glance."""

    overall_status: str = ""
    num_runs: int = 0
    run_status_counts: StatusCounts | None = None
    run_summaries: list[RunSummary] = []
    eval_case_summaries: list[EvalCaseSummary] = []


class EvalSetResult(WireModel):
    """The outcome of an eval set: the content of a result file."""

    eval_set_result_id: str = ""
    eval_set_result_name: str = ""
    eval_set_id: str = ""
    eval_case_results: list[EvalCaseResult] = []
    summary: EvalSetResultSummary | None = None
    creation_timestamp: Seconds = None
