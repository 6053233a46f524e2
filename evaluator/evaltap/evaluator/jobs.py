"""The two ways to score: cases of files, and what has landed and has no score yet."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from evaltap.evaluator.batch import BadLine, CaseIdentity, FileScorer, score_cases
from evaltap.evaluator.runs import Run, RunMetric, end_run, run_metric, start_run
from evaltap.evaluator.scores import ScoreRows, ScoreWriter
from evaltap.evaluator.scoring import CaseScorer
from evaltap.evaluator.store import Store, sql, utc_now
from evaltap.schemas.case import CaseData
from evaltap.schemas.metric import EvalMetric

Progress = Callable[[int], None]
"""Called with the number of cases scored so far."""

ROWS_PER_WRITE = 20_000


def no_progress(_: int) -> None:
    """Report nothing."""


def run_metrics(scorer: CaseScorer) -> list[RunMetric]:
    """Return the scorer's metrics with their digests."""
    versions = scorer.versions()
    return [
        run_metric(
            metric, metric.evaluator_name or metric.metric_name, versions[metric.metric_name]
        )
        for metric in scorer.metrics
    ]


def score_files(
    store: Store, files: FileScorer, scorer: CaseScorer, source: str, progress: Progress
) -> tuple[Run, list[BadLine]]:
    """Score the cases of files as a new run; lines that are no cases become dead letters."""
    run = start_run(store, "files", source, run_metrics(scorer))
    writer, rows, bad_lines, cases = ScoreWriter(store, run), ScoreRows(), [], 0
    for batch in files.batches():
        rows.extend(batch.rows)
        cases += batch.rows.case_count
        if batch.bad_lines:
            bad_lines.extend(batch.bad_lines)
            _write_dead_letters(store, batch.bad_lines)
        if len(rows.turn_scores) >= ROWS_PER_WRITE:
            writer.write(rows)
            rows = ScoreRows()
        progress(cases)
    writer.write(rows)
    end_run(store, run, cases)
    return run, bad_lines


def _write_dead_letters(store: Store, lines: Sequence[BadLine]) -> None:
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
    """Scores what has landed and has no score yet under the given metrics.

    Takes the latest revision of each case; with `retry` also those whose score could not be had.
    """

    def __init__(
        self, store: Store, metrics: Sequence[EvalMetric], scorer: CaseScorer, *, threads: int = 1
    ) -> None:
        self._store = store
        self._wanted = run_metrics(scorer)
        self._threads = threads
        self._index = {metric.digest: i for i, metric in enumerate(self._wanted)}
        self._scorers: dict[tuple[int, ...], CaseScorer] = {
            tuple(range(len(self._wanted))): scorer
        }

    @property
    def metrics(self) -> list[RunMetric]:
        """The metrics with their digests."""
        return self._wanted

    def score(self, run: Run, *, retry: bool = False, progress: Progress = no_progress) -> int:
        """Score all that is pending, a transaction for each chunk; return how many cases."""
        writer, cases = ScoreWriter(self._store, run), 0
        for chunk in self._pending(retry=retry):
            rows = ScoreRows()
            for wanted, named in _by_metrics(chunk).items():
                indexes = tuple(sorted(self._index[digest] for digest in wanted))
                rows.extend(score_cases(self._scorer(indexes), named, indexes, self._threads))
            writer.write(rows)
            cases += rows.case_count
            progress(cases)
        return cases

    def _scorer(self, indexes: tuple[int, ...]) -> CaseScorer:
        if indexes not in self._scorers:
            self._scorers[indexes] = CaseScorer([self._wanted[i].metric for i in indexes])
        return self._scorers[indexes]

    def _pending(self, *, retry: bool) -> Iterator[list[tuple[Any, ...]]]:
        # A judged case may take seconds: smaller transactions lose less when the process dies.
        size = 20 if self._threads > 1 else 500
        parameters = {"digests": [metric.digest for metric in self._wanted], "retry": retry}
        yield from self._store.stream(sql("pending_cases"), parameters, size=size)


def _by_metrics(
    chunk: Sequence[tuple[Any, ...]],
) -> dict[frozenset[str], list[tuple[CaseIdentity, CaseData]]]:
    groups: dict[frozenset[str], list[tuple[CaseIdentity, CaseData]]] = {}
    for app, eval_set, eval_id, revision, digests, header, revisions, actual, expected in chunk:
        identity = CaseIdentity(app, eval_set, eval_id, revision, revisions)
        case = assemble(header, actual, expected)
        groups.setdefault(frozenset(digests), []).append((identity, case))
    return groups


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
