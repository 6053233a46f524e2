"""`evaltap score --engine`: in this process and its workers, or on a Ray cluster."""

import argparse
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.jobs import FilesScored, Progress
    from evaltap.evaluator.scoring import CaseScorer
    from evaltap.evaluator.store import Store
    from evaltap.schemas.metric import EvalMetric

_OF_ONE_PROCESS = {
    "result": "--result",
    "workers": "--workers",
    "tasks": "--tasks",
    "items": "--items",
    "budget_usd": "--budget-usd",
    "budget_tokens": "--budget-tokens",
    "budget_calls": "--budget-calls",
    "judge_rpm": "--judge-rpm",
    "judge_tpm": "--judge-tpm",
}
_OF_ONE_PROCESS_VARIABLES = (
    "EVALTAP_TASKS",
    "EVALTAP_ITEMS",
    "EVALTAP_JUDGE_BUDGET_USD",
    "EVALTAP_JUDGE_BUDGET_TOKENS",
    "EVALTAP_JUDGE_BUDGET_CALLS",
    "EVALTAP_JUDGE_RPM",
    "EVALTAP_JUDGE_TPM",
)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add what chooses where cases are scored."""
    add = parser.add_argument_group("where to score").add_argument
    add(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="local: this machine; ray: a Ray cluster, for big batches of JSON Lines and Parquet",
    )
    add(
        "--ray-address",
        metavar="ADDRESS",
        help="the cluster's address, or auto (default: RAY_ADDRESS, or a cluster that is started here)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="with --engine ray: where the results go as Parquet files, a folder that every node sees"
        " (default: X.parquet beside --db X.duckdb)",
    )


def check_engine(options: argparse.Namespace, databases: Sequence[Path]) -> None:
    """Raise InputError for options that do not go with the engine."""
    if options.engine == "local":
        for name in ("ray_address", "out"):
            if getattr(options, name) is not None:
                raise InputError(f"--{name.replace('_', '-')}: goes with --engine ray")
        return
    if databases:
        raise InputError(
            f"--engine ray scores files; {databases[0]} is a DuckDB file: score it without, or"
            " `evaltap export` its cases"
        )
    given = [option for name, option in _OF_ONE_PROCESS.items() if getattr(options, name)]
    given += [name for name in _OF_ONE_PROCESS_VARIABLES if os.environ.get(name, "").strip()]
    if given:
        raise InputError(
            f"{given[0]}: holds for one process and cannot be kept on many nodes; leave it out, or"
            " score without --engine ray"
        )
    if options.out is None and options.db is None:
        raise InputError("--engine ray writes Parquet files; say where with --out DIR or --db")


def score_on_ray(
    options: argparse.Namespace,
    store: "Store",
    scorer: "CaseScorer",
    source: str,
    progress: "Progress",
) -> "FilesScored":
    """Score the files of the options on a cluster, and let the store read the results."""
    from evaltap.evaluator.datasets.columns import parse_columns
    from evaltap.evaluator.jobs import end_files, run_metrics, write_bad_lines
    from evaltap.evaluator.parquet_results import read_results_from
    from evaltap.evaluator.ray_engine import RayTask
    from evaltap.evaluator.ray_engine import score_on_ray as scored_parts
    from evaltap.evaluator.runs import new_run, write_run

    folder = (options.out or options.db.with_suffix(".parquet")).resolve()
    read_results_from(store, folder)
    run = new_run("files", source, run_metrics(scorer))
    write_run(store, run)
    make_scorer = functools.partial(_make_scorer, scorer.metrics, _judge_settings(options))
    task = RayTask(
        run,
        folder / run.run_id,
        make_scorer,
        parse_columns(options.map),
        options.concurrency if scorer.waits else 1,
    )
    cases = without_reference = 0
    bad_lines = []
    for part in scored_parts(task, options.cases, address=options.ray_address):
        cases += part.cases
        without_reference += part.without_reference
        if part.bad_lines:
            bad_lines += part.bad_lines
            write_bad_lines(store, part.bad_lines)
        progress(cases)
    return end_files(store, run, cases, bad_lines, without_reference)


def _judge_settings(options: argparse.Namespace) -> dict[str, object]:
    names = ("judge_cache", "judge_concurrency")
    return {name: getattr(options, name) for name in names}


def _make_scorer(metrics: "Sequence[EvalMetric]", settings: dict[str, object]) -> "CaseScorer":
    """Build the scorer on a worker; addresses and keys of judges come from its own environment."""
    from evaltap.evaluator.commands.judging import judging_services
    from evaltap.evaluator.scoring import CaseScorer

    nothing = dict.fromkeys(
        ("budget_usd", "budget_tokens", "budget_calls", "judge_rpm", "judge_tpm")
    )
    options = argparse.Namespace(**nothing, **settings)
    return CaseScorer(metrics, services=judging_services(options, metrics))
