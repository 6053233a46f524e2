"""Scoring a job: the metrics are built from the job, and must be the very ones that were asked for."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from evaltap.evaluator.batch import CaseIdentity, add_rows
from evaltap.evaluator.context import Services, Status, TurnScore
from evaltap.evaluator.job_rows import to_wire
from evaltap.evaluator.rows import ScoreRows
from evaltap.evaluator.runs import run_metric
from evaltap.evaluator.scoring import CaseScorer
from evaltap.schemas.documents import parse
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.job import Job, JobMetric, Result
from evaltap.schemas.metric import EvalMetric

REMEMBERED_SCORERS = 100


class JobScorer:
    """Answers jobs; from several threads when the evaluators can be used so.

    A metric whose digest is another one here is refused: the evaluator has another version, or is
    another one of that name, and its scores must not be mixed with those of the asked one.
    """

    def __init__(self, services: Services | None, *, worker: str) -> None:
        self._services = services
        self._worker = worker
        self._version = version("evaltap")
        self._scorers: dict[tuple[Any, ...], CaseScorer | str] = {}

    def answer(self, job: Job) -> Result:
        """Return the result of a job, or its refusal; never raises because of what the job holds."""
        scorer = self._scorer(job)
        if isinstance(scorer, str):
            return self.refuse(job, scorer)
        score = scorer.score(job.case, _known(job.known))
        rows = ScoreRows()
        add_rows(rows, _identity(job), job.case, score, [one.index for one in job.metrics])
        return self._result(job, rows)

    def give_up(self, job: Job, reason: str) -> Result:
        """Return a result with an error under every metric: the job cannot be done."""
        rows = ScoreRows()
        error = (None, Status.ERROR.value, reason, len(job.turn_revisions))
        of = (*job.of.key, job.of.revision)
        rows.scores = [(*of, one.index, *error) for one in job.metrics]
        return self._result(job, rows)

    def refuse(self, job: Job, reason: str) -> Result:
        """Return the answer that this worker cannot do the job, and why."""
        return Result(
            job.job_id, job.attempt, job.run_id, job.of, self._worker, self._version, refusal=reason
        )

    def _result(self, job: Job, rows: ScoreRows) -> Result:
        return Result(
            job.job_id, job.attempt, job.run_id, job.of, self._worker, self._version, to_wire(rows)
        )

    def _scorer(self, job: Job) -> CaseScorer | str:
        key = (job.references, *(metric.digest for metric in job.metrics))
        if key not in self._scorers:
            if len(self._scorers) >= REMEMBERED_SCORERS:
                self._scorers.clear()
            self._scorers[key] = self._built(job)
        return self._scorers[key]

    def _built(self, job: Job) -> CaseScorer | str:
        """Return a scorer of the job's metrics, or why they cannot be had here."""
        try:
            metrics = [parse(EvalMetric, dict(one.metric)) for one in job.metrics]
            scorer = CaseScorer(metrics, services=self._services)
        except EvaltapError as error:
            return f"evaltap {self._version} on this worker: {error}"
        versions = scorer.versions()
        for asked, metric in zip(job.metrics, scorer.metrics, strict=True):
            name = metric.evaluator_name or metric.metric_name
            there = versions[metric.metric_name]
            if run_metric(metric, name, there, job.references).digest != asked.digest:
                return self._other_version(asked, name, there)
        return scorer

    def _other_version(self, asked: JobMetric, name: str, there: str) -> str:
        return (
            f"evaltap {self._version} on this worker has version {there} of the evaluator {name},"
            f" the sink asked for another (digest {asked.digest}); install the same evaltap and"
            " evaluators on both"
        )


def _identity(job: Job) -> CaseIdentity:
    return CaseIdentity(*job.of.key, job.of.revision, job.turn_revisions)


def _known(known: Mapping[int, Any]) -> dict[int, list[TurnScore | None]]:
    return {
        number: [
            None if turn is None else TurnScore(Status(turn[0]), turn[1], turn[2], turn[1])
            for turn in turns
        ]
        for number, turns in known.items()
    }
