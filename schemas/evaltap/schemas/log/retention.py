"""Retention of a local log: consumers report their progress, and what all have landed may be deleted.

A consumer's cursor is a row of the log's `cursors`. A consumer that has not reported for
EXPIRES_SECONDS no longer holds anything back. Without any consumer nothing is trimmed.
"""

import sqlite3
import time
from contextlib import suppress
from typing import Final, NamedTuple

from evaltap.schemas.log.local import LocalLog, unpack_headers
from evaltap.schemas.log.opening import TRIMMED_TABLE
from evaltap.schemas.wire.record import MANIFEST_TYPE, WireRecord, parse_seq

CONSUMER: Final = "consumer:"
"""Prefix of consumers' cursors; other cursors belong to forwarders."""
EXPIRES_SECONDS: Final = 7 * 86_400.0
RECORDS_PER_TRIM: Final = 2_000
"""Records deleted per transaction, which blocks writers."""
WARN_SHARE: Final = 0.8
"""A log whose unconsumed records fill this share of its limit is about to drop turns."""


class ConsumerCursor(NamedTuple):
    """A consumer of a log: it has landed everything before `next_offset`."""

    name: str
    next_offset: int
    updated_at: float
    """Unix seconds."""


class Trimmed(NamedTuple):
    """What was trimmed of a producer: its records up to a number, and its last manifest among them."""

    last_seq: int
    manifest: WireRecord | None


def consumers(log: LocalLog, *, now: float | None = None) -> list[ConsumerCursor]:
    """Return the consumers that hold records back; `now` is in Unix seconds."""
    since = (time.time() if now is None else now) - EXPIRES_SECONDS
    rows = log.connection.execute(
        "SELECT name, next_offset, updated_at FROM cursors"
        " WHERE substr(name, 1, ?) = ? AND updated_at >= ? ORDER BY name",
        (len(CONSUMER), CONSUMER, since),
    )
    return [ConsumerCursor(name[len(CONSUMER) :], *rest) for name, *rest in rows]


def register(log: LocalLog, name: str, next_offset: int) -> None:
    """Record that a consumer is alive and has landed everything before an offset."""
    log.move_cursor(CONSUMER + name, next_offset)


def landed_until(log: LocalLog, *, now: float | None = None) -> int:
    """Return the offset before which every consumer has landed everything; 0 without consumers."""
    return min((one.next_offset for one in consumers(log, now=now)), default=0)


def trim_landed(log: LocalLog, *, older_than: float | None = None, now: float | None = None) -> int:
    """Delete the oldest records that every consumer has landed; return how many.

    At most RECORDS_PER_TRIM are deleted. `older_than`, in Unix seconds, keeps what was appended since.
    Deletions are recorded, so that they do not count as loss. Raises `sqlite3.Error` where the file
    does not allow it.
    """
    until = landed_until(log, now=now)
    if until <= log.start_offset():
        return 0
    log.connection.execute(TRIMMED_TABLE)
    log.connection.execute("BEGIN IMMEDIATE")
    try:
        rows = log.connection.execute(
            'SELECT "offset", headers, appended_at FROM records'
            ' WHERE "offset" < ? ORDER BY "offset" LIMIT ?',
            (until, RECORDS_PER_TRIM),
        ).fetchall()
        going = []
        for offset, headers, appended_at in rows:
            if older_than is not None and appended_at >= older_than:
                break
            going.append((offset, headers))
        if going:
            _note(log, going)
            log.connection.execute('DELETE FROM records WHERE "offset" <= ?', (going[-1][0],))
            _set(log, "trimmed_until", going[-1][0] + 1)
        log.connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            log.connection.execute("ROLLBACK")
        raise
    return len(going)


def trimmed(log: LocalLog) -> dict[str, Trimmed]:
    """Return what was trimmed, by producer."""
    try:
        rows = log.connection.execute(
            "SELECT producer_id, last_seq, headers, value FROM trimmed"
        ).fetchall()
    except sqlite3.OperationalError:  # nothing was trimmed yet
        return {}
    return {
        producer_id: Trimmed(
            last_seq, None if value is None else WireRecord(None, value, unpack_headers(headers))
        )
        for producer_id, last_seq, headers, value in rows
    }


def waiting_bytes(log: LocalLog) -> int:
    """Return roughly how many bytes wait for consumers; everything in use when there are none."""
    start, end = log.start_offset(), log.end_offset()
    if end <= start:
        return 0
    waiting = end - min(max(landed_until(log), start), end)
    return round(log.used_bytes() * waiting / (end - start))


def note_limit(log: LocalLog, max_bytes: int) -> None:
    """Store the log's limit, for readers without the recorder's settings."""
    if limit_of(log) != max_bytes:
        _set(log, "max_bytes", max_bytes)


def limit_of(log: LocalLog) -> int:
    """Return the log's limit in bytes as last stored by a writer; 0: unknown."""
    return _get(log, "max_bytes")


def trimmed_until(log: LocalLog) -> int:
    """Return the offset before which records were trimmed; 0: none were."""
    return _get(log, "trimmed_until")


def is_manifest(record: WireRecord) -> bool:
    """Return whether a record is a manifest: what its producer wrote and dropped."""
    return record.header("ce_type") == MANIFEST_TYPE


def _get(log: LocalLog, name: str) -> int:
    row = log.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    text = str(row[0]) if row else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _set(log: LocalLog, name: str, value: int) -> None:
    log.connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, str(value)),
    )


def _note(log: LocalLog, going: list[tuple[int, str]]) -> None:
    highest: dict[str, int] = {}
    manifests: dict[str, int] = {}
    for offset, headers in going:
        record = WireRecord(None, None, unpack_headers(headers))
        if not (producer_id := record.header("producer_id")):
            continue
        if is_manifest(record):
            manifests[producer_id] = offset
        highest[producer_id] = max(
            highest.get(producer_id, 0), parse_seq(record.header("seq")) or 0
        )
    log.connection.executemany(
        "INSERT INTO trimmed (producer_id, last_seq) VALUES (?, ?)"
        " ON CONFLICT (producer_id) DO UPDATE SET last_seq = max(last_seq, excluded.last_seq)",
        list(highest.items()),
    )
    log.connection.executemany(
        "UPDATE trimmed SET (headers, value) ="
        ' (SELECT headers, value FROM records WHERE "offset" = ?) WHERE producer_id = ?',
        [(offset, producer_id) for producer_id, offset in manifests.items()],
    )
