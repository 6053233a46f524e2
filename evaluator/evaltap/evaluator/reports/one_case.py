"""Read one case with all its data: its latest scores, its turns, and what was expected."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.reports.details import JudgeCalls, with_details
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.model import CaseReport, Limits
from evaltap.evaluator.reports.reader import expected_data, scored_cases
from evaltap.evaluator.reports.scope import ReportedScores, these_cases
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.metric import EvalMetric

_LATEST: Final = """
SELECT * FROM scores
WHERE app_name = $app AND eval_set_id = $eval_set AND eval_id = $eval_id
  AND ($run::VARCHAR = '' OR run_id = $run)
QUALIFY row_number() OVER (PARTITION BY metric_name ORDER BY revision DESC, scored_at DESC) = 1
"""

_METRICS: Final = """
SELECT metric_name, metric_json FROM run_metrics
WHERE metric_digest IN (SELECT metric_digest FROM {scores})
GROUP BY ALL ORDER BY min(metric_index), metric_json
"""


def read_case(
    store: StoreReader,
    key: CaseKey,
    *,
    run_id: str = "",
    metric: str = "",
    references: References | None = None,
    limits: Limits | None = None,
) -> CaseReport:
    """Read a case with its latest scores, or those of one run; without cells if it has none.

    Tool calls are compared as in `metric`, or in the first trajectory metric.  A case that was scored from a
    file has no evidence, which its note explains.  `references` are expected turns for landed cases, as given
    for scoring.
    """
    limits = limits or Limits()
    app, eval_set, eval_id = key
    asked = {"app": app, "eval_set": eval_set, "eval_id": eval_id, "run": run_id}
    with (
        store.scratch(_LATEST, asked) as scores,
        these_cases(store, [key]) as cases,
    ):
        found = ReportedScores(store, scores, cases)
        scored = scored_cases(found, limits)
        one = scored[0] if scored else CaseReport(*key, 0, "not_evaluated", ())
        calls = JudgeCalls(found, {key}, limits)
        (one,) = with_details(found, [one], calls, limits)
        data = dict(expected_data(found, references)).get(key)
        metrics = _metrics(found, metric)
    if data is None:
        return replace(
            one,
            evidence_note="its turns are not in this file, because it was scored from a case file",
        )
    evidence, note = evidence_of(data, Comparison(metrics), limits)
    return replace(one, evidence=evidence, evidence_note=note)


def _metrics(scored: ReportedScores, first: str) -> Sequence[EvalMetric]:
    rows = sorted(scored.rows(_METRICS), key=lambda row: row[0] != first)
    return [EvalMetric.model_validate_json(text) for _, text in rows]
