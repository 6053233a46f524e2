"""The reliability of judges: their verdicts compared with reviewers', their cost, and their failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.analysis.estimates.labels import Label, reviewed_labels
from evaltap.evaluator.curation.calibration.verdicts import Calibrated, calibrate_metric
from evaltap.evaluator.page.request import PageAnswer, PageRequest, case_link
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.evaluator.store.queries import Record, StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.metric import EvalMetric

SHOWN: Final = 50
"""Disagreements of a metric; `evaltap calibrate --json` lists all."""
_METRICS: Final = """
SELECT metric_name, evaluator_name, evaluator_version, metric_digest, metric_json
FROM run_metrics JOIN runs USING (run_id)
WHERE metric_name IN (SELECT DISTINCT metric_name FROM judge_calls)
QUALIFY row_number() OVER (PARTITION BY metric_name ORDER BY started_at DESC, run_id DESC) = 1
ORDER BY metric_name
"""
_JUDGED: Final = """
SELECT DISTINCT eval_set_id, eval_id, invocation_id FROM latest_turn_scores WHERE metric_digest = $digest
"""
_USE: Final = "FROM v_judge_cost"
_AGREEMENT: Final = "FROM v_judge_agreement"
_ERRORS: Final = """
SELECT reason, count(*) AS calls, max(scored_at) AS last_at, arg_max(eval_set_id, scored_at) AS eval_set_id,
       arg_max(eval_id, scored_at) AS eval_id, arg_max(app_name, scored_at) AS app_name
FROM judge_calls WHERE status = 'error' GROUP BY reason ORDER BY calls DESC LIMIT 10
"""
_CASES: Final = """
SELECT eval_set_id, eval_id, min(app_name), arg_min(opening, app_name)
FROM latest_cases LEFT JOIN case_index USING (app_name, eval_set_id, eval_id)
WHERE eval_id IN $ids GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A verdict of a judge that differs from people's."""

    eval_id: str
    rubric_id: str
    judge_passes: bool
    href: str
    opening: str
    """The beginning of the user's first message."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A metric with a judge."""

    metric_name: str
    calibrated: tuple[Calibrated, ...]
    """By level; empty if none of its verdicts is labelled."""
    problem: str
    disagreements: tuple[Disagreement, ...]
    """False passes first."""
    use: tuple[Record, ...]
    """By judge and model: calls, errors, cost."""
    samples: Record | None
    """How often the samples of a turn agree, if turns have several."""


@dataclass(frozen=True, slots=True)
class JudgesPage:
    judges: tuple[Judge, ...]
    errors: tuple[Record, ...]
    """Why judges returned no verdict, the most frequent first, with the last case and its link."""


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read the statistics of each judge."""
    labels = reviewed_labels(reader)
    use, samples = reader.records(_USE), reader.records(_AGREEMENT)
    judges = []
    for name, evaluator, version, digest, text in reader.rows(_METRICS):
        metric = RunMetric(EvalMetric.model_validate_json(text), evaluator, version, digest)
        judged = set(reader.rows(_JUDGED, {"digest": digest}))
        keys = ((one, one.key) for one in labels)
        known = [
            one for one, key in keys if (key.eval_set_id, key.eval_id, key.invocation_id) in judged
        ]
        calibrated: Sequence[Calibrated] = ()
        problem = ""
        try:
            calibrated = calibrate_metric(reader, metric, known) if known else ()
        except InputError as error:
            problem = str(error)
        judge = Judge(
            name,
            tuple(calibrated),
            problem,
            _disagreements(reader, calibrated, known),
            tuple(one for one in use if one["metric_name"] == name),
            next((one for one in samples if one["metric_name"] == name), None),
        )
        judges.append(judge)
    errors = tuple(
        {**row, "href": case_link((row["app_name"], row["eval_set_id"], row["eval_id"]))}
        for row in reader.records(_ERRORS)
    )
    return PageAnswer("judges.html.j2", "Judges", JudgesPage(tuple(judges), errors))


def _disagreements(
    reader: StoreReader, calibrated: Sequence[Calibrated], labels: Sequence[Label]
) -> tuple[Disagreement, ...]:
    found = [one for level in calibrated for one in level.disagreements]
    sets = {(one.key.eval_id, one.key.invocation_id): one.key.eval_set_id for one in labels}
    ids = sorted({eval_id for eval_id, *_ in found})
    cases = {(name, one): found for name, one, *found in reader.rows(_CASES, {"ids": ids})}
    made = []
    for eval_id, turn, rubric, passes in sorted(found, key=lambda one: not one[3])[:SHOWN]:
        name = sets.get((eval_id, turn), "")
        app, opening = cases.get((name, eval_id), ("", ""))
        href = case_link((app, name, eval_id))
        made.append(Disagreement(eval_id, rubric, passes, href, opening or ""))
    return tuple(made)
