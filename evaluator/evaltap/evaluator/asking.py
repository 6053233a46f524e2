"""Asking workers: pending cases become jobs on a topic, remembered once the broker has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from evaltap.evaluator.asked import AskedJobs
from evaltap.evaluator.batch import score_cases
from evaltap.evaluator.context import TurnScore
from evaltap.evaluator.pending import Begin, CaseKey, PendingCase, PendingCases
from evaltap.evaluator.runs import Run, metric_json
from evaltap.evaluator.scores import ScoreWriter
from evaltap.evaluator.scoring import CaseScorer
from evaltap.evaluator.topics import Place, TopicWriter
from evaltap.schemas.envelope import RecordError, WireRecord
from evaltap.schemas.job import CaseRevision, Job, JobMetric, encode_job


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where jobs go, who takes them, how many may be out, and when to ask again."""

    jobs_topic: str
    group: str
    producer_id: str
    references: str = ""
    """Digest of the references that the metrics' digests cover."""
    max_outstanding: int = 1_000
    ask_again: timedelta = timedelta(hours=1)


class Asking:
    """Publishes jobs for pending cases; a case that no record or topic can hold is scored here instead."""

    def __init__(
        self,
        pending: PendingCases,
        scorer: CaseScorer,
        scores: ScoreWriter,
        run: Run,
        settings: FleetSettings,
        writer: TopicWriter,
    ) -> None:
        self._pending = pending
        self._scorer = scorer
        self._scores = scores
        self._run_id = run.run_id
        self._settings = settings
        self._writer = writer
        self._metrics = [
            JobMetric(index, one.digest, orjson.loads(metric_json(one.metric)))
            for index, one in enumerate(run.metrics)
        ]

    def ask(
        self, cases: Sequence[PendingCase], begins: Mapping[CaseKey, Begin], asked: AskedJobs
    ) -> int:
        """Ask for what these cases lack; return for how many.  Raises TopicsAway when nobody took it."""
        jobs: list[tuple[PendingCase, Job]] = []
        records: list[WireRecord] = []
        too_large: list[PendingCase] = []
        for one, job in self._jobs(cases, min(begins.values()), asked):
            try:
                records.append(
                    encode_job(job, producer_id=self._settings.producer_id, time=datetime.now(UTC))
                )
                jobs.append((one, job))
            except RecordError:
                too_large.append(one)
        noted: list[tuple[Job, Place, Begin]] = []
        places = self._writer.write(self._settings.jobs_topic, records) if records else []
        for (one, job), place in zip(jobs, places, strict=True):
            if place is None:
                too_large.append(one)
            else:
                noted.append((job, place, begins[job.of.key]))
        if noted:
            asked.note(noted)
        for one in too_large:
            scorer = self._scorer.only(one.indexes)
            rows = score_cases(scorer, [(one.identity, one.case)], one.indexes)
            self._scores.write([rows.packed()])
        return len(noted)

    def _jobs(
        self, pending: Sequence[PendingCase], since: Begin, asked: AskedJobs
    ) -> Sequence[tuple[PendingCase, Job]]:
        groups: dict[tuple[int, ...], list[PendingCase]] = {}
        for one in pending:
            groups.setdefault(one.indexes, []).append(one)
        found = []
        for indexes, cases in groups.items():
            known = self._pending.known(indexes, cases, since)
            for one in cases:
                found.append((one, self._job(one, known(one.identity), asked)))
        return found

    def _job(
        self, one: PendingCase, known: Mapping[int, Sequence[TurnScore | None]], asked: AskedJobs
    ) -> Job:
        app, eval_set, eval_id, revision, turn_revisions = one.identity
        job = Job(
            run_id=self._run_id,
            of=CaseRevision(app, eval_set, eval_id, revision),
            turn_revisions=tuple(turn_revisions),
            metrics=tuple(self._metrics[index] for index in one.indexes),
            case=one.case,
            references=self._settings.references,
            known={number: _known(turns) for number, turns in known.items() if any(turns)},
        )
        before = asked.get(job.of.key)
        if before is not None and before.job_id == job.job_id:
            return replace(job, attempt=before.attempt + 1)
        return job


def _known(turns: Sequence[TurnScore | None]) -> list[Any]:
    return [
        None if turn is None else (turn.status.value, turn.score, turn.reason) for turn in turns
    ]
