"""`evaltap consume`: land the cases of a log in a DuckDB file and score them."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaltap.cli.consuming import (
    account_of,
    check_prices,
    lost_turns,
    otlp_outboxes,
    otlp_writer,
    progress_reporter,
    read_monitor,
    signs_of_life,
    topic_outbox,
    watching,
)
from evaltap.cli.interpreter import collecting_rarely, switching_often
from evaltap.cli.logs import open_source, report_start_position, report_telemetry, restore_progress
from evaltap.cli.messages import print_json, say
from evaltap.cli.options.score import ConsumeOptions, LiveEngineOptions
from evaltap.cli.progress import progress
from evaltap.cli.scoring import case_scorer, judge_session, read_references
from evaltap.cli.signals import stopped_by_signals
from evaltap.cli.verdict import Scope, Verdict
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.ingest.sources.base import CaseSource
from evaltap.evaluator.monitoring.alerting.delivery import receivers_of
from evaltap.evaluator.pipeline.batch.engine import Engine
from evaltap.evaluator.pipeline.batch.ray_scoring import ray_engine
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer, ConsumerTask
from evaltap.evaluator.pipeline.live.figures import Figures
from evaltap.evaluator.pipeline.live.log_cursor import LogCursor
from evaltap.evaluator.pipeline.live.outbox import dead_letters, scores
from evaltap.evaluator.pipeline.live.running import Running, running
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.time_limit import WATCH
from evaltap.evaluator.store.database import LANDING_MEMORY, Store, open_store
from evaltap.evaluator.store.remote.server import served
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.monitor import MonitorFile, ScoreRule
from evaltap.schemas.log.location import parse_log_location
from evaltap.schemas.text import counted

if TYPE_CHECKING:  # it needs starlette, an optional package
    from evaltap.cli.page import LivePage


MOST_SUMMED: Final = 100_000
"""With more scores, a consumer that is stopped ends without pass rates.

A million take half a minute, and whoever stops a service kills it soon."""


class Ending:
    """The reaction to SIGTERM and SIGINT."""

    def begin(self, consumer: Consumer) -> None:
        """Called when signals are handled, before the first record."""

    def end(self, consumer: Consumer) -> None:
        """Stop the consumer; called by the first signal."""
        consumer.stop()


def run(
    options: ConsumeOptions, ending: Ending | None = None, record_with: Sequence[str] = ()
) -> int:
    """Consume the log, restarting at each reload; return the exit code.

    `record_with` are the lines of code that make an agent record, shown on the page while it is empty.
    """
    _check_engine(options.where, scores=options.metrics is not None)

    with (
        running(
            options.serve, lambda: check_files(options), partial(say, options.command)
        ) as service,
        _page(options, record_with) as page,
        stopped_by_signals(options.command, service.stopped.set),
    ):
        judges = judge_session(options.command, options.scoring.judges)
        while True:
            code = _consume_once(options, judges, service, page, ending or Ending())
            if service.stopped.is_set() or not service.again():
                return code


@contextmanager
def _page(options: ConsumeOptions, record_with: Sequence[str]) -> "Iterator[LivePage | None]":
    if options.ui is None:
        yield None
        return
    from evaltap.cli.page import LivePage  # an optional package: starlette

    with closing(
        LivePage(options.command, opens=options.opens, insecure_http=options.insecure_http)
    ) as page:
        page.reads(options.log, record_with)
        yield page


def _check_engine(options: LiveEngineOptions, *, scores: bool) -> None:
    if options.engine == "ray" and not scores:
        raise InputError("--engine ray: nothing to score without --metrics; add it")
    given = {"--ray-address": options.ray_address, "--ray-workers": options.ray_workers}
    for name, value in given.items():
        if options.engine != "ray" and value is not None:
            raise InputError(f"{name}: only works with --engine ray; add it")


def check_files(options: ConsumeOptions) -> None:
    """Raise EvaltapError when metrics, references or rules are invalid."""
    scoring = options.scoring
    with judge_session(options.command, scoring.judges) as judges:
        scorer = None
        if options.metrics is not None:
            scorer = case_scorer(options.command, options.metrics, scoring, judges).scorer
        rules = read_monitor(options.monitor, scorer)
        check_prices(rules, options.monitor, scorer, judges)
        receivers_of(rules, options.monitor, os.environ, allow_code=scoring.limits.allow_code)
        read_references(scoring.expected)


def _consume_once(
    options: ConsumeOptions,
    judges: JudgeSession,
    service: Running,
    page: "LivePage | None",
    ending: Ending,
) -> int:
    with judges:
        if options.metrics is None:
            return _consume(options, None, None, service, page, ending)
        scorer = case_scorer(options.command, options.metrics, options.scoring, judges).scorer
        check_prices(read_monitor(options.monitor, scorer), options.monitor, scorer, judges)
        # Not required: landed cases are stored, and `score --retry` repeats what no judge answered.
        judges.check_reachable(scorer.metrics, required=False)
        with WATCH.exit_when_stuck(), _engine(options, scorer, judges) as engine:
            return _consume(options, scorer, engine, service, page, ending)


@contextmanager
def _engine(
    options: ConsumeOptions, scorer: CaseScorer, judges: JudgeSession
) -> Iterator[Engine | None]:
    """Yield the engine that scores landed cases; None to score in this process."""
    if options.where.engine != "ray":
        yield None
        return
    engine = ray_engine(
        scorer,
        judges.settings,
        concurrency=options.scoring.concurrency,
        workers=options.where.ray_workers,
        address=options.where.ray_address,
    )
    try:
        with engine:
            yield engine
    finally:
        judges.record_spending(*engine.spending)


def _consume(
    options: ConsumeOptions,
    scorer: CaseScorer | None,
    engine: Engine | None,
    service: Running,
    page: "LivePage | None",
    ending: Ending,
) -> int:
    """Land a log and score it until stopped, or until it is idle; return the exit code."""
    references = read_references(options.scoring.expected)
    with ExitStack() as opened:
        opening = open_source(
            options.log,
            until_idle=options.until_idle,
            partitions=options.partitions,
            kafka_client=options.kafka_client,
        )
        source = opened.enter_context(closing(opening))
        store = opened.enter_context(open_store(options.db))
        opened.enter_context(served(store, lands=True))
        tasks = opened.enter_context(_shown(options, page, store, references))
        show = opened.enter_context(progress("turns landed", logged=False))
        moved = restore_progress(options.log, source, store)
        account = account_of(store)
        moved += report_start_position(options.command, options.log, options.begin, source, store)
        rules = read_monitor(options.monitor, scorer)
        pending = _pending(options, store, scorer, engine, references, rules.score)
        closed = opened.enter_context(ExitStack())  # the tasks close before the page and the store
        consumer = Consumer(
            source,
            store,
            scorer=pending,
            tasks=[
                *_tasks(options, source, store, rules, service, closed, lambda: consumer.ends),
                *tasks,
            ],
            log=options.log,
            from_now=options.begin == "now",
            beat=signs_of_life(options.command, options.heartbeat, service),
        )
        service.reload.stop = consumer.stop
        opened.callback(service.reload.close)
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
        lost = lost_turns(options.command, consumer.consumed, account, account_of(store))
        verdict = _verdict(options, store, pending, references)
        return _finish(options, consumer, verdict, lost)


def _pending(
    options: ConsumeOptions,
    store: Store,
    scorer: CaseScorer | None,
    engine: Engine | None,
    references: References | None,
    rules: Sequence[ScoreRule],
) -> PendingScorer | None:
    if scorer is None:
        return None
    threads = options.scoring.concurrency if scorer.waits else 1
    return PendingScorer(
        store, scorer, references=references, threads=threads, engine=engine, rules=rules
    )


def _shown(
    options: ConsumeOptions, page: "LivePage | None", store: Store, references: References | None
) -> AbstractContextManager[Sequence[ConsumerTask]]:
    """Return what shows the store on the page, with the tasks for that; nothing without a page."""
    if page is None or options.ui is None:
        return nullcontext(())
    shown = options.shown
    trace_url = None if shown.trace_url is None else TraceUrl(shown.trace_url)
    return page.serving(options.ui, store, references, shown.sets, trace_url)


def _verdict(
    options: ConsumeOptions,
    store: Store,
    pending: PendingScorer | None,
    references: References | None,
) -> Verdict | None:
    """Report how many cases had a reference; return the verdict on the scored cases.

    None without metrics, and if a consumer of a large store is stopped.  Keeps to the memory limit of landing
    if that suffices.
    """
    if pending is None:
        return None
    if references is not None:
        say(options.command, f"references: {pending.joined}")
    waited_for = options.until_idle or options.report
    if not waited_for and store.rows("SELECT count(*) FROM scores")[0][0] > MOST_SUMMED:
        say(options.command, f"stopped; for pass rates, see `evaltap report {options.db}`")
        return None
    scope = Scope(digests=tuple(metric.digest for metric in pending.metrics), references=references)

    def read() -> Verdict:
        return Verdict.of(
            options.command,
            store,
            summarise(store, metrics=scope.digests),
            scope,
            guards=options.guards,
            reports=options.report,
            examples=not options.json,
        )

    with store.limited_memory(LANDING_MEMORY):
        return store.with_memory(read)  # the reasons of the scores can be large


def _tasks(
    options: ConsumeOptions,
    source: CaseSource,
    store: Store,
    rules: MonitorFile,
    service: Running,
    opened: ExitStack,
    ends: Callable[[], bool],
) -> list[ConsumerTask]:
    """Return the consumer's tasks besides landing and scoring; `opened` closes them."""
    watches, evidence = watching(
        options.command,
        rules,
        source,
        store,
        receivers_of(
            rules, options.monitor, os.environ, allow_code=options.scoring.limits.allow_code
        ),
        ends,
    )
    closed: list[ConsumerTask] = [
        *watches,
        *topic_outbox(
            "--dlq-topic", options.dlq_topic, options.log, store, dead_letters, "dead_letters"
        ),
        *topic_outbox("--scores-topic", options.scores_topic, options.log, store, scores, "scores"),
        *otlp_outboxes(options.scores_otlp, store, explanations=options.explanations),
    ]
    if options.serve is not None or options.scores_otlp is not None:
        otlp = otlp_writer(options.scores_otlp) if options.scores_otlp else None
        closed.append(
            Figures(store, service.status, otlp, source=source, rules=rules, evidence=evidence)
        )
    for task in closed:
        opened.callback(task.close)
    return [*_log_cursors(options, source, store, opened), *closed, service.reload]


def _log_cursors(
    options: ConsumeOptions, source: CaseSource, store: Store, opened: ExitStack
) -> list[LogCursor]:
    """Return the task that stores this consumer's position in a local log; topics need none."""
    location = parse_log_location(options.log)
    if not isinstance(location, Path):
        return []
    cursor = LogCursor(location, store, options.keep_log)
    opened.callback(cursor.close)
    # The source closes first: the last connection removes SQLite's journal, which a reader cannot do.
    opened.callback(source.close)
    return [cursor]


def _finish(options: ConsumeOptions, consumer: Consumer, verdict: Verdict | None, lost: int) -> int:
    """Report what was landed and scored; return the exit code, `lost` if nothing else went wrong."""
    consumed, landed = consumer.consumed, consumer.consumed.landed
    code = verdict.exit_code if verdict else 0
    if options.json:
        summary = {**verdict.summary.data(), "exit_code": code} if verdict else None
        data = {
            "records": landed.records,
            "turns_landed": landed.turns,
            "duplicates": landed.duplicates,
            "dead_letters": landed.dead_letters,
            "gaps": consumed.gaps,
            "cases_scored": consumed.cases_scored,
            "summary": summary,
        }
        print_json(data)
    else:
        print(
            f"{counted(landed.turns, 'turn')} landed, {counted(landed.duplicates, 'duplicate')},"
            f" {counted(landed.dead_letters, 'dead letter')},"
            f" {counted(consumed.cases_scored, 'case')} scored"
        )
        if verdict:
            verdict.print(options.db)
    if not options.until_idle:
        return 0
    if landed.dead_letters:
        say(
            "consume",
            f"{counted(landed.dead_letters, 'record')} could not be read;"
            f" `evaltap store dlq list {options.db}` shows why",
        )
        return code or 2
    return code or lost
