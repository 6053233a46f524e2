"""Write the result file of an experiment: one file for all runs, as tRPC-Agent-Go has it."""

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.ingest.landing.cases import DocumentReader, assembled
from evaltap.evaluator.scoring.contract.context import Status, TurnScore
from evaltap.evaluator.scoring.evaluate import case_result
from evaltap.evaluator.scoring.results.result_file import FAILED, eval_set_result, result_path
from evaltap.evaluator.scoring.scorer import AppliedMetric, CaseScore, MetricOutcome
from evaltap.evaluator.store.database import Store, sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.running import Finished
from evaltap.experiments.units import NAMED, UnitRow, named, units_in_order
from evaltap.schemas.files.documents import write_document
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.result import EvalCaseResult

LANDED: Final = "evaltap.evaluator.ingest.landing.cases"


def write_result(target: Path, store: Store, finished: Finished) -> Path:
    """Write the runs that have ended to a file, or into a folder under their own name; return the path.

    A run that is invalid or has not been made is left out.
    """
    cases = finished.plan.cases
    units = [
        row for row in units_in_order(store, finished.plan) if row.state in ("scored", "crashed")
    ]
    landed = recorded_units(store, units)
    scores = _scores(store, units)
    references = cases.references()
    results = []
    for row in units:
        case = landed.get(row.key)
        if case is None or not scores[row.key]:
            results.append(
                EvalCaseResult(
                    eval_set_id=cases.name,
                    eval_id=row.eval_id,
                    run_id=row.trial,
                    final_eval_status=FAILED,
                    error_message=row.reason or "the run was not recorded",
                )
            )
            continue
        references.attach(case)
        made = case_result(
            case, _score(row, scores[row.key]), eval_set_id=cases.name, run_id=row.trial
        )
        told = {"session_id": f"{row.eval_set_id}/{row.eval_id}", "ended_by": row.ended_by or ""}
        results.append(made.model_copy(update=told))
    app_name = next((row.app_name for row in units if row.app_name), "")
    result = eval_set_result(
        cases.name, results, app_name=app_name, created_at=time.time(), num_runs=finished.plan.runs
    )
    path = result_path(target, result, app_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_document(path, result)
    return path


def _score(row: UnitRow, metrics: list[MetricOutcome]) -> CaseScore:
    statuses = {one.status for one in metrics}
    status = next(
        (
            one
            for one in (Status.CRASHED, Status.FAILED, Status.ERROR, Status.PASSED)
            if one in statuses
        ),
        Status.NOT_EVALUATED,
    )
    failed = status in (Status.CRASHED, Status.FAILED, Status.ERROR)
    return CaseScore(
        row.eval_id,
        status,
        0.0 if failed else 1.0 if status is Status.PASSED else None,
        row.reason or "",
        tuple(metrics),
    )


def recorded_units(store: StoreReader, units: Iterable[UnitRow]) -> dict[CaseKey, dict[str, Any]]:
    """Return the cases that units landed in, with their turns."""
    query = f"SELECT * FROM ({sql(LANDED, 'landed_cases')}) WHERE {NAMED}"
    rows = store.rows(query, named(row.key for row in units))
    return {key: dict(case) for key, case in assembled(DocumentReader(store), rows)}


def _scores(store: StoreReader, units: list[UnitRow]) -> dict[CaseKey, list[MetricOutcome]]:
    given = named(row.key for row in units)
    turns: defaultdict[tuple[str, ...], list[TurnScore]] = defaultdict(list)
    for app, eval_set, eval_id, digest, status, score, reason in store.rows(_TURNS, given):
        turns[app, eval_set, eval_id, digest].append(TurnScore(Status(status), score, reason or ""))
    found: dict[CaseKey, list[MetricOutcome]] = {row.key: [] for row in units}
    for app, eval_set, eval_id, digest, status, score, reason, version, written in store.rows(
        _SCORES, given
    ):
        metric = EvalMetric.model_validate_json(written)
        outcome = MetricOutcome(
            status=Status(status),
            score=score,
            reason=reason or "",
            turns=tuple(turns[app, eval_set, eval_id, digest]),
            applied=AppliedMetric(metric, metric.metric_name, metric.threshold or 0.0, version),
        )
        found[app, eval_set, eval_id].append(outcome)
    return found


_TURNS: Final = f"""
SELECT app_name, eval_set_id, eval_id, metric_digest, status, score, reason FROM latest_turn_scores
WHERE {NAMED} ORDER BY turn_index
"""
_SCORES: Final = f"""
SELECT s.app_name, s.eval_set_id, s.eval_id, s.metric_digest, s.status, s.score, s.reason,
       s.evaluator_version, m.metric_json
FROM latest_scores s
JOIN (
  SELECT metric_digest, min(metric_index) AS place, any_value(metric_json) AS metric_json
  FROM run_metrics GROUP BY ALL
) m USING (metric_digest)
WHERE {NAMED} ORDER BY m.place
"""
