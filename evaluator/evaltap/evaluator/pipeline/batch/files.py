"""Scoring the cases of files: in this process, or in worker processes that read the files themselves.

Deterministic metrics are CPU-bound, so a large JSON Lines file is cut into byte ranges that worker
processes read and score; only rows come back.  The number of ranges in progress is bounded, and memory does
not grow with the number of cases.
"""

import gc
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.origin import NamedCase, case_identity
from evaltap.evaluator.cases.outline import lazy_case
from evaltap.evaluator.cases.pairing import Placeholders
from evaltap.evaluator.scoring.batch import Observer, score_batches, score_cases
from evaltap.evaluator.scoring.results.rows import PackedRows, ScoreRows
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.selection import Selection
from evaltap.schemas.errors import EvaltapError, FormatError
from evaltap.schemas.files.content import eval_set_name, is_json_lines
from evaltap.schemas.files.documents import LOG, iter_cases, read_case, warn_once
from evaltap.schemas.formats.metric import EvalMetric

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

RANGE_BYTES = 4 << 20
"""Bytes of JSON Lines in a worker's task."""
RANGES_PER_WORKER = 8
"""Ranges in progress per worker: enough to keep it busy while the database is written."""
BLOCK_BYTES = 1 << 18
"""Bytes per read: small enough to be in the processor's cache when they are decoded."""
CASES_PER_BATCH = 200
PARALLEL_FROM_BYTES = 8 << 20
"""Smaller files are scored in this process: starting workers would take longer."""


class WorkerDiedError(EvaltapError):
    """Raised when a worker process ended before its cases were scored."""

    exit_code = 3


@dataclass(slots=True)
class ScoredBatch:
    """The rows of some cases, and the lines that are not cases."""

    rows: PackedRows
    bad_lines: list[BadLine] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What a worker process has to say about the files."""


class Part(NamedTuple):
    """A unit of work: a byte range of JSON Lines, or a whole document (`end` is 0)."""

    path: str
    start: int = 0
    end: int = 0


class FileScorer:
    """Scores the cases of files; worker processes start immediately.

    Create it before anything starts a thread or opens a database: on Linux the workers are forked.
    Scoring stays in this process with `workers=1`, for judged metrics (which wait on `concurrency` threads),
    and with `observe` (called with each case and its score) or `selection`.  `bad_lines` were found when
    tables were converted to files; they are yielded first.
    """

    def __init__(
        self,
        scorer: CaseScorer,
        paths: Sequence[Path],
        *,
        workers: int | None = None,
        concurrency: int = 1,
        observe: Observer | None = None,
        selection: Selection | None = None,
        bad_lines: Sequence[BadLine] = (),
    ) -> None:
        self._scorer = scorer
        self._bad_lines = list(bad_lines)
        self._observe = observe
        self._selection = selection
        self._parts = parts(paths)
        self.judged = scorer.waits
        self._threads = concurrency if self.judged else 1
        self._pool: ProcessPoolExecutor | None = None
        self._under_way: deque[Future[ScoredBatch]] = deque()
        if workers is None:
            large = any(path.stat().st_size >= PARALLEL_FROM_BYTES for path in paths)
            workers = _processors() if large else 1
        if workers > 1 and not self.judged and observe is None and selection is None:
            self._pool = _start_workers(scorer, workers)
            self._submit(self._pool, workers * RANGES_PER_WORKER)

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def batches(self) -> Iterator[ScoredBatch]:
        """Yield scored batches in the order of the files.

        Raises InputError for an unreadable file, and WorkerDiedError if a worker was killed.
        """
        if self._bad_lines:
            yield ScoredBatch(ScoreRows().packed(), self._bad_lines)
        if self._pool is None:
            for part in self._parts:
                if self._selection is not None and self._selection.full:
                    return
                yield from self._score(part)
            return
        while self._under_way:
            try:
                batch = self._under_way.popleft().result()
                self._submit(self._pool, 1)
            except BrokenExecutor:
                raise WorkerDiedError(
                    "a worker process was killed, perhaps because memory ran out, so not every case was"
                    " scored; free some, or use --workers 1"
                ) from None
            for message in batch.warnings:
                warn_once(message)
            yield batch

    def _submit(self, pool: "ProcessPoolExecutor", count: int) -> None:
        for part in islice(self._parts, count):
            self._under_way.append(pool.submit(_score_part, part))

    def _score(self, part: Part) -> Iterator[ScoredBatch]:
        """Score a part in this process, in small batches, so that a killed run loses little."""
        indexes = range(len(self._scorer.metrics))
        bad_lines: list[BadLine] = []
        lazy = self._observe is None and self._scorer.outline_suffices
        cases = part_cases(part, bad_lines, lazy=lazy)
        if (chosen := self._selection) is not None:
            cases = (one for one in cases if chosen.takes(one[0].eval_set_id, one[0].eval_id))
        for rows in score_batches(
            self._scorer, cases, indexes, CASES_PER_BATCH, self._threads, self._observe
        ):
            yield ScoredBatch(rows.packed(), bad_lines[:])
            bad_lines.clear()
        if bad_lines:
            yield ScoredBatch(ScoreRows().packed(), bad_lines)


def parts(paths: Sequence[Path], range_bytes: int = RANGE_BYTES) -> Iterator[Part]:
    """Yield the parts of files in their order; a line is never cut."""
    for path in paths:
        if not is_json_lines(path):
            yield Part(str(path))
            continue
        size = path.stat().st_size
        with path.open("rb") as file:
            start = 0
            while start < size:
                file.seek(min(start + range_bytes, size))
                file.readline()
                yield Part(str(path), start, file.tell())
                start = file.tell()


def part_cases(part: Part, bad_lines: list[BadLine], *, lazy: bool) -> Iterator[NamedCase]:
    """Yield the cases of a part, perhaps as outlines; lines that hold none are added to `bad_lines`."""
    path = Path(part.path)
    name = eval_set_name(path)
    if not part.end:
        yield from ((case_identity(case, name), case) for case in iter_cases(path))
        return
    with path.open("rb", buffering=BLOCK_BYTES) as file:
        file.seek(part.start)
        offset = part.start
        for line in file:
            if offset >= part.end:
                break
            if line.strip():
                try:
                    outline = lazy_case(line) if lazy else None
                    case = read_case(line, path=part.path) if outline is None else outline
                except FormatError as error:
                    message = _message(path, offset, error)
                    bad_lines.append(BadLine(part.path, offset, message, line))
                else:
                    yield case_identity(case, name), case
            offset += len(line)


def _message(path: Path, offset: int, error: FormatError) -> str:
    """Return what is wrong with a line, by its number, which is counted only now."""
    with path.open("rb") as file:
        line = file.read(offset).count(b"\n") + 1
    inner = "" if error.place.startswith("line ") else error.place
    place = f"line {line}, {inner}" if inner else f"line {line}"
    return str(FormatError(error.detail, path=str(path), place=place))


# -- worker processes ------------------------------------------------------------------------------

_worker_scorer: CaseScorer | None = None


def _start_workers(scorer: CaseScorer, count: int) -> "ProcessPoolExecutor":
    import multiprocessing  # a run of few cases starts no workers
    from concurrent.futures import ProcessPoolExecutor

    # Forked workers have every module loaded; elsewhere than on Linux forking is not safe.
    method = "fork" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    return ProcessPoolExecutor(count, context, _begin_worker, (scorer.metrics, scorer.placeholders))


class _Kept(logging.Handler):
    """Keeps messages for the process that started the workers, which logs each only once."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(record.getMessage())

    def take(self) -> list[str]:
        kept, self._kept = self._kept, []
        return kept


_worker_warnings: Final = _Kept()


def _begin_worker(metrics: Sequence[EvalMetric], placeholders: Placeholders) -> None:
    global _worker_scorer
    _worker_scorer = CaseScorer(metrics, placeholders=placeholders)
    LOG.addHandler(_worker_warnings)
    LOG.propagate = False
    # Cases are trees without cycles: reference counts free them, the collector would only look.
    gc.disable()


def _score_part(part: Part) -> ScoredBatch:
    assert _worker_scorer is not None
    bad_lines: list[BadLine] = []
    indexes = range(len(_worker_scorer.metrics))
    cases = part_cases(part, bad_lines, lazy=_worker_scorer.outline_suffices)
    rows = score_cases(_worker_scorer, cases, indexes).packed()
    return ScoredBatch(rows, bad_lines, _worker_warnings.take())


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
