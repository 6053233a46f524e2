"""Results of an eval set over one or more runs: the content of an `.evalset_result.json` file.

The semantics are tRPC-Agent-Go's.  With one run, a case has that run's final status; with several, the status
of its metric averages.  Averages leave out what was not evaluated.
"""

import hashlib
import re
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.scoring.contract.aggregation import mean
from evaltap.evaluator.scoring.evaluate import case_result
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import write_document
from evaltap.schemas.formats.result import (
    CaseRunSummary,
    EvalCaseResult,
    EvalCaseSummary,
    EvalMetricResult,
    EvalSetResult,
    EvalSetResultSummary,
    MetricRunResult,
    MetricSummary,
    RunSummary,
    StatusCounts,
)

LONGEST_NAME: Final = 240
"""Bytes of a file name; most file systems take 255."""
_UNSAFE: Final = re.compile(r"[/\\%\x00-\x1f\x7f\ud800-\udfff]|^\.+|^~")

PASSED, FAILED, NOT_EVALUATED = "passed", "failed", "not_evaluated"


def eval_set_result(
    eval_set_id: str,
    case_results: Sequence[EvalCaseResult],
    *,
    app_name: str = "",
    created_at: float,
    num_runs: int = 1,
) -> EvalSetResult:
    """Return the result of an eval set; `created_at` is in Unix seconds.

    Raises InputError without an eval set id, and as `summary` does.
    """
    if not eval_set_id:
        raise InputError("a result needs the id of its eval set; add `evalSetId` to the file")
    result_id = f"{app_name or 'evaltap'}_{eval_set_id}_{uuid.uuid4()}"
    return EvalSetResult(
        eval_set_result_id=result_id,
        eval_set_result_name=result_id,
        eval_set_id=eval_set_id,
        eval_case_results=list(case_results),
        summary=summary(case_results, num_runs),
        creation_timestamp=created_at,
    )


def result_path(target: Path, result: EvalSetResult, app_name: str) -> Path:
    """Return the path of a result: `target` itself, or its default place if `target` is a folder."""
    if target.suffix == ".json":
        return target
    name = f"{result.eval_set_result_id}.evalset_result.json"
    return (
        target / one_segment(app_name) / one_segment(name)
        if app_name
        else target / one_segment(name)
    )


def one_segment(name: str) -> str:
    """Return any name as a single, safe segment of a path: names in cases are untrusted.

    Characters that could leave the folder or are invalid in file names are percent-encoded.  A long name is
    cut in the middle, with a digest that keeps it unique.
    """
    quoted = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in _utf8(found[0])), name)
    if len(_utf8(quoted)) <= LONGEST_NAME:
        return quoted
    digest = hashlib.sha256(_utf8(name)).hexdigest()[:16]
    kept = _utf8(quoted)[:100].decode(errors="ignore")
    return f"{kept}~{digest}~{_utf8(quoted)[-80:].decode(errors='ignore')}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def summary(case_results: Iterable[EvalCaseResult | None], num_runs: int) -> EvalSetResultSummary:
    """Summarise the results of all cases in all runs.

    `num_runs` is the expected number of runs, 0 when unknown.  Raises InputError for a negative
    number, a result without a run id, and an unknown status.
    """
    if num_runs < 0:
        raise InputError(f"expected num runs is negative ({num_runs}); give 1 or more")
    results = [result for result in case_results if result is not None]
    for index, result in enumerate(results):
        if result.run_id <= 0:
            raise InputError(f"run id at index {index} is not set; runs count from 1")
    by_run: defaultdict[int, list[EvalCaseResult]] = defaultdict(list)
    by_case: defaultdict[str, list[EvalCaseResult]] = defaultdict(list)
    for result in results:
        by_run[result.run_id].append(result)
        by_case[result.eval_id].append(result)
    count = num_runs or max(by_run, default=1)
    runs = [_run_summary(number, by_run[number]) for number in range(1, count + 1)]
    cases = [_case_summary(name, found, count) for name, found in sorted(by_case.items())]
    return EvalSetResultSummary(
        overall_status=overall_status(case.overall_status for case in cases),
        num_runs=count,
        run_status_counts=_counts(run.overall_status for run in runs),
        run_summaries=runs,
        eval_case_summaries=cases,
    )


def overall_status(statuses: Iterable[str]) -> str:
    """Return failed if any failed, else passed if any passed, else not_evaluated."""
    found = set(statuses)
    for status in found - {PASSED, FAILED, NOT_EVALUATED}:
        raise InputError(
            f"status {status!r} cannot be summarised; expected passed, failed or not_evaluated"
        )
    return next((status for status in (FAILED, PASSED) if status in found), NOT_EVALUATED)


def _run_summary(run_id: int, results: Sequence[EvalCaseResult]) -> RunSummary:
    return RunSummary(
        run_id=run_id,
        overall_status=overall_status(result.final_eval_status for result in results),
        case_status_counts=_counts(result.final_eval_status for result in results),
        metric_summaries=_metric_summaries(_rows(results)),
    )


def _case_summary(
    eval_id: str, results: Sequence[EvalCaseResult], num_runs: int
) -> EvalCaseSummary:
    metrics = _metric_summaries(_rows(results))
    return EvalCaseSummary(
        eval_id=eval_id,
        overall_status=_case_status(results, metrics, num_runs),
        run_status_counts=_counts(result.final_eval_status for result in results),
        metric_summaries=metrics,
        run_summaries=[_case_run(result) for result in sorted(results, key=lambda r: r.run_id)],
    )


def _case_status(
    results: Sequence[EvalCaseResult], metrics: Sequence[MetricSummary], num_runs: int
) -> str:
    if num_runs == 1:
        return overall_status(result.final_eval_status for result in results)
    status = overall_status(metric.eval_status for metric in metrics)
    if status == NOT_EVALUATED and any(result.error_message for result in results):
        return FAILED
    return status


def _case_run(result: EvalCaseResult) -> CaseRunSummary:
    return CaseRunSummary(
        run_id=result.run_id,
        final_eval_status=result.final_eval_status,
        error_message=result.error_message,
        metric_results=[
            MetricRunResult(
                metric_name=row.metric_name,
                score=row.score or 0.0,
                eval_status=row.eval_status,
                threshold=row.threshold,
            )
            for row in sorted(result.overall_eval_metric_results, key=lambda r: r.metric_name)
        ],
    )


@dataclass(slots=True)
class _Average:
    """The scores and statuses of a metric over several rows, with the threshold of the first."""

    threshold: float
    scores: list[float] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)


def _rows(results: Iterable[EvalCaseResult]) -> list[EvalMetricResult]:
    return [row for result in results for row in result.overall_eval_metric_results]


def _metric_summaries(rows: Iterable[EvalMetricResult]) -> list[MetricSummary]:
    averages: dict[str, _Average] = {}
    for row in rows:
        average = averages.setdefault(row.metric_name, _Average(row.threshold))
        average.statuses.append(row.eval_status)
        if row.eval_status != NOT_EVALUATED:
            average.scores.append(row.score or 0.0)
    return [_metric_summary(name, averages[name]) for name in sorted(averages)]


def _metric_summary(name: str, average: _Average) -> MetricSummary:
    overall_status(average.statuses)
    score = mean(average.scores) if average.scores else 0.0
    status = PASSED if score >= average.threshold else FAILED
    return MetricSummary(
        metric_name=name,
        average_score=score,
        eval_status=status if average.scores else NOT_EVALUATED,
        threshold=average.threshold,
        status_counts=_counts(average.statuses),
    )


def _counts(statuses: Iterable[str]) -> StatusCounts | None:
    """Return the counts; None if there is nothing to count, as the format omits them then."""
    counted: Mapping[str, int] = Counter(statuses)
    overall_status(counted)
    if not counted:
        return None
    return StatusCounts(
        passed=counted.get(PASSED, 0),
        failed=counted.get(FAILED, 0),
        not_evaluated=counted.get(NOT_EVALUATED, 0),
    )


_TRIAL: Final = re.compile(r"@(trial-\d+)$")
"""The end of a set's name that tells occurrences of its cases apart (`cases.datasets.trials`)."""


class KeptResults:
    """Keeps the result of every case, by eval set and run, for the result files."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], dict[str, list[EvalCaseResult]]] = {}

    def add(self, identity: CaseIdentity, case: CaseData, score: CaseScore) -> None:
        """Keep the result of a case; its repeats are runs of one eval set."""
        name = identity.eval_set_id
        trial = _TRIAL.search(name)
        run = trial[1] if trial else (case.get("source") or {}).get("run") or ""
        name = name.removesuffix(f"@{run}") if run else name
        result = case_result(case, score, eval_set_id=name, run_id=1)
        runs = self._results.setdefault((identity.app_name, name), {})
        runs.setdefault(run, []).append(result)

    def write(self, target: Path) -> None:
        """Write the results of one eval set to a file, or those of several into a folder."""
        if target.suffix == ".json" and len(self._results) > 1:
            raise InputError(
                f"--result {target}: the cases belong to {len(self._results)} eval sets; expected a folder"
            )
        for (app_name, eval_set_id), runs in self._results.items():
            results = [
                result.model_copy(update={"run_id": number})
                for number, run in enumerate(sorted(runs, key=_natural), start=1)
                for result in runs[run]
            ]
            result = eval_set_result(
                eval_set_id, results, app_name=app_name, created_at=time.time(), num_runs=len(runs)
            )
            write_document(result_path(target, result, app_name), result)


def _natural(run: str) -> list[tuple[int, str]]:
    """Return the sort key of a run's name: numbers in it count as such."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", run)]
