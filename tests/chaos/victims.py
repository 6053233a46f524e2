"""Real processes to be killed, forked from a server that has loaded everything.

Loading takes longer than the interrupted work, so a thousand kills must not load anything again.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

LOADED = [
    "chaos.victims",
    "evaltap.cli.commands.consume",
    "evaltap.evaluator.pipeline.live.consumer",
    "evaltap.evaluator.pipeline.batch.run",
    "evaltap.evaluator.reports.summary",
    "evaltap.evaluator.store.database",
    "evaltap.evaluator.scoring.evaluators.tool_trajectory",
    "evaltap.evaluator.scoring.evaluators.final_response",
    "evaltap.evaluator.ingest.sources.local_log",
    "duckdb",
    "nanoarrow",
    "numpy",
]


def start(target: Callable[..., Any], *arguments: Any) -> ForkServerProcess:
    """Start a process; `kill` it, or `join` it and read its `exitcode`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def quiet(path: Path) -> None:
    """Send what the process says to a file."""
    to = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(to, 1)
    os.dup2(to, 2)
    os.close(to)


def consume(folder: Path, *more: str) -> None:
    """Run `evaltap consume` in a folder as the command does, and end with its exit code."""
    from evaltap.cli.main import main

    os.chdir(folder)
    quiet(folder / "said.txt")
    raise SystemExit(
        main(
            ["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "metrics.json",
             "--until-idle", "--allow-code", *more]
        )
    )  # fmt: skip
