"""The metrics of a scorer as stored with a run."""

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.scoring.evaluators.catalogue import reference_free
from evaltap.evaluator.scoring.results.runs import RunMetric, run_metric
from evaltap.evaluator.scoring.scorer import CaseScorer


def run_metrics(scorer: CaseScorer, references: References | None = None) -> list[RunMetric]:
    """Return the scorer's metrics with their digests; references are part of those that read them."""
    versions = scorer.versions()
    found = []
    for metric in scorer.metrics:
        evaluator = metric.evaluator_name or metric.metric_name
        reads = references is not None and evaluator not in reference_free()
        digest = references.digest if references is not None and reads else ""
        version = versions[metric.metric_name]
        found.append(run_metric(metric, evaluator, version, digest, scorer.placeholders))
    return found
