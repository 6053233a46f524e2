"""The metrics of a scorer as stored with a run."""

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.scoring.results.runs import RunMetric, run_metric
from evaltap.evaluator.scoring.scorer import CaseScorer


def run_metrics(scorer: CaseScorer, references: References | None = None) -> list[RunMetric]:
    """Return the scorer's metrics with their digests."""
    versions = scorer.versions()
    return [
        run_metric(
            metric,
            metric.evaluator_name or metric.metric_name,
            versions[metric.metric_name],
            references.digest if references else "",
            scorer.placeholders,
        )
        for metric in scorer.metrics
    ]
