"""Choose the source for the given log; connect the recorder's assembler to the evaluator."""

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, cast

from evaltap.cli.messages import say
from evaltap.evaluator.ingest.landing.trace_progress import progress
from evaltap.evaluator.ingest.sources.base import CaseSource
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.ingest.sources.otlp_topics import OtlpSource, TraceAssembler
from evaltap.evaluator.ingest.sources.positions import moved_topics, stored_offsets
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.location import (
    OTLP,
    KafkaClientName,
    KafkaLocation,
    LogLocation,
    parse_log_location,
)

if TYPE_CHECKING:
    from evaltap.evaluator.ingest.sources.kafka import KafkaSource
    from evaltap.recorder.sources.otlp_topics import TopicTraces


def open_source(
    log: str,
    *,
    until_idle: bool,
    partitions: tuple[int, ...] | None = None,
    kafka_client: KafkaClientName = "kafka-python",
) -> CaseSource:
    """Return the source of a log, or of some of its partitions; call `restore_progress` before reading.

    With `until_idle` the log must exist, and traces of raw telemetry that are still open at its end are
    recorded incomplete. Raises ConfigurationError and InputError for a log that cannot be read.
    """
    location = parse_log_location(log)
    if partitions is not None:
        _check_partitions(log, location)
    if isinstance(location, KafkaLocation):
        from evaltap.evaluator.ingest.sources.kafka import KafkaSource  # an optional package

        if location.format != OTLP:
            return KafkaSource(
                location, partitions=partitions, to_end=until_idle, client=kafka_client
            )
        source = KafkaSource(location, client=kafka_client)
        return OtlpSource(source, _assembler(location), closes_at_end=until_idle)
    return LocalLogSource(location, must_exist=until_idle)


def _check_partitions(log: str, location: LogLocation) -> None:
    if not isinstance(location, KafkaLocation):
        raise InputError(
            f"--partitions: {log} is a local log, which has no partitions; leave the option out"
        )
    if location.format == OTLP:
        raise InputError(
            "--partitions: not for raw OTLP topics, where the spans of a trace may be on any partition;"
            " let one consumer read them all"
        )


def restore_progress(log: str, source: CaseSource, store: Store) -> list[str]:
    """Give a source the state that the landing `store` has of its traces and its cluster.

    Returns a message for each topic that is read from its start because it belongs to another cluster.
    """
    location, records = parse_log_location(log), source
    if isinstance(source, OtlpSource):
        source.progress = lambda: progress(store)
        records = source.source
    if not isinstance(location, KafkaLocation):
        return []
    kafka = cast("KafkaSource", records)  # see open_source
    return moved_topics(store, location.topics, kafka.cluster_id)


def _assembler(location: KafkaLocation) -> TraceAssembler:
    """Return the recorder's assembler, with the recorder's settings from the environment."""
    # An optional package, imported before the first message: without it, that would be a dead letter.
    import evaltap.recorder.telemetry.otlp_protobuf  # noqa: F401
    from evaltap.recorder.config import RecorderConfig  # compiles all patterns
    from evaltap.recorder.sources.otlp_topics import TopicTraces  # compiles all patterns

    return TopicTraces(RecorderConfig(log=str(location)), producer_id=uuid.uuid4().hex)


def report_telemetry(source: CaseSource) -> None:
    """Report the counts of raw telemetry on stderr, if the source reads any."""
    if not isinstance(source, OtlpSource):
        return
    traces = cast("TopicTraces", source.assembler)  # see _assembler
    counts, waiting = traces.counters, traces.buffer.counters
    dropped = "".join(f", {count:,} {reason}" for reason, count in sorted(counts.dropped.items()))
    print(
        f"telemetry: {counts.messages:,} messages ({counts.metrics_skipped:,} of metrics skipped,"
        f" {counts.undecodable:,} undecodable), {counts.traces_read:,} traces read"
        f" ({waiting.traces_timed_out:,} timed out, {waiting.traces_evicted:,} evicted), {counts.turns:,}"
        f" turns, {counts.revisions:,} revised{dropped}; {source.open_traces:,} traces are still open and"
        " will be read again by the next process",
        file=sys.stderr,
    )


def report_start_position(
    command: str, log: str, begin: str | None, source: CaseSource, store: Store
) -> list[str]:
    """Report where a store that is new to a local log begins; return what it can no longer read.

    Also report that `begin`, the choice of `--from`, is without effect on a store that has read the log.
    """
    known = stored_offsets(store)
    if begin == "oldest" and any(known.get(partition) for partition in source.bounds()):
        say(
            command,
            f"{store.path} has read this log before and continues there; --from oldest"
            " only applies to a new file",
        )
    gone: list[str] = []
    if not isinstance(parse_log_location(log), Path):
        return gone
    for partition, (start, end) in source.bounds().items():
        begins = f"{store.path} is new to this log and begins at record"
        if partition in known:
            continue
        if begin == "now" and end > 1:
            after = f"{end:,}: after the newest record (--from now)"
            say(command, f"{begins} {after}")
        elif begin != "now" and start > 1:
            gone.append(f"{begins} {start:,}: older records were trimmed and never landed in it")
    return gone
