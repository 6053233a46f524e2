"""`evaltap consume`: land the cases of a log in a DuckDB file and score them."""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.evaluator.commands.guarding import (
    add_guards,
    add_reports,
    guarded_exit,
    worst_differences,
    write_reports,
)
from evaltap.evaluator.commands.judging import judging
from evaltap.evaluator.commands.logs import open_source, remember, tell_telemetry
from evaltap.evaluator.commands.options import (
    add_json,
    add_scoring,
    case_scorer,
    open_store,
    pending_scorer,
    progress,
)
from evaltap.evaluator.commands.publishing import add_dlq_topic, add_scores_topic, outboxes
from evaltap.evaluator.commands.stopping import stopped_by_signals

if TYPE_CHECKING:
    from evaltap.evaluator.consumer import Consumer, Duty
    from evaltap.evaluator.jobs import PendingScorer
    from evaltap.evaluator.report import Difference, Summary
    from evaltap.evaluator.scoring import CaseScorer
    from evaltap.evaluator.store import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap consume --log agent.log.db --db cases.duckdb --until-idle     # only land\n"
        "  evaltap consume --log agent.log.db --db cases.duckdb --metrics metrics.json\n"
        "  evaltap consume --log 'kafka://broker:9092/otlp_spans,otlp_logs?format=otlp' --db cases.duckdb\n\n"
        "exit code with --until-idle and --metrics: 0 all passed, 1 something failed, 3 incomplete"
    )
    add = parser.add_argument
    add(
        "--log",
        required=True,
        metavar="LOG",
        help="the log to read: a file, kafka://host:port/topic, or with ?format=otlp topics of raw OTLP",
    )
    add_dlq_topic(parser)
    add_consuming(
        parser,
        metrics_help="score with these metrics (default: only land)",
        metrics_required=False,
    )
    parser.set_defaults(run=run)


def add_consuming(
    parser: argparse.ArgumentParser, *, metrics_help: str, metrics_required: bool
) -> None:
    """Add what every command takes that lands a log."""
    add = parser.add_argument
    add("--db", required=True, type=Path, metavar="X.duckdb", help="where cases and scores go")
    add(
        "--until-idle",
        action="store_true",
        help="stop when the log has nothing new and everything is scored",
    )
    add_scores_topic(parser)
    add_scoring(parser, metrics_help=metrics_help, required=metrics_required)
    add_reports(parser)
    add_json(parser)
    add_guards(parser)


def run(options: argparse.Namespace) -> int:
    """Consume; return the exit code."""
    with judging(options):
        scorer = case_scorer(options) if options.metrics else None
        return consume(options, scorer, _equip)


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a consumer does beside landing, and which metrics it scores itself (None: all)."""

    only: "Sequence[int] | None" = None
    duties: "Sequence[Duty]" = ()
    tell: Callable[[], Mapping[str, object]] = dict
    """Says at the end what came of it; the values go into `--json`."""


def _equip(options: argparse.Namespace, store: "Store", scorer: "CaseScorer | None") -> Equipment:
    return Equipment(duties=outboxes(options, store))


def consume(
    options: argparse.Namespace,
    scorer: "CaseScorer | None",
    equip: "Callable[[argparse.Namespace, Store, CaseScorer | None], Equipment]",
) -> int:
    """Land a log and score it until stopped, or until it is idle; return the exit code."""
    from evaltap.evaluator.consumer import LANDING_MEMORY, Consumed, Consumer
    from evaltap.evaluator.store import NoMemoryError

    with (
        closing(open_source(options.log, until_idle=options.until_idle)) as source,
        open_store(options.db) as store,
        progress("turns landed") as show,
        ExitStack() as opened,
    ):
        moved = remember(options.log, source, store)
        beside = equip(options, store, scorer)
        for duty in beside.duties:
            opened.callback(duty.close)
        pending = (
            None if scorer is None else pending_scorer(store, scorer, options, only=beside.only)
        )
        consumer = Consumer(source, store, scorer=pending, duties=beside.duties, log=options.log)

        consumer.consumed.gaps += moved
        told: list[str] = []

        def report(consumed: Consumed) -> None:
            show(consumed.landed.turns)
            for gap in consumed.gaps[len(told) :]:
                told.append(gap)
                print(f"evaltap {options.command}: GAP {gap}", file=sys.stderr)

        with (
            stopped_by_signals(options.command, consumer.stop),
            _collecting_rarely(),
            _switching_often(),
        ):
            report(consumer.run(until_idle=options.until_idle, report=report))
        tell_telemetry(source)
        verdict = Verdict()
        if pending is not None:
            with store.writing_much(LANDING_MEMORY):
                try:
                    verdict = _verdict(options, store, pending)
                except NoMemoryError:  # large reasons
                    with store.reading_much():
                        verdict = _verdict(options, store, pending)
        return _finish(options, consumer, verdict, beside.tell())


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Have Python look for cycles a hundred times less often.

    Turns are trees, which reference counts free; to look through all that is held for each few hundred
    of their parts takes a third of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(before[0] * 100, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _switching_often() -> Iterator[None]:
    """Let the thread that commits have the interpreter after a tenth of a millisecond, not after five.

    It needs it some forty times a transaction and for moments; while it waits nothing is written.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the store says of the cases at the end; without metrics nothing."""

    summary: "Summary | None" = None
    exit_code: int = 0
    differences: "Sequence[Difference]" = ()


def _verdict(options: argparse.Namespace, store: "Store", pending: "PendingScorer") -> Verdict:
    """Write the reports that are asked for, and return the verdict."""
    from evaltap.evaluator.report import summarise

    digests = [metric.digest for metric in pending.metrics]
    summary = summarise(store, metrics=digests)
    write_reports(options, store, digests=digests)
    code = guarded_exit(options, store, summary, digests=digests)
    return Verdict(summary, code, worst_differences(options, store, summary, digests=digests))


def _finish(
    options: argparse.Namespace, consumer: "Consumer", verdict: Verdict, told: Mapping[str, object]
) -> int:
    """Say what was landed and scored; return the exit code."""
    from evaltap.evaluator.report import console, counted, print_summary

    consumed, landed = consumer.consumed, consumer.consumed.landed
    summary, code = verdict.summary, verdict.exit_code
    if options.json:
        data = {
            "records": landed.records,
            "turns_landed": landed.turns,
            "duplicates": landed.duplicates,
            "dead_letters": landed.dead_letters,
            "gaps": consumed.gaps,
            "cases_scored": consumed.cases_scored,
            **told,
            "summary": {**summary.data(), "exit_code": code} if summary else None,
        }
        print(json.dumps(data, ensure_ascii=False))
    else:
        print(
            f"{counted(landed.turns, 'turn')} landed, {counted(landed.duplicates, 'duplicate')},"
            f" {counted(landed.dead_letters, 'dead letter')},"
            f" {counted(consumed.cases_scored, 'case')} scored"
        )
        if summary:
            print_summary(summary, console(), verdict.differences)
    return code if options.until_idle else 0
