"""Scoring runs: a set of metrics applied to files or to landed cases.

A metric's *digest* is the hash of the metric as written (without keys), of its evaluator's name and version,
and of the models that the environment names instead.  Scores with the same digest follow the same rule, so
whether a case revision already has a score depends on digests, not on runs.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, Literal, TypeAlias

from evaltap.evaluator.scoring.results.parquet import results_folder
from evaltap.evaluator.store.database import Store, utc_now
from evaltap.evaluator.store.errors import StoreError
from evaltap.evaluator.store.queries import Record, StoreReader
from evaltap.schemas.files import canonical
from evaltap.schemas.formats.metric import EvalMetric, without_key

RunKind: TypeAlias = Literal["files", "landed", "live", "gate"]
RunState: TypeAlias = Literal["ended", "running", "stopped", "not finished"]


@dataclass(frozen=True, slots=True)
class RunMetric:
    metric: EvalMetric
    evaluator_name: str
    evaluator_version: str
    digest: str
    references: str = ""
    """The digest of the references with which landed cases are compared."""


@dataclass(frozen=True, slots=True)
class Run:
    """A scoring run as stored in the tables."""

    run_id: str
    kind: RunKind
    source: str
    metrics: tuple[RunMetric, ...]


def run_metric(
    metric: EvalMetric,
    evaluator_name: str,
    evaluator_version: str,
    references: str = "",
    placeholders: str = "",
    models: Sequence[str] = (),
) -> RunMetric:
    """Return the metric with its digest.

    `references` is the digest of separate references, `placeholders` the rule for missing references, and
    `models` are those that the environment names.  All change what the metric measures, and so its digest.
    """
    compared = f"{references} placeholders" if placeholders == "peer" else references
    rule = (evaluator_name, evaluator_version, compared, *models)
    text = metric_json(metric) + "\x1f".join(rule).encode()
    digest = hashlib.sha256(text).hexdigest()[:16]
    return RunMetric(metric, evaluator_name, evaluator_version, digest, references)


def metric_json(metric: EvalMetric) -> bytes:
    """Return a metric's canonical JSON without API keys."""
    if metric.criterion is not None:
        metric = metric.model_copy(update={"criterion": without_key(metric.criterion)})
    return canonical.dumps(metric.model_dump(by_alias=True))


def new_run(kind: RunKind, source: str, metrics: Sequence[RunMetric]) -> Run:
    """Return a run with a new id; the id of a live run is derived from its metrics."""
    if kind == "live":
        named = hashlib.sha256("".join(metric.digest for metric in metrics).encode())
        run_id = f"live-{named.hexdigest()[:12]}"
    else:
        run_id = f"{utc_now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return Run(run_id, kind, source, tuple(metrics))


def start_run(store: Store, kind: RunKind, source: str, metrics: Sequence[RunMetric]) -> Run:
    """Start a run, or continue the live run of these metrics.

    A restarted consumer continues its live run.  Raises StoreError for a store that reads its results from
    Parquet files.
    """
    if (folder := results_folder(store)) is not None:
        raise StoreError(
            f"{store.path}: reads its results from Parquet files in {folder}; name another file"
        )
    run = new_run(kind, source, metrics)
    if not store.rows("SELECT 1 FROM runs WHERE run_id = ?", [run.run_id]):
        write_run(store, run)
    return run


def write_run(store: Store, run: Run) -> None:
    """Record a run and its metrics."""
    row = (run.run_id, run.kind, run.source, version("evaltap"), utc_now())
    with store.transaction():
        store.append("runs", [row])
        store.append(
            "run_metrics", [_metric_row(run.run_id, i, m) for i, m in enumerate(run.metrics)]
        )


def _metric_row(run_id: str, index: int, metric: RunMetric) -> tuple[object, ...]:
    return (
        run_id,
        index,
        metric.metric.metric_name,
        metric.evaluator_name,
        metric.evaluator_version,
        metric.metric.threshold,
        metric.digest,
        metric_json(metric.metric).decode(),
        metric.references or None,
    )


def end_run(store: Store, run: Run, case_count: int) -> None:
    """Record the end of a run and its number of cases."""
    with store.transaction():
        store.append("run_ends", [(run.run_id, case_count, utc_now())])


def listed_runs(store: StoreReader) -> list[Record]:
    """Return a row for each scoring run with its counts, oldest first."""
    return store.records(_RUNS)


def run_states(rows: Sequence[Mapping[str, Any]], *, landing: bool) -> list[RunState]:
    """Return the state of each row of `listed_runs`; `landing` means that a consumer has the store open.

    A live run never ends, since a restarted consumer continues it.  Of several live runs, the consumer's is
    the one that scored last.
    """
    live = [row for row in rows if row["kind"] == "live" and not row["ended_at"]]
    latest = max(live, key=lambda row: row["last_scored_at"] or row["started_at"], default=None)
    return [
        "ended"
        if row["ended_at"]
        else "not finished"
        if row["kind"] != "live"
        else "running"
        if landing and row is latest
        else "stopped"
        for row in rows
    ]


_RUNS: Final = """
SELECT r.run_id, r.kind, r.source, r.started_at::VARCHAR AS started_at,
       (SELECT max(e.ended_at) FROM run_ends e WHERE e.run_id = r.run_id)::VARCHAR AS ended_at,
       max(s.scored_at)::VARCHAR AS last_scored_at,
       count(DISTINCT (s.app_name, s.eval_set_id, s.eval_id)) FILTER (s.score_id IS NOT NULL) AS cases,
       count(*) FILTER (s.status = 'passed') AS passed,
       count(*) FILTER (s.status = 'failed') AS failed,
       count(*) FILTER (s.status = 'crashed') AS crashed,
       count(*) FILTER (s.status = 'not_evaluated') AS not_evaluated,
       count(*) FILTER (s.status = 'error') AS errors,
       (SELECT {'results': results, 'passed': g.passed, 'failed': g.failed, 'incomplete': incomplete}
        FROM v_gate g WHERE g.run_id = r.run_id) AS gate
FROM runs r LEFT JOIN (
  FROM scores ANTI JOIN mended_attempts USING (run_id, app_name, eval_set_id, eval_id, revision)
) s USING (run_id)
GROUP BY r.run_id, r.kind, r.source, r.started_at
ORDER BY r.started_at
"""
