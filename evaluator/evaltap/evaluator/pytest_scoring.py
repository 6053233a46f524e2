"""Scoring for the pytest plugin, which imports this module when the first test needs it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.reports.from_score import case_report
from evaltap.evaluator.reports.model import CaseReport
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.text import case_lines
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.given import read_given
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import EvaltapError, InputError
from evaltap.schemas.files.content import eval_set_name
from evaltap.schemas.files.documents import case_data, iter_cases
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric

_SCORERS = pytest.StashKey[dict[str, CaseScorer]]()


def read_cases(path: Path) -> list[CaseData]:
    """Return the cases of a file; raise an EvaltapError if it holds none."""
    name = eval_set_name(path)
    return [{"evalSetId": name, **case} for case in iter_cases(path)]


def score_case(
    node: pytest.Item, case: EvalCase | CaseData, settings: Mapping[str, Any]
) -> CaseReport:
    """Return the scores of a case by the metrics of a test; a user's mistake fails the test."""
    try:
        data = case_data(case if isinstance(case, Mapping) else case.model_dump(by_alias=True))
        scorer = _scorer(node, settings)
    except EvaltapError as error:
        raise pytest.fail.Exception(f"evaltap: {error}", pytrace=False) from None
    return case_report(data, scorer.score(data))


def explanation(report: CaseReport) -> str:
    """Return the details of a case that did not pass."""
    return visible("\n".join(case_lines(report)))


def _scorer(node: pytest.Item, settings: Mapping[str, Any]) -> CaseScorer:
    """Return the scorer of some metrics; one for all tests that have the same."""
    metrics, registry = _metrics(node, settings)
    services = settings.get("services")
    if services is not None or registry is not None:
        return CaseScorer(metrics, services=services, registry=registry)
    scorers = node.config.stash.setdefault(_SCORERS, {})
    key = "\n".join(metric.model_dump_json(by_alias=True) for metric in metrics)
    if key not in scorers:
        scorers[key] = CaseScorer(metrics)
    return scorers[key]


def _metrics(
    node: pytest.Item, settings: Mapping[str, Any]
) -> tuple[list[EvalMetric], Registry | None]:
    if not (given := settings.get("metrics")):
        raise InputError("no metrics; name a metrics file or a list of metrics")
    metrics, registry = read_given(
        node.path.parent / given if isinstance(given, str | Path) else given
    )
    thresholds = dict(settings.get("thresholds") or {})
    if unknown := sorted(set(thresholds) - {metric.metric_name for metric in metrics}):
        names = ", ".join(metric.metric_name for metric in metrics)
        raise InputError(f"threshold of {unknown[0]!r}: no metric has this name; metrics: {names}")
    return [
        metric.model_copy(
            update={"threshold": thresholds.get(metric.metric_name, metric.threshold)}
        )
        for metric in metrics
    ], registry
