"""`evaltap consume`: land the cases of a log in a DuckDB file and score them."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaltap.cli.consuming import (
    Verdict,
    outcome_data,
    progress_reporter,
    read_verdict,
    signs_of_life,
)
from evaltap.cli.interpreter import collecting_rarely, switching_often
from evaltap.cli.options.common import add_json, open_store, progress
from evaltap.cli.options.engine import LiveEngineOptions, add_live_engine, live_engine
from evaltap.cli.options.judges import JudgeSession
from evaltap.cli.options.live import (
    Running,
    add_monitor,
    add_scores_otlp,
    add_serve,
    check_receivers,
    evidence_of,
    figures_of,
    otlp_outboxes,
    read_monitor,
    running,
    watchers,
)
from evaltap.cli.options.logs import (
    open_source,
    report_start_position,
    report_telemetry,
    restore_progress,
)
from evaltap.cli.options.page import add_page, read_trace_url
from evaltap.cli.options.scoring import (
    ScoringOptions,
    add_scoring,
    case_scorer,
    pending_scorer,
    report_joined,
)
from evaltap.cli.options.topics import PublishOptions, add_dlq_topic, add_scores_topic, outboxes
from evaltap.cli.options.verdict import (
    GuardOptions,
    Scope,
    add_guards,
    add_reports,
)
from evaltap.cli.parsing import duration, partitions
from evaltap.cli.settings import STORE, of_settings
from evaltap.cli.signals import stopped_by_signals
from evaltap.schemas.log.location import parse_log_location

if TYPE_CHECKING:
    from evaltap.evaluator.cases.references import References
    from evaltap.evaluator.ingest.sources.base import CaseSource
    from evaltap.evaluator.pipeline.batch.engine import Engine
    from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
    from evaltap.evaluator.pipeline.live.consumer import Consumer, ConsumerTask
    from evaltap.evaluator.pipeline.live.log_cursor import LogCursor
    from evaltap.evaluator.scoring.scorer import CaseScorer
    from evaltap.evaluator.store.database import Store
    from evaltap.schemas.formats.monitor import MonitorFile


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The log to read, the destination of its cases, and how to score them."""

    command: str
    log: str
    partitions: tuple[int, ...] | None
    db: Path
    until_idle: bool
    begin: str | None
    keep_log: timedelta
    heartbeat: Path | None
    monitor: Path | None
    serve: tuple[str, int] | None
    ui: str | None
    sets: tuple[Path, ...]
    trace_url: str | None
    report: tuple[Path, ...]
    json: bool
    publish: PublishOptions
    scores_otlp: str | None
    explanations: bool
    scoring: ScoringOptions
    guards: GuardOptions
    where: LiveEngineOptions


_EPILOG: Final = (
    "examples:\n"
    "  evaltap consume --log agent.log.db --db cases.duckdb --until-idle\n"
    "  evaltap consume --log agent.log.db --db cases.duckdb --metrics metrics.json\n"
    "  evaltap consume --log agent.log.db --db cases.duckdb --metrics metrics.json \\\n"
    "      --monitor monitor.json\n"
    "  evaltap consume --log kafka://broker:9092/evaltap.cases --partitions 0-3 \\\n"
    "      --db shard-0.duckdb\n"
    "  evaltap consume --log 'kafka://broker:9092/otlp_spans?format=otlp' \\\n"
    "      --db cases.duckdb\n\n"
    "Without --metrics, consume only lands the turns.\n\n"
    "exit code with --until-idle: 0 fine, 1 something failed, 2 some records could not be read, 3"
    " incomplete (1 and 3 only with --metrics)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    log = add(
        "--log",
        required=True,
        metavar="LOG",
        help="the log to read: a file, kafka://host:port/topic, or topics of raw OTLP with ?format=otlp",
    )
    of_settings(log, "EVALTAP_LOG")
    add(
        "--partitions",
        type=partitions,
        metavar="N-M",
        help="read only these partitions of a topic, e.g. 0-3 or 0,2,5-7, to run several consumers side by"
        " side, each with its own --db (`evaltap attach` reads the files as one)",
    )
    add_dlq_topic(parser)
    store = add(
        "--db",
        required=True,
        type=Path,
        metavar="X.duckdb",
        help="the DuckDB file for cases and scores",
    )
    of_settings(store, STORE)
    _add_when(parser)
    add_monitor(parser)
    add_serve(parser)
    add_page(parser)
    add_scores_topic(parser)
    add_scores_otlp(parser)
    add_scoring(
        parser, metrics_help="score with these metrics (default: only land)", required=False
    )
    add_live_engine(parser)
    add_reports(parser)
    add_json(parser)
    add_guards(parser)
    parser.set_defaults(run=run, options=ConsumeOptions)


def _add_when(parser: argparse.ArgumentParser) -> None:
    """Add the options for where to begin, when to stop, log retention and the heartbeat."""
    add = parser.add_argument
    add(
        "--until-idle",
        action="store_true",
        help="exit when the log has nothing new and everything is scored",
    )
    add(
        "--from",
        dest="begin",
        choices=("oldest", "now"),
        help="where a DuckDB file that has never read this log begins: at the oldest record, or after the"
        " newest (default: oldest)",
    )
    add(
        "--keep-log",
        type=duration,
        default=timedelta(hours=24),
        metavar="AGE",
        help="how long a local log keeps records that every consumer has landed, e.g. 24h or 7d; a full log"
        " deletes them sooner (default: 24h)",
    )
    add(
        "--heartbeat",
        type=Path,
        metavar="FILE",
        help="touch this file every few seconds while landing and scoring make progress, for a liveness"
        " probe",
    )


class Ending:
    """The reaction to SIGTERM and SIGINT."""

    def begin(self, consumer: "Consumer") -> None:
        """Called when signals are handled, before the first record."""

    def end(self, consumer: "Consumer") -> None:
        """Stop the consumer; called by the first signal."""
        consumer.stop()


def run(
    options: ConsumeOptions, ending: Ending | None = None, record_with: Sequence[str] = ()
) -> int:
    """Consume the log, restarting at each reload; return the exit code.

    `record_with` are the lines of code that make an agent record, shown on the page while it is empty.
    """
    options.where.check(scores=options.scoring.metrics is not None)
    with (
        running(options.command, options.serve, lambda: check_files(options)) as service,
        stopped_by_signals(options.command, service.stopped.set),
    ):
        service.page.reads(options.log, record_with)
        while True:
            code = _consume_once(options, service, ending or Ending())
            if service.stopped.is_set() or not service.again():
                return code


def check_files(options: ConsumeOptions) -> None:
    """Raise EvaltapError when metrics, references or rules are invalid."""
    with JudgeSession(options.scoring.judges) as judges:
        scorer = None
        if options.scoring.metrics is not None:
            scorer = case_scorer(options.scoring, judges).scorer
        rules = read_monitor(options.monitor, scorer)
        check_receivers(rules, options.monitor, allow_code=options.scoring.allow_code)
        options.scoring.read_references()


def _consume_once(options: ConsumeOptions, service: Running, ending: Ending) -> int:
    with JudgeSession(options.scoring.judges) as judges:
        if options.scoring.metrics is None:
            return _consume(options, None, None, service, ending)
        from evaltap.evaluator.scoring.time_limit import WATCH

        scorer = case_scorer(options.scoring, judges).scorer
        # Not required: landed cases are stored, and scored once the judges answer.
        judges.check_reachable(scorer.metrics, required=False)
        with (
            WATCH.exit_when_stuck(),
            live_engine(options.where, scorer, options.scoring.concurrency, judges) as engine,
        ):
            return _consume(options, scorer, engine, service, ending)


def _consume(
    options: ConsumeOptions,
    scorer: "CaseScorer | None",
    engine: "Engine | None",
    service: Running,
    ending: Ending,
) -> int:
    """Land a log and score it until stopped, or until it is idle; return the exit code."""
    from evaltap.evaluator.pipeline.live.consumer import Consumer
    from evaltap.evaluator.store.remote.server import served

    references = options.scoring.read_references()
    trace_url = read_trace_url(options.trace_url)
    with (
        closing(
            open_source(options.log, until_idle=options.until_idle, partitions=options.partitions)
        ) as source,
        open_store(options.db) as store,
        served(store, lands=True),
        service.page.serving(options.ui, store, references, options.sets, trace_url) as shown,
        progress("turns landed", logged=False) as show,
        ExitStack() as opened,
    ):
        moved = restore_progress(options.log, source, store)
        report_start_position(options.command, options.log, options.begin, source, store)
        rules = read_monitor(options.monitor, scorer)
        pending = None
        if scorer is not None:
            pending = pending_scorer(
                store, scorer, options.scoring.concurrency, references=references, engine=engine,
                rules=rules.score,
            )  # fmt: skip
        consumer = Consumer(
            source,
            store,
            scorer=pending,
            tasks=[*_tasks(options, source, store, rules, service, opened), *shown],
            log=options.log,
            from_now=options.begin == "now",
            beat=signs_of_life(options.command, options.heartbeat, service),
        )
        service.reload.stop = consumer.stop
        consumer.consumed.gaps += moved
        report = progress_reporter(options.command, show)
        with (
            stopped_by_signals(options.command, service.ending(lambda: ending.end(consumer))),
            collecting_rarely(),
            switching_often(),
        ):
            ending.begin(consumer)
            if service.stopped.is_set():  # by a signal during the start or a restart
                ending.end(consumer)
            report(consumer.run(until_idle=options.until_idle, report=report))
        report_telemetry(source)
        if service.reload.accepted:
            return 0
        return _finish(options, consumer, _verdict_of_run(options, store, pending, references))


def _verdict_of_run(
    options: ConsumeOptions,
    store: "Store",
    pending: "PendingScorer | None",
    references: "References | None",
) -> Verdict:
    """Report how many cases had a reference; return the verdict on the scored cases."""
    if pending is None:
        return Verdict()
    if references is not None:
        report_joined(options.command, pending.joined)
    digests = tuple(metric.digest for metric in pending.metrics)
    return read_verdict(
        options.command,
        store,
        Scope(digests=digests, references=references),
        reports=options.report,
        guards=options.guards,
        examples=not options.json,
    )


def _tasks(
    options: ConsumeOptions,
    source: "CaseSource",
    store: "Store",
    rules: "MonitorFile",
    service: Running,
    opened: ExitStack,
) -> "list[ConsumerTask]":
    """Return the consumer's tasks besides landing and scoring; `opened` closes them."""
    code = options.scoring.allow_code
    watching = watchers(options.command, options.monitor, rules, store, allow_code=code)
    closed: list[ConsumerTask] = [
        *watching,
        *outboxes(options.publish, store),
        *otlp_outboxes(options.scores_otlp, store, explanations=options.explanations),
        *figures_of(
            store, service, rules, serve=options.serve is not None, endpoint=options.scores_otlp,
            evidence=lambda: evidence_of(watching),
        ),
    ]  # fmt: skip
    for task in closed:
        opened.callback(task.close)
    return [*_log_cursors(options, source, store, opened), *closed, service.reload]


def _log_cursors(
    options: ConsumeOptions, source: "CaseSource", store: "Store", opened: ExitStack
) -> "list[LogCursor]":
    """Return the task that stores this consumer's position in a local log; topics need none."""
    from evaltap.evaluator.pipeline.live.log_cursor import LogCursor

    location = parse_log_location(options.log)
    if not isinstance(location, Path):
        return []
    cursor = LogCursor(location, store, options.keep_log)
    opened.callback(cursor.close)
    # The source closes first: the last connection removes SQLite's journal, which a reader cannot do.
    opened.callback(source.close)
    return [cursor]


def _finish(options: ConsumeOptions, consumer: "Consumer", verdict: Verdict) -> int:
    """Report what was landed and scored; return the exit code."""
    from evaltap.evaluator.reports.console import console, print_summary
    from evaltap.schemas.text import counted

    consumed, landed = consumer.consumed, consumer.consumed.landed
    summary, code = verdict.summary, verdict.exit_code
    if options.json:
        print(json.dumps(outcome_data(consumed, verdict), ensure_ascii=False))
    else:
        print(
            f"{counted(landed.turns, 'turn')} landed, {counted(landed.duplicates, 'duplicate')},"
            f" {counted(landed.dead_letters, 'dead letter')},"
            f" {counted(consumed.cases_scored, 'case')} scored"
        )
        if summary:
            print_summary(summary, console(), verdict.differences, store=options.db)
    if not options.until_idle:
        return 0
    if landed.dead_letters:
        print(
            f"evaltap consume: {counted(landed.dead_letters, 'record')} could not be read;"
            f" `evaltap dlq list {options.db}` shows why",
            file=sys.stderr,
        )
        return code or 2
    return code
