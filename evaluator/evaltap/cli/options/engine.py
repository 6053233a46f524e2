"""`--engine` of `score` and `consume`: in this process, or on a Ray cluster."""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.judges import JudgeOptions, JudgeSession
from evaltap.cli.parsing import positive
from evaltap.evaluator.scoring.contract.hosts import PROVIDERS
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.cases.pairing import Placeholders
    from evaltap.evaluator.pipeline.batch.engine import Engine
    from evaltap.evaluator.pipeline.batch.run import FilesScored
    from evaltap.evaluator.pipeline.batch.scorer import Progress
    from evaltap.evaluator.scoring.judges.budget import BudgetAccount
    from evaltap.evaluator.scoring.scorer import CaseScorer
    from evaltap.evaluator.store.database import Store
    from evaltap.schemas.formats.metric import EvalMetric

_OF_ONE_PROCESS_VARIABLES = (
    "EVALTAP_TASKS",
    "EVALTAP_ITEMS",
    "EVALTAP_JUDGE_BUDGET_USD",
    "EVALTAP_JUDGE_BUDGET_TOKENS",
    "EVALTAP_JUDGE_BUDGET_CALLS",
    "EVALTAP_JUDGE_RPM",
    "EVALTAP_JUDGE_TPM",
)

_SENT_VARIABLES = (
    "EVALTAP_JUDGE_",
    "EVALTAP_EMBEDDINGS_",
    "EVALTAP_ALLOW_VARIABLES",
    "OPENAI_BASE_URL",
    *(key for provider in PROVIDERS.values() for key in provider.keys),
)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where the cases of files are scored."""

    engine: str
    ray_address: str | None
    out: Path | None
    db: Path | None

    @property
    def on_ray(self) -> bool:
        """Whether a Ray cluster scores."""
        return self.engine == "ray"


@dataclass(frozen=True, slots=True)
class LiveEngineOptions:
    """Where landed cases are scored."""

    engine: str
    ray_address: str | None
    ray_workers: int | None

    def check(self, *, scores: bool) -> None:
        """Raise InputError for options that cannot be combined."""
        if self.engine == "ray" and not scores:
            raise InputError("--engine ray: nothing to score without --metrics; add it")
        given = {"--ray-address": self.ray_address, "--ray-workers": self.ray_workers}
        for name, value in given.items():
            if self.engine != "ray" and value is not None:
                raise InputError(f"{name}: only works with --engine ray; add it")


def add_live_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose where landed cases are scored."""
    add = _add_ray(parser, "ray: a Ray cluster, for expensive metrics (judges, models, commands)")
    add(
        "--ray-workers",
        type=positive,
        metavar="N",
        help="number of scoring processes, each with --concurrency judged cases in flight (default: one"
        " for each processor of the cluster)",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose where the cases of files are scored."""
    add = _add_ray(parser, "ray: a Ray cluster, for large batches of JSON Lines and Parquet")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="with --engine ray: a folder for the Parquet results that every node can reach (default:"
        " X.parquet next to --db X.duckdb)",
    )


def _add_ray(parser: argparse.ArgumentParser, ray: str) -> "Callable[..., argparse.Action]":
    add = parser.add_argument_group("where to score").add_argument
    add(
        "--engine", choices=("local", "ray"), default="local", help=f"local: this machine; {ray}"
    )  # fmt: skip
    add(
        "--ray-address",
        metavar="ADDRESS",
        help="the cluster's address, or auto (default: RAY_ADDRESS, or start a cluster on this machine)",
    )
    return add


def check_engine(
    options: EngineOptions, one_process_only: Sequence[str], databases: Sequence[Path]
) -> None:
    """Raise InputError for options that the engine does not support.

    `one_process_only` are the given options that cannot be enforced across nodes.
    """
    if not options.on_ray:
        for name, value in (("--ray-address", options.ray_address), ("--out", options.out)):
            if value is not None:
                raise InputError(f"{name}: only works with --engine ray; add it")
        return
    if databases:
        raise InputError(
            f"--engine ray scores files, and {databases[0]} is a DuckDB file; leave --engine ray out, or"
            " write its cases to a file with `evaltap export`"
        )
    given = [
        *one_process_only,
        *(name for name in _OF_ONE_PROCESS_VARIABLES if os.environ.get(name, "").strip()),
    ]
    if given:
        raise InputError(
            f"{given[0]}: a limit of one process, which cannot be enforced across nodes; leave it out, or"
            " score without --engine ray"
        )
    if options.out is None and options.db is None:
        raise InputError(
            "--engine ray writes Parquet files; name a folder with --out DIR, or give --db"
        )


@dataclass(frozen=True, slots=True)
class RayFiles:
    """The files that a cluster scores, and how."""

    cases: tuple[Path, ...]
    source: str
    columns: tuple[str, ...]
    concurrency: int
    judges: JudgeOptions


def score_on_ray(
    options: EngineOptions,
    files: RayFiles,
    store: "Store",
    scorer: "CaseScorer",
    progress: "Progress",
) -> "FilesScored":
    """Score files on a cluster, and let the store read the results."""
    from evaltap.evaluator.cases.datasets.columns import parse_columns
    from evaltap.evaluator.pipeline.batch.ray_files import RayTask
    from evaltap.evaluator.pipeline.batch.ray_files import score_on_ray as scored_parts
    from evaltap.evaluator.pipeline.batch.run import end_files, write_bad_lines
    from evaltap.evaluator.scoring.results.parquet import read_results_from
    from evaltap.evaluator.scoring.results.runs import new_run, write_run
    from evaltap.evaluator.scoring.run_metrics import run_metrics

    folder = options.out
    if folder is None:
        assert options.db is not None  # see check_engine
        folder = options.db.with_suffix(".parquet")
    folder = folder.resolve()
    read_results_from(store, folder)
    run = new_run("files", files.source, run_metrics(scorer))
    write_run(store, run)
    kept = JudgeOptions(
        judge_cache=files.judges.judge_cache,
        judge_concurrency=files.judges.judge_concurrency,
        allow_variables=files.judges.allow_variables,
    )
    task = RayTask(
        run,
        folder / run.run_id,
        WorkerScorer.of(scorer, kept),
        parse_columns(files.columns),
        files.concurrency if scorer.waits else 1,
    )
    cases = without_reference = sampled = 0
    bad_lines = []
    for part in scored_parts(task, files.cases, address=options.ray_address):
        cases += part.cases
        without_reference += part.without_reference
        sampled += part.sampled
        if part.bad_lines:
            bad_lines += part.bad_lines
            write_bad_lines(store, part.bad_lines)
        progress(cases)
    return end_files(store, run, cases, bad_lines, without_reference, sampled)


@dataclass(frozen=True, slots=True)
class WorkerScorer:
    """Builds the scorer on a worker; sent to every worker.

    Judges and embeddings are configured by the owner's environment. Variables that it does not set come
    from the node's environment.
    """

    metrics: "tuple[EvalMetric, ...]"
    judges: JudgeOptions
    environ: Mapping[str, str] = field(repr=False)
    placeholders: "Placeholders" = "auto"
    case_seconds: float = 60.0

    @classmethod
    def of(cls, scorer: "CaseScorer", judges: JudgeOptions) -> "WorkerScorer":
        """Return an object that builds this scorer in another process, without the budget."""
        sent = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_SENT_VARIABLES) and not name.startswith("EVALTAP_JUDGE_BUDGET_")
        }
        return cls(
            tuple(scorer.metrics),
            judges.without_budget(),
            sent,
            scorer.placeholders,
            scorer.case_seconds,
        )

    def __call__(self, workers: int = 1, budget: "BudgetAccount | None" = None) -> "CaseScorer":
        """Build the scorer for one of `workers` processes."""
        from evaltap.evaluator.scoring.scorer import CaseScorer

        os.environ.update(self.environ)  # this process belongs to the worker alone
        session = JudgeSession(self.judges, workers=workers, budget=budget)
        return CaseScorer(
            self.metrics,
            services=session.services(self.metrics),
            placeholders=self.placeholders,
            case_seconds=self.case_seconds,
        )


@contextmanager
def live_engine(
    options: LiveEngineOptions, scorer: "CaseScorer", concurrency: int, judges: JudgeSession
) -> "Iterator[Engine | None]":
    """Yield the engine that scores landed cases; None to score in this process."""
    if options.engine != "ray":
        yield None
        return
    from evaltap.evaluator.pipeline.batch.ray_engine import RayEngine, RayWorkers
    from evaltap.evaluator.scoring.judges.settings import most_parts

    given, environ = judges.options, judges.options.environ()
    workers = RayWorkers(
        WorkerScorer.of(scorer, given),
        threads=concurrency if scorer.waits else 1,
        count=options.ray_workers or 0,
        most=most_parts(environ),
        budget=given.budget_limits(environ),
    )
    engine = RayEngine(workers, address=options.ray_address)
    try:
        with engine:
            yield engine
    finally:
        judges.record_spending(*engine.spending)
