"""The two ways to score: cases of files, and what has landed and has no score yet."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from evaltap.evaluator.bad_line import BadLine
from evaltap.evaluator.batch import BATCH_SECONDS, CASES_AHEAD, add_rows, score_batches
from evaltap.evaluator.context import Status
from evaltap.evaluator.crash_guard import CrashGuard
from evaltap.evaluator.file_scoring import FileScorer
from evaltap.evaluator.fresh_cases import FreshCase
from evaltap.evaluator.pending import (
    Begin,
    CaseKey,
    PendingCase,
    PendingCases,
    References,
    Touched,
)
from evaltap.evaluator.rows import PackedRows, ScoreRows
from evaltap.evaluator.runs import Run, RunKind, RunMetric, end_run, run_metric, start_run
from evaltap.evaluator.scores import ScoreWriter
from evaltap.evaluator.scoring import CaseScore, CaseScorer
from evaltap.evaluator.selection import Selection
from evaltap.evaluator.store import Store, utc_now

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of cases scored so far."""

ROWS_PER_WRITE = 25_000
"""Turn scores a statement: enough that its fixed cost does not matter, few enough that the last
statement, which no worker overlaps, is short."""

NAMES_PER_READ = 20_000
"""Names of pending cases that are held at a time."""

CASES_PER_READ = 1_000
"""Cases that are read, and stored with their scores, at a time."""

FRESH_AT_A_TIME = 2_000
"""Cases that are still in memory and are stored with their scores at a time."""

_NOTHING: Final[Mapping[CaseKey, FreshCase]] = {}


def no_progress(_: int) -> None:
    """Report nothing."""


def never() -> bool:
    """Return False."""
    return False


def run_metrics(scorer: CaseScorer, references: "References | None" = None) -> list[RunMetric]:
    """Return the scorer's metrics with their digests."""
    versions = scorer.versions()
    return [
        run_metric(
            metric,
            metric.evaluator_name or metric.metric_name,
            versions[metric.metric_name],
            references.digest if references else "",
        )
        for metric in scorer.metrics
    ]


@dataclass(frozen=True, slots=True)
class FilesScored:
    """What scoring files came to, besides the scores."""

    run: Run
    bad_lines: list[BadLine]
    without_reference: int
    """Cases that hold nothing to be compared with."""
    repeated_ids: list[str]
    """Some eval ids that several cases of one eval set share: their scores cannot be told apart."""


def score_files(
    store: Store, files: FileScorer, scorer: CaseScorer, source: str, progress: Progress
) -> FilesScored:
    """Score the cases of files as a new run; lines that are no cases become dead letters.

    The rows of a run without judges are one transaction: written once, and all of them or none.
    """
    run = start_run(store, "files", source, run_metrics(scorer))
    writer, bad_lines = ScoreWriter(store, run), []
    waiting: list[PackedRows] = []
    cases, without_reference, written = 0, 0, time.monotonic()
    # What a judge was paid for is kept as it comes.
    whole = nullcontext() if files.judged else store.transaction()
    with store.writing_much(), whole:
        for batch in files.batches():
            waiting.append(batch.rows)
            cases += batch.rows.case_count
            without_reference += batch.rows.without_reference
            if batch.bad_lines:
                bad_lines.extend(batch.bad_lines)
                write_bad_lines(store, batch.bad_lines)
            late = files.judged and time.monotonic() - written >= BATCH_SECONDS
            if late or sum(one.turn_scores.rows for one in waiting) >= ROWS_PER_WRITE:
                writer.write(waiting)
                waiting.clear()
                written = time.monotonic()
            progress(cases)
        writer.write(waiting)
    return end_files(store, run, cases, bad_lines, without_reference)


def end_files(
    store: Store, run: Run, cases: int, bad_lines: list[BadLine], without_reference: int
) -> FilesScored:
    """End a run over files and return what it came to."""
    end_run(store, run, cases)
    repeated = store.rows(_REPEATED_IDS, {"run_id": run.run_id})
    return FilesScored(run, bad_lines, without_reference, [eval_id for (eval_id,) in repeated])


_REPEATED_IDS = """
SELECT eval_id FROM scores
WHERE run_id = $run_id
  AND metric_name = (SELECT any_value(metric_name) FROM run_metrics WHERE run_id = $run_id)
GROUP BY app_name, eval_set_id, eval_id
HAVING count(*) > 1
ORDER BY eval_id LIMIT 3
"""


def write_bad_lines(store: Store, lines: Sequence[BadLine]) -> None:
    """Keep lines of files that hold no usable case as dead letters."""
    now = utc_now()
    with store.transaction():
        store.append(
            "dead_letters",
            [
                (f"file:{line.path}", 0, line.offset, "invalid_case", line.message, False,
                 None, None, line.raw, now)
                for line in lines
            ],
        )  # fmt: skip


class PendingScorer:
    """Scores what has landed and has no score yet under the scorer's metrics, `only` some of them.

    Takes the latest revision of each case; with `retry` also those whose score could not be had.
    `threads` above 1 suit metrics that wait for a judge.
    """

    def __init__(
        self,
        store: Store,
        scorer: CaseScorer,
        *,
        references: References | None = None,
        threads: int = 1,
        selection: Selection | None = None,
        only: Sequence[int] | None = None,
    ) -> None:
        self._store = store
        self._selection = selection or Selection()
        self._wanted = run_metrics(scorer, references)
        self._pending = PendingCases(store, self._wanted, references=references, only=only)
        self._threads = threads
        self._scorer = scorer
        self._guard = CrashGuard(store.path)
        self._live: Run | None = None
        self.takes_fresh = (
            scorer.outline_suffices and references is None and self._pending.scored_after_landing
        )
        """Whether `score` makes use of cases that are still in memory."""

    @property
    def metrics(self) -> list[RunMetric]:
        """The metrics of the run, with their digests."""
        return self._wanted

    def score(
        self,
        kind: RunKind,
        source: str,
        *,
        touched: Touched | None = None,
        fresh: Mapping[CaseKey, FreshCase] = _NOTHING,
        retry: bool = False,
        progress: Progress = no_progress,
        stopped: Callable[[], bool] = never,
    ) -> tuple[Run | None, int]:
        """Score all that is pending, a transaction for each chunk, until `stopped` says so.

        With `touched` only these cases are looked at; those of them that are `fresh`, and so have no
        score, are not read.  Returns the run, None when nothing was pending, and the number of cases
        scored.
        """
        run, writer, cases = None, None, 0
        for read, since in self._chunks(touched, fresh, retry=retry):
            chunk = [
                one
                for one in read
                if self._selection.takes(one.identity.eval_set_id, one.identity.eval_id)
            ]
            if not chunk:
                continue
            if writer is None:
                run = self._started(kind, source)
                writer = ScoreWriter(self._store, run)
            for rows in self._scored(chunk, since):
                # The next cases are scored while these are written.
                self._store.behind(partial(writer.write, [rows.packed()], since=since))
                cases += rows.case_count
                progress(cases)
                if stopped():
                    return run, cases
        return run, cases

    def _started(self, kind: RunKind, source: str) -> Run:
        if self._live is not None and kind == "live":
            return self._live  # to look whether it is there would wait for what is being written
        run = start_run(self._store, kind, source, self._wanted)
        self._live = run if kind == "live" else None
        return run

    def _chunks(
        self, touched: Touched | None, fresh: Mapping[CaseKey, FreshCase], *, retry: bool
    ) -> Iterator[tuple[list[PendingCase], Begin]]:
        if touched is None:
            after = -1
            while names := self._pending.names(NAMES_PER_READ, after=after, retry=retry):
                after = max(begin.landed_seq for begin in names.values())
                yield from self._pending.read(names, CASES_PER_READ, retry=retry)
            return
        whole = [fresh[key] for key in touched if key in fresh]
        for first in range(0, len(whole), FRESH_AT_A_TIME):
            cases = whole[first : first + FRESH_AT_A_TIME]
            indexes = self._pending.indexes
            begin = min(touched[case.key] for case in cases)
            yield [PendingCase(*case.named(), indexes) for case in cases], begin
        others = {key: at for key, at in touched.items() if key not in fresh}
        yield from self._pending.read(others, CASES_PER_READ)

    def _scored(self, chunk: Sequence[PendingCase], since: Begin) -> Iterator[ScoreRows]:
        suspected = self._guard.suspects
        suspects = [one for one in chunk if one.key in suspected]
        if suspects:
            yield self._scored_alone(suspects, since)
            self._store.settle()
            self._guard.cleared([one.key for one in suspects])
            chunk = [one for one in chunk if one.key not in suspected]
        yield from self._scored_together(chunk, since, self._threads)
        self._guard.done()

    def _scored_together(
        self, chunk: Sequence[PendingCase], since: Begin, threads: int
    ) -> Iterator[ScoreRows]:
        groups: dict[tuple[int, ...], list[PendingCase]] = {}
        for one in chunk:
            groups.setdefault(one.indexes, []).append(one)
        for indexes, cases in groups.items():
            scorer = self._scorer.only(indexes)
            known = self._pending.known(indexes, cases, since) if self._scorer.waits else None
            watched = self._guard.watched(cases, 0 if threads == 1 else threads * CASES_AHEAD)
            named = ((one.identity, one.case) for one in watched)
            yield from score_batches(scorer, named, indexes, FRESH_AT_A_TIME, threads, known=known)

    def _scored_alone(self, suspects: Sequence[PendingCase], since: Begin) -> ScoreRows:
        """Score cases one at a time, since one of them may have killed the process before."""
        rows = ScoreRows()
        for one in suspects:
            reason = self._guard.gives_up(one.key)
            if reason is not None:
                given_up = CaseScore(one.identity.eval_id, Status.FAILED, None, reason, ())
                add_rows(rows, one.identity, one.case, given_up, one.indexes)
                continue
            for part in self._scored_together([one], since, threads=1):
                rows.extend(part)
        return rows
