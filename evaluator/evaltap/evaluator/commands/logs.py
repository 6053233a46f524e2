"""Which source reads a log that the user named; here the recorder's assembler meets the evaluator."""

import sys
from typing import TYPE_CHECKING

from evaltap.schemas.log_location import OTLP, KafkaLocation, parse_log_location

if TYPE_CHECKING:
    from evaltap.evaluator.sources.base import CaseSource
    from evaltap.evaluator.sources.otlp import TraceAssembler
    from evaltap.evaluator.store import Store


def open_source(log: str, *, until_idle: bool) -> "CaseSource":
    """Return the source of a log; call `remember` with it before it is read.

    With `until_idle` the log must be there, and traces of raw telemetry that are open at its end are
    told as they are.  Raises ConfigurationError and InputError for a log that cannot be read.
    """
    location = parse_log_location(log)
    if isinstance(location, KafkaLocation):
        from evaltap.evaluator.sources.kafka import KafkaSource

        if location.format != OTLP:
            return KafkaSource(location, to_end=until_idle)
        from evaltap.evaluator.sources.otlp import OtlpSource

        source = KafkaSource(location)
        return OtlpSource(source, _assembler(location), closes_at_end=until_idle)
    from evaltap.evaluator.sources.local_log import LocalLogSource

    return LocalLogSource(location, must_exist=until_idle)


def remember(log: str, source: "CaseSource", store: "Store") -> list[str]:
    """Let a source know what `store`, where it lands, remembers: of traces, and of the cluster.

    Returns what to tell of topics that are read from their start, since they are another cluster's.
    """
    from evaltap.evaluator.read_traces import progress
    from evaltap.evaluator.sources.otlp import OtlpSource

    location, records = parse_log_location(log), source
    if isinstance(source, OtlpSource):
        source.progress = lambda: progress(store)
        records = source.source
    if not isinstance(location, KafkaLocation):
        return []
    from evaltap.evaluator.clusters import moved_topics
    from evaltap.evaluator.sources.kafka import KafkaSource

    assert isinstance(records, KafkaSource)
    return moved_topics(store, location.topics, records.cluster_id)


def _assembler(location: KafkaLocation) -> "TraceAssembler":
    """Return the recorder's assembler, with the recorder's settings from the environment."""
    import uuid
    from importlib.metadata import version

    # Here and not at the first message: a package that is missing is no reason to call it poison.
    import evaltap.recorder.otlp_protobuf  # noqa: F401
    from evaltap.recorder.config import RecorderConfig
    from evaltap.recorder.topic_traces import TopicTraces

    return TopicTraces(
        RecorderConfig(log=str(location)),
        producer_id=uuid.uuid4().hex,
        recorder_version=version("evaltap"),
    )


def tell_telemetry(source: "CaseSource") -> None:
    """Say on stderr what became of raw telemetry, when the source reads any."""
    from evaltap.evaluator.sources.otlp import OtlpSource
    from evaltap.recorder.topic_traces import TopicTraces

    if not isinstance(source, OtlpSource) or not isinstance(source.assembler, TopicTraces):
        return
    counts, waiting = source.assembler.counters, source.assembler.buffer.counters
    dropped = "".join(f", {count:,} {reason}" for reason, count in sorted(counts.dropped.items()))
    print(
        f"telemetry: {counts.messages:,} messages ({counts.metrics_skipped:,} of metrics skipped,"
        f" {counts.undecodable:,} undecodable), {counts.traces_read:,} traces read"
        f" ({waiting.traces_timed_out:,} timed out, {waiting.traces_evicted:,} evicted),"
        f" {counts.turns:,} turns, {counts.revisions:,} revised{dropped};"
        f" {source.open_traces:,} traces may still grow and are read again by the next process",
        file=sys.stderr,
    )
