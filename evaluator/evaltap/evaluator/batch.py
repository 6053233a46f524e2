"""Scoring many cases: from files on several processes, or judged ones on several threads.

Deterministic metrics are bound by the processor, so a large JSON Lines file is cut into byte ranges
that worker processes read and score by themselves; only rows come back.  Judged metrics wait for an
endpoint, so threads do.  Either way a bounded number of batches is in flight, and memory does not
grow with the number of cases.
"""

import gc
import io
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from evaltap.evaluator.context import Status
from evaltap.evaluator.scores import ScoreRows
from evaltap.evaluator.scoring import CaseScore, CaseScorer
from evaltap.schemas.case import CaseData
from evaltap.schemas.documents import eval_set_name, is_json_lines, iter_cases, read_case
from evaltap.schemas.errors import FormatError
from evaltap.schemas.metric import EvalMetric

RANGE_BYTES = 1 << 20
"""Bytes of JSON Lines that one worker takes at a time."""
CASES_PER_BATCH = 200
PARALLEL_FROM_BYTES = 8 << 20
"""Smaller files are scored in this process: starting workers would take longer."""

_NO_TURN: CaseData = {}
_TEXT = {str(status): status.value for status in Status}

Item = TypeVar("Item")
Result = TypeVar("Result")


class CaseIdentity(NamedTuple):
    """What names a case revision in the tables; no turn revisions means a file, all of them 1."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int = 1
    turn_revisions: Sequence[int] = ()


NamedCase: TypeAlias = tuple[CaseIdentity, CaseData]
Observer: TypeAlias = Callable[[CaseIdentity, CaseData, CaseScore], None]


class BadLine(NamedTuple):
    """A line of a file that holds no usable case."""

    path: str
    offset: int
    message: str
    raw: bytes


@dataclass(slots=True)
class ScoredBatch:
    """The rows of some cases, and the lines that were not cases."""

    rows: ScoreRows = field(default_factory=ScoreRows)
    bad_lines: list[BadLine] = field(default_factory=list)


# -- rows of one case ------------------------------------------------------------------------------


def add_rows(
    rows: ScoreRows, identity: CaseIdentity, case: CaseData, score: CaseScore, indexes: Sequence[int]
) -> None:
    """Add the rows of a scored case; `indexes` are the run's numbers of the scorer's metrics."""
    app, eval_set, eval_id, revision, turn_revisions = identity
    turns = case.get("actualConversation") or case.get("conversation") or ()
    rows.case_count += 1
    if not score.metrics:
        # The case could not be laid out: none of its metrics has a score, and each says why.
        error = (None, Status.ERROR.value, score.error_message, len(turns))
        rows.scores.extend((app, eval_set, eval_id, revision, index, *error) for index in indexes)
        return
    for index, outcome in zip(indexes, score.metrics, strict=True):
        rows.scores.append(
            (app, eval_set, eval_id, revision, index, outcome.score, _TEXT[outcome.status],
             outcome.reason.strip(";"), len(turns))
        )  # fmt: skip
        for position, turn in enumerate(outcome.turns):
            invocation_id = (turns[position] or _NO_TURN).get("invocationId") or ""
            turn_revision = turn_revisions[position] if turn_revisions else 1
            key = invocation_id if turn_revisions else f"{position}:{invocation_id}"
            rows.turn_scores.append(
                (app, eval_set, eval_id, key, invocation_id, position, turn_revision, index,
                 turn.score, _TEXT[turn.status], turn.reason)
            )  # fmt: skip
            if turn.votes:
                rows.votes.extend(
                    (app, eval_set, eval_id, invocation_id, turn_revision, outcome.name, vote.sample,
                     rubric.id, rubric.score, rubric.reason)
                    for vote in turn.votes
                    for rubric in vote.rubric_scores
                )  # fmt: skip


def file_identity(case: CaseData, eval_set_id: str) -> CaseIdentity:
    """Return the identity of a case that was read from a file."""
    app_name = (case.get("sessionInput") or {}).get("appName") or ""
    return CaseIdentity(app_name, case.get("evalSetId") or eval_set_id, case["evalId"])


# -- files -----------------------------------------------------------------------------------------


class FileScorer:
    """Scores the cases of files.

    Make it before anything starts a thread or opens a database: on Linux its worker processes are
    forked.  `workers=1` scores in this process; so does `observe`, which is called with each case
    and its score.
    """

    def __init__(
        self,
        scorer: CaseScorer,
        paths: Sequence[Path],
        *,
        workers: int | None = None,
        concurrency: int = 1,
        observe: Observer | None = None,
    ) -> None:
        self._scorer = scorer
        self._observe = observe
        self._paths = paths
        self._indexes = range(len(scorer.metrics))
        judged = any(is_judged(metric) for metric in scorer.metrics)
        self._threads = concurrency if judged else 1
        self._pool: Executor | None = None
        large = [path for path in paths if path.stat().st_size >= PARALLEL_FROM_BYTES]
        wanted = workers if workers is not None else (_processors() if large else 1)
        if wanted > 1 and not judged and observe is None:
            self._pool = _start_workers(scorer, wanted)
            self._in_flight = wanted + 2

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def batches(self) -> Iterator[ScoredBatch]:
        """Yield scored batches, file by file; raises InputError for a file that cannot be read."""
        for path in self._paths:
            if self._pool is not None and is_json_lines(path):
                ranges = ((str(path), start, end) for start, end in line_ranges(path))
                yield from _ordered(self._pool, _score_range, ranges, self._in_flight)
            elif is_json_lines(path):
                for start, end in line_ranges(path):
                    bad_lines: list[BadLine] = []
                    rows = self._score(_read_lines(path, start, end, bad_lines))
                    yield ScoredBatch(rows, bad_lines)
            else:
                read = iter_cases(path)
                while chunk := list(islice(read, CASES_PER_BATCH)):
                    named = [(file_identity(case, eval_set_name(path)), case) for case in chunk]
                    yield ScoredBatch(self._score(named))

    def _score(self, cases: Iterable[NamedCase]) -> ScoreRows:
        return score_cases(self._scorer, cases, self._indexes, self._threads, self._observe)


def is_judged(metric: EvalMetric) -> bool:
    """Tell whether a metric asks a judge."""
    return metric.criterion is not None and metric.criterion.llm_judge is not None


def score_cases(
    scorer: CaseScorer,
    cases: Iterable[NamedCase],
    indexes: Sequence[int],
    threads: int = 1,
    observe: Observer | None = None,
) -> ScoreRows:
    """Score named cases, on several threads when that helps; rows keep the order of the cases."""
    rows = ScoreRows()
    for identity, case, score in _scored(scorer, cases, threads):
        add_rows(rows, identity, case, score, indexes)
        if observe is not None:
            observe(identity, case, score)
    return rows


def _scored(
    scorer: CaseScorer, cases: Iterable[NamedCase], threads: int
) -> Iterator[tuple[CaseIdentity, CaseData, CaseScore]]:
    if threads == 1:
        # One case after the other, while it is in the processor's cache.
        for identity, case in cases:
            yield identity, case, scorer.score(case)
        return
    named = list(cases)
    with ThreadPoolExecutor(threads, thread_name_prefix="evaltap-judge") as pool:
        scores = pool.map(scorer.score, [case for _, case in named])
        for (identity, case), score in zip(named, scores, strict=True):
            yield identity, case, score


def line_ranges(path: Path) -> Iterator[tuple[int, int]]:
    """Yield byte ranges of about RANGE_BYTES that end at line ends."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = 0
        while start < size:
            file.seek(min(start + RANGE_BYTES, size))
            file.readline()
            end = file.tell()
            yield start, end
            start = end


def _read_lines(
    path: Path, start: int, end: int, bad_lines: list[BadLine]
) -> Iterator[NamedCase]:
    """Yield the cases of a byte range; lines that hold none are added to `bad_lines`."""
    name = eval_set_name(path)
    with path.open("rb") as file:
        file.seek(start)
        offset = start
        for line in io.BytesIO(file.read(end - start)):
            if line.strip():
                try:
                    case = read_case(line)
                except FormatError as error:
                    bad_lines.append(BadLine(str(path), offset, _place(path, offset, error), line))
                else:
                    yield file_identity(case, name), case
            offset += len(line)


def _place(path: Path, offset: int, error: FormatError) -> str:
    """Return a message that names the line of a bad case, counting lines only now."""
    with path.open("rb") as file:
        line = file.read(offset).count(b"\n") + 1
    inner = "" if error.place.startswith("line ") else error.place
    return str(
        FormatError(error.detail, path=str(path), place=f"line {line}{inner and ', '}{inner}")
    )


# -- worker processes ------------------------------------------------------------------------------

_worker_scorer: CaseScorer | None = None


def _start_workers(scorer: CaseScorer, count: int) -> Executor:
    # Forked workers have every module loaded; elsewhere than on Linux forking is not safe.
    method = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(
        count, multiprocessing.get_context(method), _begin_worker, (scorer.metrics,)
    )
    pool.submit(_ready).result()
    return pool


def _begin_worker(metrics: Sequence[EvalMetric]) -> None:
    global _worker_scorer
    _worker_scorer = CaseScorer(metrics)
    # Cases are trees without cycles: reference counts free them, the collector would only look.
    gc.disable()


def _ready() -> bool:
    return True


def _score_range(task: tuple[str, int, int]) -> ScoredBatch:
    assert _worker_scorer is not None
    path, start, end = task
    bad_lines: list[BadLine] = []
    cases = _read_lines(Path(path), start, end, bad_lines)
    indexes = range(len(_worker_scorer.metrics))
    return ScoredBatch(score_cases(_worker_scorer, cases, indexes), bad_lines)


def _ordered(
    pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], in_flight: int
) -> Iterator[Result]:
    """Yield results in the order of the items, with at most `in_flight` of them under way."""
    remaining = iter(items)
    waiting: deque[Future[Any]] = deque(
        pool.submit(work, item) for item in islice(remaining, in_flight)
    )
    while waiting:
        result = waiting.popleft().result()
        for item in islice(remaining, 1):
            waiting.append(pool.submit(work, item))
        yield result


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
