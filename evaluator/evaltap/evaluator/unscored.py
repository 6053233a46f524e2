"""Why a case has no score: looked up in the store, and in the log that it should have come from."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evaltap.evaluator.dead_letters import letters
from evaltap.evaluator.store import Store
from evaltap.schemas.local_log import open_log
from evaltap.schemas.record import MANIFEST_TYPE

RECORDS_PER_READ = 500
SHOWN_LETTERS = 5


@dataclass(frozen=True, slots=True)
class MetricAnswer:
    """How a case stands under one metric: a status of scores, or `pending`."""

    metric_name: str
    status: str
    reason: str


@dataclass(slots=True)
class Answer:
    """What is known of a case; `notes` say where it was looked for, when it did not land."""

    case: str
    landed: bool = False
    metrics: list[MetricAnswer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether the case has a verdict under every metric that was ever applied here."""
        return bool(self.metrics) and all(
            metric.status in ("passed", "failed") for metric in self.metrics
        )


def why(store: Store, case: str, log: Path | None = None) -> Answer:
    """Return how a case stands; `case` is its eval id, or eval set id and eval id with a slash."""
    answer = Answer(case)
    key = {"case": case}
    answer.landed = bool(store.rows(f"SELECT 1 FROM cases WHERE {IS_CASE} LIMIT 1", key))
    answer.metrics = [MetricAnswer(*row) for row in store.rows(_STANDING, key)]
    if answer.landed or any(one.status != "pending" for one in answer.metrics):
        if not answer.metrics:
            answer.notes.append(
                "it has landed, and no run has scored anything here: evaltap score "
                f"{store.path} --metrics M.json"
            )
        return answer
    answer.metrics = []
    answer.notes.append("it has not landed in this file, and no file with it was scored into it")
    answer.notes.extend(_dead(store, case))
    if log is not None:
        answer.notes.append(_on_log(log, case))
    answer.notes.extend(_left_out(store))
    return answer


IS_CASE = "(eval_id = $case OR eval_set_id || '/' || eval_id = $case)"
"""How a user names a case in SQL: by its eval id, or with its eval set before it."""

# The latest version of each metric that was applied here, and the score of the case's latest revision.
_STANDING = f"""
WITH metrics AS (
  SELECT m.metric_name, m.metric_digest, r.kind
  FROM run_metrics m JOIN runs r USING (run_id)
  QUALIFY row_number() OVER (PARTITION BY m.metric_name ORDER BY r.started_at DESC) = 1
),
latest AS (
  SELECT max(revision) AS revision FROM (
    SELECT revision FROM cases WHERE {IS_CASE} UNION ALL SELECT revision FROM scores WHERE {IS_CASE}
  )
)
SELECT m.metric_name,
       coalesce(s.status, 'pending'),
       CASE
         WHEN s.status IS NOT NULL THEN coalesce(s.reason, '')
         WHEN job.asked_at IS NOT NULL
           THEN 'waiting for a worker since ' || strftime(job.asked_at, '%Y-%m-%d %H:%M:%S') || ' UTC'
                || coalesce('; ' || job.worker || ' refused: ' || job.refusal, '')
         WHEN older.revision IS NOT NULL
           THEN 'scored up to revision ' || older.revision || ', and revision '
                || (SELECT revision FROM latest) || ' has landed since'
         ELSE 'not scored since it landed, or scored under another version of the metric only'
       END
FROM metrics m
LEFT JOIN (
  SELECT * FROM scores WHERE {IS_CASE} AND revision = (SELECT revision FROM latest)
  QUALIFY row_number() OVER (PARTITION BY metric_digest ORDER BY scored_at DESC) = 1
) s USING (metric_digest)
LEFT JOIN (
  SELECT unnest(metric_digests) AS metric_digest, asked_at, r.worker, r.reason AS refusal
  FROM jobs LEFT JOIN job_refusals r USING (job_id, attempt)
  WHERE {IS_CASE} AND revision = (SELECT revision FROM latest)
  QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY asked_at DESC) = 1
) job USING (metric_digest)
LEFT JOIN (
  SELECT metric_digest, max(revision) AS revision FROM scores WHERE {IS_CASE} GROUP BY ALL
) older USING (metric_digest)
ORDER BY m.metric_name
"""

_LEFT_OUT = """
SELECT dropped.key, sum(dropped.value::BIGINT) FROM (
  SELECT drops FROM manifests
  QUALIFY row_number() OVER (PARTITION BY producer_id ORDER BY stated_at DESC) = 1
), json_each(drops) AS dropped
GROUP BY dropped.key ORDER BY dropped.key
"""


def _dead(store: Store, case: str) -> Iterator[str]:
    """Yield the first dead letters that name the case, by their key or in what they hold."""
    found, after = 0, 0
    named = f'"{case}"'.encode()
    while found < SHOWN_LETTERS and (batch := letters(store, after=after)):
        for letter in batch:
            key = (letter.key or b"").decode("utf-8", "replace")
            if key == case or key.endswith(f"/{case}") or named in (letter.value or b""):
                found += 1
                yield f"dead letter {letter.number} ({letter.reason}) names it: {letter.detail}"
        after = batch[-1].number


def _left_out(store: Store) -> Iterator[str]:
    for reason, count in store.rows(_LEFT_OUT):
        what = "sampling left out" if _is_sampling(reason) else "the recorder dropped"
        yield f"{what} {count:,} turns as {reason}; which ones is not kept"


def _is_sampling(reason: str) -> bool:
    return reason.startswith("sampled_out") or reason == "rate_limited"


def _on_log(path: Path, case: str) -> str:
    log = open_log(path, mode="read")
    try:
        offset = log.start_offset()
        while batch := log.read(offset, RECORDS_PER_READ):
            for number, record in batch:
                key = (record.key or b"").decode("utf-8", "replace")
                named = key == case or key.endswith(f"/{case}")
                if named and record.header("ce_type") != MANIFEST_TYPE:
                    return f"{path} holds it at offset {number}: evaltap consume lands it"
            offset = batch[-1][0] + 1
    finally:
        log.close()
    return f"{path} does not hold it"
