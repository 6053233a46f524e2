"""The account of each producer: what it reports as recorded, compared with what is on the log and landed.

`recorded = delivered + spooled + dropped{reason}`, verified from outside, without trusting the process:
records are numbered without gaps, and manifests contain the highest number and the drops.
"""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.evaluator.landing.seq_ranges import Ranges, highest, merged, size, without
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.retention import trimmed
from evaltap.schemas.wire.dead_letter import read_headers
from evaltap.schemas.wire.record import Manifest, RecordError, WireRecord, decode_record, parse_seq

if TYPE_CHECKING:
    from evaltap.evaluator.store.queries import StoreReader

MERGE_AT = 10_000
"""Ranges after which those of a log are merged: records of many producers may be interleaved."""


@dataclass(slots=True)
class Account:
    """One producer; numbers are those of its records."""

    producer_id: str
    stated: int = 0
    """The highest number of its last manifest."""
    dropped: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    ended: bool = False
    """No process has the log open that its records are on."""
    on_log: Ranges = field(default_factory=list)
    trimmed: Ranges = field(default_factory=list)
    """Records that every consumer of the log had landed, and that it has deleted since."""
    consumed: Ranges = field(default_factory=list)
    """Records that the store has taken, whatever became of them."""
    dead: Ranges = field(default_factory=list)
    erased: Ranges = field(default_factory=list)

    @property
    def recorded(self) -> int:
        """Turns numbered or dropped."""
        return self._highest() + sum(self.dropped.values())

    @property
    def delivered(self) -> int:
        """Turns of which the record was seen somewhere: log or store."""
        return size(self._seen())

    @property
    def landed(self) -> int:
        """Records that were consumed, are no dead letters, and were not erased since."""
        return size(without(without(self.consumed, self.dead), self.erased))

    @property
    def lost(self) -> Ranges:
        """Ranges of numbers, first and last, that were given and are nowhere."""
        given = self._highest()
        return without([(1, given)] if given else [], self._seen())

    @property
    def unaccounted(self) -> bool:
        """True when it ended without saying how many turns it had, so nobody knows what is missing."""
        return self.ended and not self.closed

    @property
    def waiting(self) -> int:
        """Records on the log that were not consumed yet."""
        return size(without(self.on_log, self.consumed))

    def _seen(self) -> Ranges:
        return merged([*self.on_log, *self.consumed, *self.trimmed])

    def _highest(self) -> int:
        return max(self.stated, highest(self._seen()))


def accounts(log: Path | None, db: Path | None) -> list[Account]:
    """Return the account of each producer that log or store know, in order of their ids."""
    found: dict[str, Account] = {}
    if log is not None:
        _read_log(log, found)
        if not _is_open_elsewhere(log):
            for account in found.values():
                account.ended = True
    if db is not None:
        # Not at the top: the account of a log needs no DuckDB, as `doctor` beside an agent has none.
        from evaltap.evaluator.remote.client import open_to_read

        with open_to_read(db) as store:
            _read_store(store, found)
    return _in_order(found)


def landed_accounts(store: "StoreReader") -> list[Account]:
    """Return the account of each producer that a store knows, in order of their ids."""
    found: dict[str, Account] = {}
    _read_store(store, found)
    return _in_order(found)


def _in_order(found: dict[str, Account]) -> list[Account]:
    for account in found.values():
        for name in ("on_log", "trimmed", "consumed", "dead", "erased"):
            setattr(account, name, merged(getattr(account, name)))
    return [found[producer_id] for producer_id in sorted(found)]


def _account(found: dict[str, Account], producer_id: str) -> Account:
    return found.setdefault(producer_id, Account(producer_id))


def _state(account: Account, highest_seq: int, drops: dict[str, int], closing: bool) -> None:
    # Numbers and drops of a producer only grow, so the last manifest says the most.
    account.stated = max(account.stated, highest_seq)
    for reason, count in drops.items():
        account.dropped[reason] = max(account.dropped.get(reason, 0), count)
    account.closed = account.closed or closing


def _read_log(path: Path, found: dict[str, Account]) -> None:
    with closing(open_log(path, mode="read")) as log:
        gone = trimmed(log)
        manifests = [(0, one.manifest) for one in gone.values() if one.manifest is not None]
        for name, one in gone.items():
            if one.last_seq:
                _account(found, name).trimmed.append((1, one.last_seq))
        for _, record in chain(manifests, log.records()):
            seq = parse_seq(record.header("seq"))
            producer_id = record.header("producer_id")
            try:
                decoded = decode_record(record)
            except RecordError:
                decoded = None
            if isinstance(decoded, Manifest):
                account = _account(found, decoded.producer_id)
                _state(account, decoded.highest_seq, dict(decoded.drops), decoded.closing)
            elif producer_id and seq is not None:
                _add(_account(found, producer_id).on_log, seq)


def _is_open_elsewhere(path: Path) -> bool:
    """Return whether anybody has the log open, True where that cannot be known.

    SQLite gives a log to a connection for itself alone only when no other is open.
    """
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)
        ) as own:
            own.execute("PRAGMA locking_mode = EXCLUSIVE")
            own.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        return True
    return False


def _add(ranges: Ranges, seq: int) -> None:
    if ranges and ranges[-1][1] == seq - 1:
        ranges[-1] = (ranges[-1][0], seq)
        return
    ranges.append((seq, seq))
    if len(ranges) % MERGE_AT == 0:
        ranges[:] = merged(ranges)


def _read_store(store: "StoreReader", found: dict[str, Account]) -> None:
    for producer_id, first, last in store.rows(
        "SELECT producer_id, first_seq, last_seq FROM consumed_ranges"
    ):
        _account(found, producer_id).consumed.append((first, last))
    for producer_id, highest_seq, drops, is_closing in store.rows(
        "SELECT producer_id, highest_seq, drops, closing FROM manifests"
    ):
        _state(_account(found, producer_id), highest_seq, json.loads(drops), is_closing)
    for (headers,) in store.rows("SELECT record_headers FROM dead_letters"):
        letter = WireRecord(None, None, read_headers(headers))
        producer_id, seq = letter.header("producer_id"), parse_seq(letter.header("seq"))
        if producer_id and seq is not None:
            _account(found, producer_id).dead.append((seq, seq))
    for producer_id, seq in store.rows("SELECT producer_id, seq FROM erasures"):
        _account(found, producer_id).erased.append((seq, seq))
