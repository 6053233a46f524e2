"""The metrics of a scorer as stored with a run."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.embedder import EmbeddingsNotConfiguredError
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured
from evaltap.evaluator.scoring.evaluators.catalogue import reference_free
from evaltap.evaluator.scoring.judges.settings import embedding_models_of, judge_models_of
from evaltap.evaluator.scoring.results.runs import RunMetric, metric_json, run_metric
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.metric import EvalMetric


def run_metrics(
    scorer: CaseScorer, references: References | None = None, store: StoreReader | None = None
) -> list[RunMetric]:
    """Return the scorer's metrics with their digests; references are part of those that read them.

    A metric whose model is not configured here is its last version in the store.
    """
    versions = scorer.versions()
    found = []
    for metric in scorer.metrics:
        evaluator = metric.evaluator_name or metric.metric_name
        reads = references is not None and evaluator not in reference_free()
        digest = references.digest if references is not None and reads else ""
        rule = evaluator, versions[metric.metric_name], digest, scorer.placeholders
        try:
            made = run_metric(metric, *rule, [*_named(metric, scorer.services)])
        except (JudgeNotConfigured, EmbeddingsNotConfiguredError):
            made = run_metric(metric, *rule)
            if store is not None:
                made = replace(made, digest=_last_digest(store, made) or made.digest)
        found.append(made)
    return found


def _named(metric: EvalMetric, services: Services) -> Iterator[str]:
    """Yield the models that the environment names instead of the metric, with their places."""
    judges, embedders = judge_models_of(metric), embedding_models_of(metric)
    for provider, models in ((services.judge, judges), (services.embeddings, embedders)):
        if named := getattr(provider, "named", None):
            yield from (
                f"{place} {name}" for place, one in enumerate(models) if (name := named(one))
            )


def _last_digest(store: StoreReader, metric: RunMetric) -> str:
    """Return the digest under which a metric, as it is written, was scored last; empty if it was not."""
    written = {
        "text": metric_json(metric.metric).decode(),
        "evaluator": metric.evaluator_name,
        "version": metric.evaluator_version,
        "references": metric.references,
    }
    return next(iter(store.column(_LAST, written)), "")


_LAST: Final = """
SELECT metric_digest FROM scores SEMI JOIN (
  SELECT metric_digest FROM run_metrics
  WHERE metric_json = $text AND evaluator_name = $evaluator AND evaluator_version = $version
    AND coalesce(references_digest, '') = $references
) USING (metric_digest)
GROUP BY metric_digest ORDER BY max(scored_at) DESC LIMIT 1
"""
