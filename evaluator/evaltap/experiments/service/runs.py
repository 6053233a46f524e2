"""Cases over several runs, as tRPC-Agent-Go's API returns them.

The stored summary (`results.result_file.summary`) counts by the number of runs; this counts the runs that a
case was in, and leaves out metrics that were never evaluated.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaltap.evaluator.scoring.contract.aggregation import mean
from evaltap.evaluator.scoring.results.result_file import (
    FAILED,
    NOT_EVALUATED,
    PASSED,
    overall_status,
)
from evaltap.schemas.formats.result import EvalCaseResult, EvalMetricResult


@dataclass(frozen=True, slots=True)
class CaseOverRuns:
    """One case over all runs."""

    eval_id: str
    overall_status: str
    eval_case_results: Sequence[EvalCaseResult]
    """One for each run, in order."""
    metric_results: Sequence[EvalMetricResult]
    """The means over the runs that evaluated the metric, by name."""
    run_details: Sequence["RunDetails"] = field(default=())
    """What the agent did, if asked for."""

    def data(self) -> dict[str, Any]:
        """Return the case as tRPC-Agent-Go writes it."""
        return {
            "evalId": self.eval_id,
            "overallStatus": self.overall_status,
            "evalCaseResults": [one.model_dump(by_alias=True) for one in self.eval_case_results],
            "metricResults": [one.model_dump(by_alias=True) for one in self.metric_results],
        } | ({"runDetails": [one.data() for one in self.run_details]} if self.run_details else {})


@dataclass(frozen=True, slots=True)
class RunDetails:
    """What the agent did for a case in one run."""

    run_id: int
    inference: dict[str, Any]
    """`sessionId`, `userId`, `status`, `errorMessage`, `inferences`, `executionTraces`."""

    def data(self) -> dict[str, Any]:
        """Return the details as tRPC-Agent-Go writes them."""
        kept = {name: value for name, value in self.inference.items() if value}
        return {"runId": self.run_id, "inference": kept}


def cases_over_runs(
    results: Iterable[EvalCaseResult], order: Sequence[str] = ()
) -> list[CaseOverRuns]:
    """Return the cases in the order of the set, unknown ones after them by name.

    Raises InputError for a status that no run may have.
    """
    by_case: defaultdict[str, list[EvalCaseResult]] = defaultdict(list)
    for result in results:
        by_case[result.eval_id].append(result)
    places = {eval_id: place for place, eval_id in enumerate(order)}
    ids = sorted(by_case, key=lambda one: (places.get(one, len(places)), one))
    return [_over_runs(one, by_case[one]) for one in ids]


def set_status(cases: Iterable[CaseOverRuns]) -> str:
    """Return the status of the whole set."""
    return overall_status(one.overall_status for one in cases)


def _over_runs(eval_id: str, runs: list[EvalCaseResult]) -> CaseOverRuns:
    rows: defaultdict[str, list[EvalMetricResult]] = defaultdict(list)
    for run in runs:
        for row in run.overall_eval_metric_results:
            if row.eval_status != NOT_EVALUATED:
                rows[row.metric_name].append(row)
    metrics = [_mean(name, rows[name]) for name in sorted(rows)]
    statuses = [run.final_eval_status for run in runs]
    if len(runs) > 1:
        statuses = [metric.eval_status for metric in metrics]
    status = overall_status(statuses)
    if status == NOT_EVALUATED and any(run.error_message for run in runs):
        status = FAILED
    return CaseOverRuns(eval_id, status, runs, metrics)


def _mean(name: str, rows: Sequence[EvalMetricResult]) -> EvalMetricResult:
    score, threshold = mean([row.score or 0.0 for row in rows]), rows[0].threshold
    return EvalMetricResult(
        metric_name=name,
        score=score,
        eval_status=PASSED if score >= threshold else FAILED,
        threshold=threshold,
        criterion=rows[-1].criterion,
    )
