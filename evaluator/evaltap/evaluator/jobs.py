"""The two ways to score: cases of files, and what has landed and has no score yet."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from evaltap.evaluator.batch import (
    BATCH_SECONDS,
    CaseIdentity,
    Known,
    NamedCase,
    score_batches,
)
from evaltap.evaluator.context import Status, TurnScore
from evaltap.evaluator.file_scoring import BadLine, FileScorer
from evaltap.evaluator.rows import PackedRows, ScoreRows
from evaltap.evaluator.runs import Run, RunKind, RunMetric, end_run, run_metric, start_run
from evaltap.evaluator.scores import ScoreWriter
from evaltap.evaluator.scoring import CaseScorer, KnownScores
from evaltap.evaluator.selection import Selection
from evaltap.evaluator.store import Store, sql, utc_now
from evaltap.schemas.case import CaseData
from evaltap.schemas.documents import iter_cases
from evaltap.schemas.errors import FormatError

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of cases scored so far."""

ROWS_PER_WRITE = 10_000
"""Turn scores a transaction: enough that its fixed cost does not matter, few enough that the last
transaction, which no worker overlaps, is short."""

CASES_PER_READ = 500
"""Landed cases that are read, and stored with their scores, at a time."""


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
    """Score the cases of files as a new run; lines that are no cases become dead letters."""
    run = start_run(store, "files", source, run_metrics(scorer))
    writer, bad_lines = ScoreWriter(store, run), []
    waiting: list[PackedRows] = []
    cases, without_reference, written = 0, 0, time.monotonic()
    with store.writing_much():
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


class References:
    """Expected turns for recorded cases, by eval id: a recording itself does not know them.

    A reference's expected turns are its `conversation`, or else its `actualConversation`: a recorded
    case that was found good is a reference too.  Raises FormatError for an eval id that stands twice.
    """

    def __init__(self, path: Path) -> None:
        self._turns: dict[str, list[Any]] = {}
        for case in iter_cases(path):
            if case["evalId"] in self._turns:
                raise FormatError(
                    f"case {case['evalId']!r} stands here a second time; keep one", path=str(path)
                )
            turns = case.get("conversation") or case.get("actualConversation") or []
            self._turns[case["evalId"]] = turns
        self.digest = hashlib.sha256(orjson.dumps(self._turns)).hexdigest()[:16]

    def attach(self, case: CaseData) -> None:
        """Give a case its expected turns, where there are any for it."""
        turns = self._turns.get(case["evalId"])
        if turns:
            case["conversation"] = turns


class PendingScorer:
    """Scores what has landed and has no score yet under the scorer's metrics.

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
    ) -> None:
        self._store = store
        self._selection = selection or Selection()
        self._wanted = run_metrics(scorer, references)
        self._references = references
        self._threads = threads
        self._index = {metric.digest: i for i, metric in enumerate(self._wanted)}
        self._scorer = scorer

    @property
    def metrics(self) -> list[RunMetric]:
        """The metrics with their digests."""
        return self._wanted

    def score(
        self,
        kind: RunKind,
        source: str,
        *,
        retry: bool = False,
        progress: Progress = no_progress,
        stopped: Callable[[], bool] = never,
    ) -> tuple[Run | None, int]:
        """Score all that is pending, a transaction for each chunk, until `stopped` says so.

        Returns the run, None when nothing was pending, and the number of cases scored.
        """
        run, writer, cases = None, None, 0
        for read in self._pending(retry=retry):
            chunk = [row for row in read if self._selection.takes(row[1], row[2])]
            if not chunk:
                continue
            if writer is None:
                run = start_run(self._store, kind, source, self._wanted)
                writer = ScoreWriter(self._store, run)
            for rows in self._scored(chunk):
                writer.write([rows.packed()])
                cases += rows.case_count
                progress(cases)
                if stopped():
                    return run, cases
        return run, cases

    def _scored(self, chunk: Sequence[tuple[Any, ...]]) -> Iterator[ScoreRows]:
        for wanted, named in self._by_metrics(chunk).items():
            indexes = tuple(sorted(self._index[digest] for digest in wanted))
            scorer = self._scorer.only(indexes)
            known = self._known_scores(indexes, named) if self._scorer.waits else None
            yield from score_batches(
                scorer, named, indexes, CASES_PER_READ, self._threads, known=known
            )

    def _pending(self, *, retry: bool) -> Iterator[list[tuple[Any, ...]]]:
        parameters = {"digests": [metric.digest for metric in self._wanted], "retry": retry}
        query = sql("pending_cases")
        if self._selection.items is not None:
            # "The first ones" are those that landed first; otherwise no sort is paid for.
            query += "\nORDER BY min(t.first_landed_seq)"
        yield from self._store.stream(query, parameters, size=CASES_PER_READ)

    def _known_scores(self, indexes: Sequence[int], named: Sequence[NamedCase]) -> Known:
        """Return what turns were scored before: a session that goes on is not judged all over."""
        digests = [self._wanted[index].digest for index in indexes]
        found: dict[tuple[Any, ...], TurnScore] = {}
        ids = [identity.eval_id for identity, _ in named]
        for *key, score, status, reason in self._store.rows(
            _KNOWN, {"ids": ids, "digests": digests}
        ):
            found[tuple(key)] = TurnScore(Status(status), score, reason or "", score)
        turns = {id(identity): case["actualConversation"] for identity, case in named}

        def known(identity: CaseIdentity) -> KnownScores:
            case = identity[:3]
            revised = list(zip(turns[id(identity)], identity.turn_revisions, strict=True))
            return {
                number: [
                    found.get((*case, turn.get("invocationId"), revision, digest))
                    for turn, revision in revised
                ]
                for number, digest in enumerate(digests)
            }

        return known

    def _by_metrics(
        self, chunk: Sequence[tuple[Any, ...]]
    ) -> dict[frozenset[str], list[NamedCase]]:
        """Group cases by the metrics that they lack."""
        groups: dict[frozenset[str], list[NamedCase]] = {}
        for app, eval_set, eval_id, revision, digests, header, revisions, actual, expected in chunk:
            identity = CaseIdentity(app, eval_set, eval_id, revision, revisions)
            case = assemble(header, actual, expected)
            if self._references is not None:
                self._references.attach(case)
            groups.setdefault(frozenset(digests), []).append((identity, case))
        return groups


_KNOWN = """
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest,
       score, status, reason
FROM turn_scores
WHERE eval_id IN $ids::VARCHAR[] AND metric_digest IN $digests::VARCHAR[]
  AND status IN ('passed', 'failed')
"""


def assemble(header: str, actual: Sequence[str], expected: Sequence[str | None]) -> CaseData:
    """Return a landed case with its turns.

    A case with references for some turns only gets a placeholder for the others: the user's message.
    """
    case: CaseData = orjson.loads(header)
    case["actualConversation"] = turns = [orjson.loads(turn) for turn in actual]
    if any(turn is not None for turn in expected):
        case["conversation"] = [
            _placeholder(turn) if text is None else orjson.loads(text)
            for turn, text in zip(turns, expected, strict=True)
        ]
    return case


def _placeholder(turn: CaseData) -> CaseData:
    return {key: turn[key] for key in ("invocationId", "userContent") if key in turn}
