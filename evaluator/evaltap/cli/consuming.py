"""What `evaltap consume` shows while it runs and at its end: progress, gaps, signs of life, the verdict."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import MinuteLine
from evaltap.cli.options.live import Running
from evaltap.cli.options.verdict import (
    GuardOptions,
    Scope,
    guarded_exit,
    worst_differences,
    write_reports,
)

if TYPE_CHECKING:
    from evaltap.evaluator.pipeline.live.consumer import Consumed
    from evaltap.evaluator.reports.summary import Difference, Summary
    from evaltap.evaluator.store.database import Store
    from evaltap.schemas.formats.model import Json


def progress_reporter(command: str, show: Callable[[int], None]) -> "Callable[[Consumed], None]":
    """Return a function that shows the consumer's progress and reports each gap once."""
    reported: list[str] = []

    def report(consumed: "Consumed") -> None:
        show(consumed.landed.turns)
        for gap in consumed.gaps[len(reported) :]:
            reported.append(gap)
            print(f"evaltap {command}: GAP {gap}", file=sys.stderr)

    return report


def signs_of_life(
    command: str, heartbeat_file: Path | None, service: Running
) -> "Callable[[Consumed], None]":
    """Return a function that updates probes and heartbeat and, without a terminal, logs once a minute."""
    from evaltap.evaluator.pipeline.live.heartbeat import heartbeat
    from evaltap.schemas.text import counted

    touch = heartbeat(heartbeat_file) if heartbeat_file else None
    line = None if sys.stderr.isatty() else MinuteLine()
    before = 0

    def beat(consumed: "Consumed") -> None:
        service.beat()
        if touch is not None:
            touch()
        if line is not None:
            line.due(lambda: status(consumed))

    def status(consumed: "Consumed") -> str:
        nonlocal before
        landed, new = consumed.landed, consumed.landed.turns - before
        before = landed.turns
        return (
            f"evaltap {command}: {counted(landed.turns, 'turn')} landed (+{new:,}),"
            f" {counted(consumed.cases_scored, 'case')} scored,"
            f" {counted(landed.dead_letters, 'dead letter')}"
        )

    return beat


@dataclass(frozen=True, slots=True)
class Verdict:
    """The summary and exit code of the stored cases at the end; empty without metrics."""

    summary: "Summary | None" = None
    exit_code: int = 0
    differences: "Sequence[Difference]" = ()


def read_verdict(
    command: str,
    store: "Store",
    scope: Scope,
    *,
    reports: tuple[Path, ...],
    guards: GuardOptions,
    examples: bool,
) -> Verdict:
    """Write the reports and return the verdict, with `examples` of failures.

    Keeps to the memory limit of landing if that suffices.
    """
    from evaltap.evaluator.reports.summary import summarise
    from evaltap.evaluator.store.database import LANDING_MEMORY

    def read() -> Verdict:
        summary = summarise(store, metrics=scope.digests)
        write_reports(command, reports, store, scope)
        code = guarded_exit(guards, store, summary, scope)
        differences = worst_differences(store, summary, scope) if examples else []
        return Verdict(summary, code, differences)

    with store.limited_memory(LANDING_MEMORY):
        return store.with_memory(read)  # the reasons of the scores can be large


def outcome_data(consumed: "Consumed", verdict: Verdict) -> "dict[str, Json]":
    """Return what was landed and scored, with the verdict, as JSON data."""
    landed, summary = consumed.landed, verdict.summary
    return {
        "records": landed.records,
        "turns_landed": landed.turns,
        "duplicates": landed.duplicates,
        "dead_letters": landed.dead_letters,
        "gaps": consumed.gaps,
        "cases_scored": consumed.cases_scored,
        "summary": {**summary.data(), "exit_code": verdict.exit_code} if summary else None,
    }
