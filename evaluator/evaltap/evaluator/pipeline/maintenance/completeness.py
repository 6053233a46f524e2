"""Account for each producer's turns: compare the reported numbers with the log and the store.

`recorded = delivered + spooled + dropped{reason}`, verified without trusting the process: records are
numbered without gaps, and manifests contain the highest number and the drops.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.evaluator.ingest.landing.seq_ranges import Ranges, highest, merged, size, without
from evaltap.schemas.data import JsonObject
from evaltap.schemas.log.local import LocalLog, open_log
from evaltap.schemas.log.retention import trimmed
from evaltap.schemas.text import counted
from evaltap.schemas.wire.dead_letter import read_headers
from evaltap.schemas.wire.record import Manifest, RecordError, WireRecord, decode_record, parse_seq

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store
    from evaltap.evaluator.store.queries import StoreReader
    from evaltap.evaluator.store.remote.client import RemoteReader

MERGE_AT = 10_000
"""The number of ranges after which those of a log are merged: records of producers may be interleaved."""


@dataclass(slots=True)
class Account:
    """The account of one producer, in numbers of its records."""

    producer_id: str
    stated: int = 0
    """The highest number in its last manifest."""
    dropped: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    ended: bool = False
    """Whether no process has the producer's log open."""
    on_log: Ranges = field(default_factory=list)
    trimmed: Ranges = field(default_factory=list)
    """Records that every consumer of the log had landed, and that the log has deleted since."""
    passed: Ranges = field(default_factory=list)
    """Records before the offset from which the store continues."""
    consumed: Ranges = field(default_factory=list)
    """Records that the store has consumed, whatever their outcome."""
    dead: Ranges = field(default_factory=list)
    erased: Ranges = field(default_factory=list)
    is_landed: bool = False
    """Whether a store is part of the account."""
    began_now: bool = False
    """Whether that store began at the end of the log."""

    @property
    def recorded(self) -> int:
        """The number of numbered or dropped turns."""
        return self._highest() + sum(self.dropped.values())

    @property
    def delivered(self) -> int:
        """The number of turns whose record is on the log or in the store."""
        return size(self._seen())

    @property
    def landed(self) -> int:
        """The number of consumed records that are neither dead letters nor erased."""
        return size(without(without(self.consumed, self.dead), self.erased))

    @property
    def lost(self) -> Ranges:
        """Ranges of assigned numbers (first and last) that are neither on the log nor in the store."""
        given = self._highest()
        return without([(1, given)] if given else [], self._seen())

    @property
    def unlanded(self) -> Ranges:
        """Ranges that the log deleted, since others had landed them, before the store read them.

        The store was restored from a copy, or began when they were gone.
        """
        if not self.is_landed:
            return []
        return without(without(without(self.trimmed, self.consumed), self.erased), self.before)

    @property
    def before(self) -> Ranges:
        """Ranges from before the store began, if that was at the end of the log."""
        if not self.began_now:
            return []
        first = min((first for first, _ in self.consumed), default=None)
        return [(1, first - 1 if first else self._highest())]

    @property
    def unaccounted(self) -> bool:
        """Whether the producer ended without reporting its number of turns, so that losses are unknown."""
        return self.ended and not self.closed

    @property
    def waiting(self) -> int:
        """The number of records on the log that were not consumed yet."""
        return size(without(self.on_log, self.consumed)) - self.skipped

    @property
    def skipped(self) -> int:
        """The number of records on the log that the store never reads, because it began after them."""
        return size(without(self.passed, self.consumed))

    def _seen(self) -> Ranges:
        return merged([*self.on_log, *self.consumed, *self.trimmed, *self.erased])

    def _highest(self) -> int:
        return max(self.stated, highest(self._seen()))


@dataclass(frozen=True, slots=True)
class Total:
    """What all producers recorded together, and where it went."""

    producers: int
    recorded: int
    delivered: int
    intended: int
    """Turns dropped because somebody chose so: by sampling, or by a redactor that returned nothing."""
    losses: dict[str, int]
    """Turns dropped for any other reason, by reason; `lost` are numbers that are missing, and
    `unlanded` those that the log deleted before the store read them."""

    @classmethod
    def of(cls, accounts: Sequence[Account], *, waits: bool = False) -> "Total":
        """Add up the accounts; if turns still arrive, no number counts as missing."""
        dropped: Counter[str] = Counter()
        for account in accounts:
            dropped.update(account.dropped)
        intended = sum(count for reason, count in dropped.items() if _is_intended(reason))
        losses = {
            reason: count for reason, count in dropped.items() if not _is_intended(reason) and count
        }
        for name in ("lost", "unlanded"):
            if not waits and (count := sum(size(getattr(account, name)) for account in accounts)):
                losses[name] = count
        recorded = sum(account.recorded for account in accounts)
        delivered = sum(account.delivered for account in accounts)
        return cls(len(accounts), recorded, delivered, intended, dict(sorted(losses.items())))

    def __str__(self) -> str:
        lost = "".join(f", {reason} {count:,}" for reason, count in self.losses.items())
        return (
            f"{counted(self.producers, 'producer')}: recorded {self.recorded:,},"
            f" delivered {self.delivered:,}, left out on purpose {self.intended:,}{lost}"
        )


def _is_intended(reason: str) -> bool:
    """Return whether turns are dropped for a reason because somebody chose so."""
    return reason.partition(":")[0] in ("sampled_out", "rate_limited", "redactor")


def accounts(log: Path | None, db: Path | None) -> list[Account]:
    """Return the account of each producer in the log or the store, sorted by id."""
    found: dict[str, Account] = {}
    if log is not None:
        _read_log(log, found, db)
        if not _is_open_elsewhere(log):
            for account in found.values():
                account.ended = True
    if db is not None:
        with _opened(db) as store:
            _read_store(store, found)
            began_now = bool(
                store.rows("SELECT 1 FROM meta WHERE starts_with(key, 'began_now:') LIMIT 1")
            )
        for account in found.values():
            account.is_landed, account.began_now = log is not None, began_now
    return _in_order(found)


def landed_accounts(store: "StoreReader") -> list[Account]:
    """Return the account of each producer in a store, sorted by id."""
    found: dict[str, Account] = {}
    _read_store(store, found)
    return _in_order(found)


def _in_order(found: dict[str, Account]) -> list[Account]:
    for account in found.values():
        for name in ("on_log", "trimmed", "passed", "consumed", "dead", "erased"):
            setattr(account, name, merged(getattr(account, name)))
    return [found[producer_id] for producer_id in sorted(found)]


def _account(found: dict[str, Account], producer_id: str) -> Account:
    return found.setdefault(producer_id, Account(producer_id))


def _state(account: Account, highest_seq: int, drops: dict[str, int], closing: bool) -> None:
    # Numbers and drops of a producer only grow, so the last manifest has the highest values.
    account.stated = max(account.stated, highest_seq)
    for reason, count in drops.items():
        account.dropped[reason] = max(account.dropped.get(reason, 0), count)
    account.closed = account.closed or closing


def _opened(db: Path) -> "Store | RemoteReader":
    # Imported here because the account of a log needs no DuckDB: `doctor` next to an agent has none.
    from evaltap.evaluator.store.remote.client import open_to_read

    return open_to_read(db)


def _continues_at(log: LocalLog, db: Path | None) -> int:
    """Return the offset from which a store continues a log; 0 without a store."""
    if db is None:
        return 0
    from evaltap.evaluator.ingest.sources.local_log import partition_of
    from evaltap.evaluator.ingest.sources.positions import stored_offsets

    with _opened(db) as store:
        return stored_offsets(store).get(partition_of(log), 0)


def _read_log(path: Path, found: dict[str, Account], db: Path | None) -> None:
    with closing(open_log(path, mode="read")) as log:
        continues_at = _continues_at(log, db)
        gone = trimmed(log)
        manifests = [(0, one.manifest) for one in gone.values() if one.manifest is not None]
        for name, one in gone.items():
            if one.last_seq:
                _account(found, name).trimmed.append((1, one.last_seq))
        for name, number in log.erased():
            _account(found, name).erased.append((number, number))
        for offset, record in chain(manifests, log.records()):
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
                account = _account(found, producer_id)
                _add(account.on_log, seq)
                if offset < continues_at:
                    _add(account.passed, seq)


def _is_open_elsewhere(path: Path) -> bool:
    """Return whether another process has the log open; True if unknown.

    SQLite only grants exclusive access to a log if no other connection is open.
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


def account_lines(account: Account, store: Path | None) -> Iterator[str]:
    """Yield the account of a producer as text; without a store, only of its turns on the log."""
    data = account_data(account)
    drops = "".join(f", {reason} {count:,}" for reason, count in data["dropped"].items())
    yield f"\nproducer {account.producer_id} ({_ending(account)})"
    yield (
        f"  recorded {data['recorded']:,} = delivered {data['delivered']:,}"
        f" + dropped {sum(data['dropped'].values()):,}{drops} + lost {data['lost']:,}"
    )
    yield f"  of the delivered: {_whereabouts(data, store)}"
    if account.unaccounted:
        yield "  UNKNOWN: turns in its memory when it ended are not counted"
    for first, last in data["gaps"]:
        yield f"  GAP: records {first} to {last} are missing"
    for first, last in data["unlanded"]:
        yield f"  GAP: records {first} to {last} never landed in this file and are gone from the log"


def _whereabouts(data: JsonObject, store: Path | None) -> str:
    """Describe where the delivered turns of a producer are; without a store, only those on the log."""
    trimmed = f", trimmed {data['trimmed']:,}" if data["trimmed"] else ""
    if store is None:
        return f"on the log {data['waiting']:,}{trimmed}; to see what landed: --db X.duckdb"
    skipped = f", before its start {data['skipped']:,}" if data["skipped"] else ""
    return (
        f"landed {data['landed']:,}, waiting on the log {data['waiting']:,},"
        f" dead letters {data['dead_letters']:,}, erased {data['erased']:,}{trimmed}{skipped}"
    )


def _ending(account: Account) -> str:
    if account.closed:
        return "closed normally"
    return "ended without a closing manifest" if account.ended else "no closing manifest yet"


def account_data(account: Account) -> JsonObject:
    return {
        "producer_id": account.producer_id,
        "closed": account.closed,
        "unaccounted": account.unaccounted,
        "recorded": account.recorded,
        "delivered": account.delivered,
        "dropped": dict(sorted(account.dropped.items())),
        "lost": size(account.lost),
        "landed": account.landed,
        "waiting": account.waiting,
        "skipped": account.skipped,
        "dead_letters": size(account.dead),
        "erased": size(account.erased),
        "trimmed": size(account.trimmed),
        "gaps": account.lost,
        "unlanded": account.unlanded,
    }
