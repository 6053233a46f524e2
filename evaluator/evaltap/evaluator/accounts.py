"""The account of each producer: what it says it recorded, against what is on the log and landed.

`recorded = delivered + spooled + dropped{reason}`, seen from outside and without trusting anybody:
records are numbered without gaps, and manifests state the highest number and the drops.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from evaltap.evaluator.store import Store
from evaltap.schemas.local_log import open_log
from evaltap.schemas.record import Manifest, RecordError, decode_record

RECORDS_PER_READ = 500


@dataclass(slots=True)
class Account:
    """One producer; numbers are those of its records."""

    producer_id: str
    stated: int = 0
    """The highest number of its last manifest."""
    dropped: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    on_log: set[int] = field(default_factory=set)
    landed: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)

    @property
    def highest(self) -> int:
        """The highest number that is known to have been given."""
        return max((self.stated, *self.on_log, *self.landed, *self.dead, *self.erased))

    @property
    def recorded(self) -> int:
        """Turns numbered or dropped."""
        return self.highest + sum(self.dropped.values())

    @property
    def delivered(self) -> int:
        """Turns of which the record was seen somewhere: log, store, dead letters, erased."""
        return len(self.on_log | self.landed | self.dead | self.erased)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Ranges of numbers, first and last, that were given and are nowhere."""
        seen = self.on_log | self.landed | self.dead | self.erased
        return list(_ranges(n for n in range(1, self.highest + 1) if n not in seen))

    @property
    def waiting(self) -> int:
        """Records on the log that have not landed, or that brought a turn which was there already."""
        return len(self.on_log - self.landed - self.dead - self.erased)


def accounts(log: Path | None, db: Path | None) -> list[Account]:
    """Return the account of each producer that log or store know, in order of their ids."""
    found: dict[str, Account] = {}
    if log is not None:
        _read_log(log, found)
    if db is not None:
        with Store(db, create=False) as store:
            _read_store(store, found)
    return [found[producer_id] for producer_id in sorted(found)]


def _account(found: dict[str, Account], producer_id: str) -> Account:
    return found.setdefault(producer_id, Account(producer_id))


def _state(account: Account, highest: int, drops: dict[str, int], closing: bool) -> None:
    # Numbers and drops of a producer only grow, so the last manifest says the most.
    account.stated = max(account.stated, highest)
    for reason, count in drops.items():
        account.dropped[reason] = max(account.dropped.get(reason, 0), count)
    account.closed = account.closed or closing


def _read_log(path: Path, found: dict[str, Account]) -> None:
    log = open_log(path, mode="read")
    try:
        offset = log.start_offset()
        while batch := log.read(offset, RECORDS_PER_READ):
            for _, record in batch:
                seq = record.header("seq")
                producer_id = record.header("producer_id")
                try:
                    decoded = decode_record(record)
                except RecordError:
                    decoded = None
                if isinstance(decoded, Manifest):
                    account = _account(found, decoded.producer_id)
                    _state(account, decoded.highest_seq, dict(decoded.drops), decoded.closing)
                elif producer_id and seq and seq.isdecimal():
                    _account(found, producer_id).on_log.add(int(seq))
            offset = batch[-1][0] + 1
    finally:
        log.close()


def _read_store(store: Store, found: dict[str, Account]) -> None:
    for producer_id, seq in store.rows("SELECT DISTINCT producer_id, seq FROM turns"):
        _account(found, producer_id).landed.add(seq)
    for producer_id, highest, drops, closing in store.rows(
        "SELECT producer_id, highest_seq, drops, closing FROM manifests"
    ):
        _state(_account(found, producer_id), highest, json.loads(drops), closing)
    for (headers,) in store.rows("SELECT record_headers FROM dead_letters"):
        named = {name: value for name, value in orjson.loads(headers or "[]")}
        if named.get("producer_id") and str(named.get("seq", "")).isdecimal():
            _account(found, named["producer_id"]).dead.add(int(named["seq"]))
    if store.rows("SELECT 1 FROM duckdb_tables() WHERE table_name = 'erasures'"):
        for producer_id, seq in store.rows("SELECT producer_id, seq FROM erasures"):
            _account(found, producer_id).erased.add(seq)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last
