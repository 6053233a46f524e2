"""The evidence for the checker: the ledger, the records on logs, spools and topics, the DuckDB file.

Read with sqlite3, json, duckdb and kafka-python alone; nothing of the product is imported, so a mistake
in its reading code cannot hide a mistake in its writing code.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

TurnKey = tuple[str, str, str, str]
"""App name, eval set id, eval id, invocation id."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that an agent says it has ended, in one revision of it."""

    eval_id: str
    invocation_id: str
    answer: str | None = None
    revision: int = 1
    tools: int | None = None
    scores: Mapping[str, str] = field(default_factory=dict)
    """The status that each metric must give it; a case is judged by its turns."""
    safe: bool = True
    """Whether it must have survived whatever happened."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A recorder that was closed in order, and where it says that its turns went."""

    producer_id: str
    begun: int
    """Turns, each revision by itself, that the agent handed over: counted by the agent."""
    numbered: int
    dropped: Mapping[str, int]


@dataclass(slots=True)
class Ledger:
    """What the agents say they did."""

    turns: list[Turn] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)


class Record(NamedTuple):
    """A record somewhere on its way."""

    topic: str
    partition: int
    offset: int
    key: bytes
    headers: Mapping[str, str]
    value: bytes


@dataclass(slots=True)
class Evidence:
    """Everything at one moment; `drained` says that all should have arrived by now."""

    ledger: Ledger
    log: list[Record] = field(default_factory=list)
    """What the evaluator reads: local log or topic."""
    gone: list[Record] = field(default_factory=list)
    """What the log has deleted by now, landed or not."""
    spooled: list[Record] = field(default_factory=list)
    """What waits on disk for the broker, or was set aside because the broker never takes it."""
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next offset that each partition will give."""
    gaps: list[str] = field(default_factory=list)
    """What the consumer said about records that were gone before it saw them."""
    drained: bool = False
    power_cut: bool = False
    """The machine itself went down, so the last moments of a file may be gone."""


TABLES = (
    "turns", "cases", "tool_calls", "dead_letters", "offsets", "manifests", "scores",
    "turn_scores", "run_metrics",
)  # fmt: skip


def read_store(connection: duckdb.DuckDBPyConnection) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables that the checker knows."""
    tables = {}
    for name in TABLES:
        found = connection.execute(f"SELECT * FROM {name}")
        columns = [column[0] for column in found.description or ()]
        tables[name] = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
    return tables


def read_store_file(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a DuckDB file that nobody holds."""
    with duckdb.connect(str(path), read_only=True) as connection:
        return read_store(connection)


def read_log_file(path: Path) -> list[Record]:
    """Return the records of a local log or spool; raises sqlite3.Error when it is damaged."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return []  # a power cut took all of it
        (log_id,) = connection.execute("SELECT value FROM meta WHERE name = 'log_id'").fetchone()
        rows = connection.execute(
            'SELECT "offset", key, headers, value FROM records ORDER BY "offset"'
        )
        return [
            Record(
                f"local:{log_id}", 0, offset, bytes(key), dict(json.loads(headers)), bytes(value)
            )
            for offset, key, headers, value in rows
        ]
    finally:
        connection.close()


def read_topic(servers: str, topic: str, *, quiet_ms: int = 2_000) -> list[Record]:
    """Return all records of a topic."""
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        places = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[Record] = []
        while any((consumer.position(place) or 0) < ends[place] for place in places):
            for messages in consumer.poll(timeout_ms=quiet_ms).values():
                found.extend(
                    Record(
                        message.topic,
                        message.partition,
                        message.offset,
                        message.key or b"",
                        {name: value.decode("utf-8", "replace") for name, value in message.headers},
                        message.value or b"",
                    )
                    for message in messages
                )
        return found
    finally:
        consumer.close()


def ends_of(records: Iterable[Record]) -> dict[tuple[str, int], int]:
    """Return the next offset of each partition, judged by its records."""
    ends: dict[tuple[str, int], int] = {}
    for record in records:
        place = (record.topic, record.partition)
        ends[place] = max(ends.get(place, 0), record.offset + 1)
    return ends
