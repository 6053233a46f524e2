"""Score the files of a run on Ray: workers score parts of files and write Parquet files.

The same pure function scores a part here and in one process, so both produce the same rows.  A part is
written to its own folder, which is renamed when it is complete, so a part that is scored again because its
node died leaves one result.  A case that kills its worker gets an error at the third try.  Only counts come
back to the driver.

Every node must see files and results under the same path.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.datasets.rows import case_or_bad_line
from evaltap.evaluator.cases.datasets.tables import row_group, row_group_starts
from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.origin import NamedCase, case_identity
from evaltap.evaluator.cases.pairing import Placeholders
from evaltap.evaluator.pipeline.batch.crash_guard import PartJournal
from evaltap.evaluator.pipeline.batch.files import Part, part_cases, parts
from evaltap.evaluator.pipeline.batch.ray_cluster import RayCluster, readable
from evaltap.evaluator.pipeline.batch.ray_engine import RayEngine, RayWorkers
from evaltap.evaluator.pipeline.batch.run import FilesScored, end_files, write_bad_lines
from evaltap.evaluator.scoring.batch import Progress, add_rows, score_batches
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.contract.hosts import PROVIDERS
from evaltap.evaluator.scoring.judge_session import JudgeSession, JudgeSettings
from evaltap.evaluator.scoring.judges.budget import BudgetAccount
from evaltap.evaluator.scoring.judges.settings import most_parts
from evaltap.evaluator.scoring.results.parquet import drop_unfinished, read_results_from, write_part
from evaltap.evaluator.scoring.results.rows import ScoreRows
from evaltap.evaluator.scoring.results.runs import Run, new_run, write_run
from evaltap.evaluator.scoring.results.writer import ScoreWriter
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas.files.content import eval_set_name
from evaltap.schemas.formats.metric import EvalMetric

PART_BYTES = 8 << 20
"""Bytes of JSON Lines in a part: a few seconds of work, so that a fault repeats little."""
READY_PARTS = 2
"""Parts for each processor of the cluster: one that is scored, one that waits."""


@dataclass(frozen=True, slots=True)
class RayTask:
    """The settings of a run, sent to every worker."""

    run: Run
    folder: Path
    """The folder of the run's parts."""
    make_scorer: Callable[[], CaseScorer]
    columns: Columns = field(default_factory=Columns)
    threads: int = 1


class PartScored(NamedTuple):
    cases: int
    without_reference: int
    sampled: int
    bad_lines: list[BadLine]


def score_on_ray(
    task: RayTask, paths: Sequence[Path], *, address: str | None
) -> Iterator[PartScored]:
    """Score files on the Ray cluster at `address`, or on one started here; yield the outcome of each part.

    Raises ConfigurationError if Ray is not installed, InputError if the cluster or a file cannot be reached.
    """
    waiting = enumerate([*_all_parts(paths)], start=1)
    with RayCluster(address) as cluster:
        ray, running = cluster.ray, list[object]()
        # Whatever its worker dies of; the journal gives up the case that kills it.
        score = ray.remote(max_retries=-1)(_score_part)
        sent = ray.put(task)
        while True:
            room = READY_PARTS * cluster.processors() - len(running)
            running += [score.remote(sent, *one) for one in islice(waiting, max(0, room))]
            if not running:
                break
            done, running = ray.wait(running)
            try:
                yield from ray.get(done)
            except ray.exceptions.RayError as error:
                raise readable(error) from None
    drop_unfinished(task.folder)


def _all_parts(paths: Sequence[Path]) -> Iterator[Part]:
    for path in paths:
        if path.suffix.lower() == ".parquet":
            for number, first_row in enumerate(row_group_starts(path)):
                yield Part(str(path.resolve()), number, first_row)
        else:
            yield from parts([path.resolve()], PART_BYTES)


# -- on the workers --------------------------------------------------------------------------------


class _Worker:
    """The state of a worker process: compiled metrics, and a store in memory that produces the rows."""

    def __init__(self, task: RayTask) -> None:
        self.scorer = task.make_scorer()
        self.store = Store(":memory:")
        self.store.execute("SET threads = 1")
        write_run(self.store, task.run)
        self.writer = ScoreWriter(self.store, task.run)


_workers: Final[dict[str, _Worker]] = {}


def _score_part(task: RayTask, number: int, part: Part) -> PartScored:
    worker = _workers.get(task.run.run_id)
    if worker is None:
        worker = _workers[task.run.run_id] = _Worker(task)
    bad_lines: list[BadLine] = []
    lazy = worker.scorer.outline_suffices
    if part.path.lower().endswith(".parquet"):
        cases = _row_group_cases(part, task.columns, bad_lines)
    else:
        cases = part_cases(part, bad_lines, lazy=lazy)
    scorer = worker.scorer
    task.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = PartJournal(task.folder / f".part-{number:06}.tries")
    batches = (
        _one_by_one(scorer, cases, journal) if journal.suspicious else _batches(scorer, cases, task)
    )
    packed = [rows.packed() for rows in batches]
    worker.writer.write(packed)
    write_part(worker.store, task.folder, number)
    journal.done()
    return PartScored(
        sum(rows.case_count for rows in packed),
        sum(rows.without_reference for rows in packed),
        sum(rows.sampled for rows in packed),
        bad_lines,
    )


def _batches(scorer: CaseScorer, cases: Iterable[NamedCase], task: RayTask) -> Iterator[ScoreRows]:
    size = 1 << 30  # all rows of the part at once
    return score_batches(scorer, cases, range(len(scorer.metrics)), size, task.threads)


def _one_by_one(
    scorer: CaseScorer, cases: Iterable[NamedCase], journal: PartJournal
) -> Iterator[ScoreRows]:
    """Score the cases of a part with which a worker died, and give up the one that keeps killing it."""
    every = range(len(scorer.metrics))
    for place, (identity, case) in enumerate(cases):
        reason = journal.gives_up(place)
        if reason is None:
            journal.begins(place)
            yield from score_batches(scorer, [(identity, case)], every, 1)
        else:
            rows = ScoreRows()
            given_up = CaseScore(identity.eval_id, Status.FAILED, None, reason, ())
            add_rows(rows, identity, case, given_up, every)
            yield rows


def _row_group_cases(part: Part, columns: Columns, bad_lines: list[BadLine]) -> Iterator[NamedCase]:
    """Yield the cases of a Parquet file's row group `start`; the part's `end` is its first row's number."""
    path = Path(part.path)
    name = eval_set_name(path.with_suffix(""))
    for number, row in row_group(path, part.start, part.end):
        found = case_or_bad_line(row, columns, number=number, path=part.path, place=f"row {number}")
        if isinstance(found, BadLine):
            bad_lines.append(found)
        else:
            yield case_identity(found, name), found


_SENT_VARIABLES = (
    "EVALTAP_JUDGE_",
    "EVALTAP_EMBEDDINGS_",
    "EVALTAP_ALLOW_VARIABLES",
    "OPENAI_BASE_URL",
    *(key for provider in PROVIDERS.values() for key in provider.keys),
)


@dataclass(frozen=True, slots=True)
class RayFiles:
    """The files that a cluster scores, and how."""

    cases: tuple[Path, ...]
    source: str
    columns: Columns
    concurrency: int
    judges: JudgeSettings
    folder: Path
    """The folder of the results, which every node can reach."""
    address: str | None = None


def score_files_on_ray(
    files: RayFiles, store: Store, scorer: CaseScorer, progress: Progress
) -> FilesScored:
    """Score files on a cluster, and let the store read the results."""
    folder = files.folder.resolve()
    read_results_from(store, folder)
    run = new_run("files", files.source, run_metrics(scorer))
    write_run(store, run)
    task = RayTask(
        run,
        folder / run.run_id,
        WorkerScorer.of(scorer, files.judges),
        files.columns,
        files.concurrency if scorer.waits else 1,
    )
    cases = without_reference = sampled = 0
    bad_lines: list[BadLine] = []
    for part in score_on_ray(task, files.cases, address=files.address):
        cases += part.cases
        without_reference += part.without_reference
        sampled += part.sampled
        if part.bad_lines:
            bad_lines += part.bad_lines
            write_bad_lines(store, part.bad_lines)
        progress(cases)
    return end_files(store, run, cases, bad_lines, without_reference, sampled)


def ray_engine(
    scorer: CaseScorer,
    judges: JudgeSettings,
    *,
    concurrency: int,
    workers: int | None,
    address: str | None,
) -> RayEngine:
    """Return the engine that scores landed cases on a cluster."""
    found = RayWorkers(
        WorkerScorer.of(scorer, judges),
        threads=concurrency if scorer.waits else 1,
        count=workers or 0,
        most=most_parts(judges.environ()),
        budget=judges.budget,
    )
    return RayEngine(found, address=address)


@dataclass(frozen=True, slots=True)
class WorkerScorer:
    """Builds the scorer on a worker; sent to every worker.

    Judges and embeddings are configured by the owner's environment. Variables that it does not set come
    from the node's environment.
    """

    metrics: tuple[EvalMetric, ...]
    judges: JudgeSettings
    environ: Mapping[str, str] = field(repr=False)
    placeholders: Placeholders = "auto"
    case_seconds: float = 60.0

    @classmethod
    def of(cls, scorer: CaseScorer, judges: JudgeSettings) -> "WorkerScorer":
        """Return an object that builds this scorer in another process, without the budget."""
        sent = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_SENT_VARIABLES) and not name.startswith("EVALTAP_JUDGE_BUDGET_")
        }
        return cls(
            tuple(scorer.metrics),
            replace(judges, budget=None),
            sent,
            scorer.placeholders,
            scorer.case_seconds,
        )

    def __call__(self, workers: int = 1, budget: BudgetAccount | None = None) -> CaseScorer:
        """Build the scorer for one of `workers` processes."""
        os.environ.update(self.environ)  # this process belongs to the worker alone
        session = JudgeSession(self.judges, workers=workers, budget=budget)
        return CaseScorer(
            self.metrics,
            services=session.services(self.metrics),
            placeholders=self.placeholders,
            case_seconds=self.case_seconds,
        )
