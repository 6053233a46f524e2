"""What `evaltap consume` runs besides landing and scoring, and what it shows while it runs."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evaltap.cli.messages import say
from evaltap.cli.progress import MinuteLine
from evaltap.cli.redaction import text_redactor
from evaltap.cli.settings import is_discovered, named_in_hints
from evaltap.evaluator.ingest.sources.base import CaseSource
from evaltap.evaluator.monitoring.alerting.delivery import alert_outbox, is_silenced
from evaltap.evaluator.monitoring.alerting.receivers import Receiver
from evaltap.evaluator.monitoring.history import Alert
from evaltap.evaluator.monitoring.model import summary
from evaltap.evaluator.monitoring.rules import check_metrics, read_rules
from evaltap.evaluator.pipeline.live.consumer import Consumed, ConsumerTask
from evaltap.evaluator.pipeline.live.outbox import Outbox, Reader
from evaltap.evaluator.pipeline.live.running import Running
from evaltap.evaluator.pipeline.live.status import heartbeat
from evaltap.evaluator.pipeline.live.watcher import LogEnd, Watcher
from evaltap.evaluator.pipeline.maintenance.completeness import Total, landed_accounts
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.formats.monitor import MonitorFile
from evaltap.schemas.log.location import KafkaLocation, parse_log_location
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from evaltap.evaluator.pipeline.live.otlp import OtlpWriter  # an optional package


def progress_reporter(command: str, show: Callable[[int], None]) -> Callable[[Consumed], None]:
    """Return a function that shows the consumer's progress and reports each gap once."""
    reported: list[str] = []

    def report(consumed: Consumed) -> None:
        show(consumed.landed.turns)
        for gap in consumed.gaps[len(reported) :]:
            reported.append(gap)
            say(command, f"GAP {gap}")

    return report


def account_of(store: Store) -> Total:
    """Return what the producers in a store recorded and dropped; more of it may still arrive."""
    return Total.of(landed_accounts(store), waits=True)


def lost_turns(command: str, consumed: Consumed, before: Total, after: Total) -> int:
    """Report what producers dropped, as far as that is news; return 1 for a gap or a loss, otherwise 0."""
    news = after.losses != before.losses
    if news:
        say(command, f"{after}; `evaltap doctor` shows each producer")
    return 1 if news or consumed.gaps else 0


def signs_of_life(
    command: str, heartbeat_file: Path | None, service: Running
) -> Callable[[Consumed], None]:
    """Return a function that updates probes and heartbeat and, without a terminal, logs once a minute."""
    touch = heartbeat(heartbeat_file) if heartbeat_file else None
    line = None if sys.stderr.isatty() else MinuteLine()
    before: tuple[int, ...] = ()

    def beat(consumed: Consumed) -> None:
        service.beat(away=consumed.away)
        if touch is not None:
            touch()
        if line is not None:
            line.due(lambda: status(consumed))

    def status(consumed: Consumed) -> str:
        """Return a line of what happened in the last minute; empty if nothing did, except the first time."""
        nonlocal before
        landed = consumed.landed
        now = landed.turns, consumed.cases_scored, landed.dead_letters
        if now == before:
            return ""
        new = landed.turns - (before[0] if before else 0)
        before = now
        return (
            f"evaltap {command}: {counted(landed.turns, 'turn')} landed (+{new:,}),"
            f" {counted(consumed.cases_scored, 'case')} scored,"
            f" {counted(landed.dead_letters, 'dead letter')}"
        )

    return beat


def read_monitor(path: Path | None, scorer: CaseScorer | None) -> MonitorFile:
    """Return the rules of `--monitor`, or empty rules without it; raise InputError for invalid rules."""
    if path is None:
        return MonitorFile()
    rules = read_rules(path)
    if rules.alerts and is_discovered("EVALTAP_MONITOR"):
        raise InputError(
            f"{path}: found through evaltap.toml, so its `alerts`, which send data elsewhere, are not used;"
            " name the file with --monitor"
        )
    if scorer is not None:
        check_metrics(rules, [one.metric_name for one in scorer.metrics], path)
    elif rules.score:
        raise InputError(f"{path}: `score` needs metrics; add --metrics")
    return rules


def check_prices(
    rules: MonitorFile, path: Path | None, scorer: CaseScorer | None, judges: JudgeSession
) -> None:
    """Raise InputError for a budget in USD if the prices of a judge of its metrics are unknown."""
    for place, rule in enumerate(rules.score):
        if scorer is None or rule.budget is None or rule.budget.usd_per_day is None:
            continue
        for judge in judges.unpriced(
            [one for one in scorer.metrics if one.metric_name in rule.metrics]
        ):
            raise InputError(
                f"{path}: score[{place}] {rule.name!r}: `usdPerDay` needs prices, and those of {judge} are"
                " unknown; give them (EVALTAP_JUDGE_PRICE_INPUT and EVALTAP_JUDGE_PRICE_OUTPUT in USD for"
                " a million tokens, or judgeModel.prices), or use `callsPerDay`"
            )


def watching(
    command: str,
    rules: MonitorFile,
    source: CaseSource,
    store: Store,
    receivers: Sequence[Receiver],
    ends: Callable[[], bool],
) -> tuple[list[ConsumerTask], Callable[[], Mapping[str, float]]]:
    """Return the tasks that run the watches and send their alerts, and what returns the watches' evidence.

    `source` is the log that the store is fed from.
    """
    if not rules.watch:
        return [], dict
    outbox = alert_outbox(store, rules, receivers, text_redactor)

    def report(found: Sequence[Alert]) -> None:
        for alert in found:
            event = alert.event
            cases = f"evaltap cases {named_in_hints(store.path)}{shlex.quote(event.cases_filter)}"
            shown = f"; {cases}" if event.cases_filter else ""
            status = "ALERT" if alert.began else "resolved"
            if is_silenced(rules, event.watch):
                status = f"silenced, {status}"
            say(command, f"{status} {summary(event)}{shown}")
        outbox.add(found)

    watcher = Watcher(store, rules, report, ends=ends, read_to=LogEnd(source, store).read_to)
    return [watcher, outbox], lambda: watcher.evidence


def otlp_outboxes(endpoint: str | None, store: Store, *, explanations: bool) -> list[Outbox]:
    """Return the outbox of scores for an OTLP endpoint, or an empty list without an endpoint."""
    if endpoint is None and explanations:
        raise InputError("--explanations: only works with --scores-otlp; add it")
    if endpoint is None:
        return []
    from evaltap.evaluator.pipeline.live.otlp import otlp_scores  # an optional package

    scores = partial(otlp_scores, explained=text_redactor() if explanations else None)
    place = urlsplit(endpoint).netloc
    return [Outbox(store, otlp_writer(endpoint), place, scores, name="otlp_scores")]


def otlp_writer(endpoint: str) -> "OtlpWriter":
    """Return the writer of metrics for an OTLP endpoint."""
    from evaltap.evaluator.pipeline.live.otlp import OtlpWriter  # an optional package

    return OtlpWriter(endpoint)


def topic_outbox(
    option: str, place: str | None, log: str, store: Store, read: Reader, name: str
) -> list[Outbox]:
    """Return the outbox of a topic; `log` names the cluster of a bare topic, and must not read the topic.

    The store keeps its progress under `name`.
    """
    if not place:
        return []
    location = parse_log_location(place if "://" in place else log)
    if not isinstance(location, KafkaLocation) or ("://" in place and len(location.topics) != 1):
        raise ConfigurationError(
            f"{option} {place}: names no Kafka cluster; expected a topic of the log's cluster, or"
            " kafka://host:port/topic"
        )
    topic = location.topics[0] if "://" in place else place
    read_from = parse_log_location(log)
    if (
        isinstance(read_from, KafkaLocation)
        and topic in read_from.topics
        and set(location.brokers) & set(read_from.brokers)
    ):
        raise ConfigurationError(
            f"{option} {place}: this topic is part of --log, so its records would be consumed in a loop;"
            " name another"
        )
    # An optional package: kafka.
    from evaltap.evaluator.ingest.topics.clients import TopicWriter, create_topics

    create_topics(location, {topic: 1})
    writer = TopicWriter(location, client_id="evaltap-outbox")
    return [Outbox(store, writer, topic, read, name=name)]
