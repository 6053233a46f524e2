"""Score the files of a run on a Ray cluster: what the workers are sent, and where their results go."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.pairing import Placeholders
from evaltap.evaluator.pipeline.batch.ray_engine import RayEngine, RayWorkers
from evaltap.evaluator.pipeline.batch.ray_files import RayTask, score_on_ray
from evaltap.evaluator.pipeline.batch.run import FilesScored, end_files, write_bad_lines
from evaltap.evaluator.pipeline.batch.scorer import Progress
from evaltap.evaluator.scoring.contract.hosts import PROVIDERS
from evaltap.evaluator.scoring.judge_session import JudgeSession, JudgeSettings
from evaltap.evaluator.scoring.judges.budget import BudgetAccount
from evaltap.evaluator.scoring.judges.settings import most_parts
from evaltap.evaluator.scoring.results.parquet import read_results_from
from evaltap.evaluator.scoring.results.runs import new_run, write_run
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.metric import EvalMetric

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
