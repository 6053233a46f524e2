"""The metrics of a scorer as stored with a run."""

from collections.abc import Iterator

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.evaluators.catalogue import reference_free
from evaltap.evaluator.scoring.judges.settings import embedding_models_of, judge_models_of
from evaltap.evaluator.scoring.results.runs import RunMetric, run_metric
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas.formats.metric import EvalMetric


def run_metrics(scorer: CaseScorer, references: References | None = None) -> list[RunMetric]:
    """Return the scorer's metrics with their digests; references are part of those that read them."""
    versions = scorer.versions()
    found = []
    for metric in scorer.metrics:
        evaluator = metric.evaluator_name or metric.metric_name
        reads = references is not None and evaluator not in reference_free()
        digest = references.digest if references is not None and reads else ""
        version = versions[metric.metric_name]
        models = [*_named(metric, scorer.services)]
        found.append(run_metric(metric, evaluator, version, digest, scorer.placeholders, models))
    return found


def _named(metric: EvalMetric, services: Services) -> Iterator[str]:
    """Yield the models that the environment names instead of the metric, with their places."""
    judges, embedders = judge_models_of(metric), embedding_models_of(metric)
    for provider, models in ((services.judge, judges), (services.embeddings, embedders)):
        if named := getattr(provider, "named", None):
            yield from (
                f"{place} {name}" for place, one in enumerate(models) if (name := named(one))
            )
