"""In-memory topics of raw telemetry, and records written by a real Collector.

`COLLECTOR_RECORDS` holds the records of an OpenTelemetry Collector (otlp_proto, traces keyed by trace
id) for each capture in tests/data/spans.
"""

import base64
import gzip
import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaltap.evaluator.ingest.sources.base import Bounds, Partition, SourceBatch, SourceRecord
from evaltap.schemas.wire.record import WireRecord

COLLECTOR_RECORDS = Path(__file__).parents[2] / "data" / "collector_records.jsonl.gz"
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """A message of a topic."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    case: str = ""


def collector_messages(case: str | None = None) -> list[Message]:
    """Return the messages of the Collector, of one capture or of all."""
    with gzip.open(COLLECTOR_RECORDS, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Message(
            row["topic"],
            base64.b64decode(row["value"]),
            base64.b64decode(row["key"]) if row["key"] else None,
            row["case"],
        )
        for row in rows
        if case in (None, row["case"])
    ]


def as_json(message: Message) -> Message:
    """Return the message as a Collector writes it with the encoding otlp_json."""
    kind: Any = ExportLogsServiceRequest if "logs" in message.topic else ExportTraceServiceRequest
    request = kind()
    request.ParseFromString(message.value or b"")
    value = json.dumps(_with_hex_ids(MessageToDict(request))).encode()
    return Message(message.topic, value, message.key, message.case)


def one_span_each(message: Message) -> list[Message]:
    """Return the message cut into one message for each of its spans."""
    request = ExportTraceServiceRequest()
    request.ParseFromString(message.value or b"")
    found = []
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                one = ExportTraceServiceRequest()
                part = one.resource_spans.add()
                part.resource.CopyFrom(resource.resource)
                inner = part.scope_spans.add()
                inner.scope.CopyFrom(scope.scope)
                inner.spans.add().CopyFrom(span)
                value = one.SerializeToString()
                found.append(Message(message.topic, value, message.key, message.case))
    return found


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64decode(item).hex() if key in ids else _with_hex_ids(item)
        for key, item in value.items()
    }


class MemoryTopics:
    """The in-memory twin of a Kafka source: partitions are read at speeds that `chance` picks.

    A record that is hidden is there once `visible` of its partition goes beyond it.
    """

    def __init__(self, chance: random.Random | None = None, *, most: int = 1_000_000) -> None:
        self.partitions: dict[Partition, list[SourceRecord]] = {}
        self.visible: dict[Partition, int] = {}
        self._next: dict[Partition, int] = {}
        self._chance = chance
        self._most = most
        self._paused: set[Partition] = set()
        self.ever_paused: set[Partition] = set()

    def write(
        self, message: Message, time_ms: int | None, *, partition: int = 0, hidden: bool = False
    ) -> None:
        """Append a message, at a time of the log."""
        place = Partition(message.topic, partition)
        records = self.partitions.setdefault(place, [])
        wire = WireRecord(message.key, message.value)
        records.append(SourceRecord(place, len(records), wire, time_ms))
        if not hidden:
            self.visible[place] = len(records)

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        self._next = {place: offsets.get(place, 0) for place in self.partitions}

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        found: list[SourceRecord] = []
        for place in self._order():
            start = self._next.setdefault(place, 0)
            end = self.visible.get(place, 0)
            count = min(end - start, max_records - len(found), self._most)
            if self._chance is not None:
                count = self._chance.randint(0, max(0, count))
            found += self.partitions[place][start : start + count]
            self._next[place] = start + count
        return SourceBatch(tuple(found), {r.partition: r.offset + 1 for r in found})

    def behind(self) -> Collection[Partition]:
        return [p for p in self.partitions if self._next.get(p, 0) < self.visible.get(p, 0)]

    def pause(self, partitions: Collection[Partition]) -> None:
        self._paused = set(partitions)
        self.ever_paused |= self._paused

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        return {place: Bounds(0, self.visible.get(place, 0)) for place in self.partitions}

    def close(self) -> None:
        pass

    def _order(self) -> Sequence[Partition]:
        places = [place for place in self.partitions if place not in self._paused]
        if self._chance is not None:
            self._chance.shuffle(places)
        return places


def spread(
    topics: MemoryTopics,
    messages: Iterable[Message],
    *,
    partitions: int = 3,
    chance: random.Random | None = None,
    step_ms: int = 10,
    start_ms: int = START_MS,
) -> int:
    """Write messages one after the other, by key or at random; return the time of the last."""
    now = start_ms
    for message in messages:
        now += step_ms
        number = chance.randrange(partitions) if chance else hash(message.key) % partitions
        topics.write(message, now, partition=number)
    return now
