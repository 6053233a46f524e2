"""The jobs that workers were asked for and have not answered: at most one for a case at a time.

One at a time, because the next revision of a session is cheaper once its turns are judged: the job then
carries what is known.  A newer revision is asked for when the older one is answered, or given up.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from evaltap.evaluator.pending import OLDEST, Begin, CaseKey
from evaltap.evaluator.runs import Run
from evaltap.evaluator.store import Store
from evaltap.evaluator.topics import Place
from evaltap.schemas.job import CaseRevision, Job


@dataclass(slots=True)
class Asked:
    """A job that lies on the topic, or that a worker has."""

    job_id: str
    of: CaseRevision
    indexes: tuple[int, ...]
    attempt: int
    place: Place
    asked_at: datetime
    begin: Begin = OLDEST
    refusal: str = ""
    """Why the worker that had it could not do it."""


class AskedJobs:
    """Outstanding jobs of a run, remembered in the store."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self._digests = [metric.digest for metric in run.metrics]
        self._by_case: dict[CaseKey, Asked] = {}

    def __len__(self) -> int:
        return len(self._by_case)

    def __contains__(self, key: CaseKey) -> bool:
        return key in self._by_case

    def __iter__(self) -> Iterator[Asked]:
        return iter(self._by_case.values())

    def get(self, key: CaseKey) -> Asked | None:
        """Return what was asked of a case."""
        return self._by_case.get(key)

    def restore(self) -> None:
        """Load what was asked and not answered before this process."""
        index = {digest: number for number, digest in enumerate(self._digests)}
        for row in self._store.rows(_UNANSWERED, {"run_id": self._run.run_id}):
            job_id, app, eval_set, eval_id, revision, digests, attempt, *place, asked_at, why = row
            of = CaseRevision(app, eval_set, eval_id, revision)
            indexes = tuple(sorted(index[digest] for digest in digests))
            self._by_case[of.key] = Asked(
                job_id, of, indexes, attempt, Place(*place), asked_at, refusal=why or ""
            )

    def note(self, asked: Sequence[tuple[Job, Place, Begin]]) -> None:
        """Remember jobs that the broker has taken."""
        now = self._store.now()
        with self._store.transaction():
            self._store.append(
                "jobs",
                [
                    (job.job_id, self._run.run_id, *job.of.key, job.of.revision,
                     [one.digest for one in job.metrics], job.attempt, *place, now)
                    for job, place, _ in asked
                ],
            )  # fmt: skip
        for job, place, begin in asked:
            indexes = tuple(one.index for one in job.metrics)
            self._by_case[job.of.key] = Asked(
                job.job_id, job.of, indexes, job.attempt, place, now, begin
            )

    def forget(self, keys: Iterable[CaseKey]) -> None:
        """Take jobs off that are answered or given up."""
        for key in keys:
            self._by_case.pop(key, None)


# The newest ask of each case, as long as a metric of it has no score.
_UNANSWERED = """
SELECT j.job_id, j.app_name, j.eval_set_id, j.eval_id, j.revision, j.metric_digests, j.attempt,
       j.partition_number, j.record_offset, j.asked_at, r.reason
FROM (
  FROM jobs WHERE run_id = $run_id
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id ORDER BY asked_at DESC
  ) = 1
) j
LEFT JOIN (
  SELECT job_id, attempt, any_value(reason) AS reason FROM job_refusals GROUP BY ALL
) r USING (job_id, attempt)
WHERE NOT EXISTS (
  FROM scores s
  WHERE s.run_id = j.run_id AND s.app_name = j.app_name AND s.eval_set_id = j.eval_set_id
    AND s.eval_id = j.eval_id AND s.revision = j.revision
    AND list_contains(j.metric_digests, s.metric_digest)
)
"""
