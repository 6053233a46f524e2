"""Landing: records of a log become rows, in one DuckDB transaction with the log's offsets.

A crash before the commit leaves no trace of the batch; a crash after it loses nothing.  The next start
resumes at the stored offset.  Records that cannot be decoded become dead letters with the reason and the raw
bytes.  A turn that is already stored in the same revision is a redelivery: it is counted, not stored again.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from msgspec import Struct

from evaltap.evaluator.cases.identity import CASE_KEY, CaseKey, FirstPosition, case_key
from evaltap.evaluator.ingest.landing.reading import read_record
from evaltap.evaluator.ingest.landing.recent_cases import RecentCases
from evaltap.evaluator.ingest.landing.row_types import (
    CaseRow,
    DeadLetterId,
    DeadLetterRow,
    FeedbackRow,
    ManifestRow,
)
from evaltap.evaluator.ingest.landing.seq_ranges import merged
from evaltap.evaluator.ingest.landing.trace_progress import ReadTraces
from evaltap.evaluator.ingest.landing.turns import LandedTurn
from evaltap.evaluator.ingest.sources.base import Partition, ReadTrace, SourceBatch, SourceRecord
from evaltap.evaluator.ingest.sources.positions import stored_offsets
from evaltap.evaluator.store.database import LANDING_MEMORY, Store
from evaltap.evaluator.store.queries import Appendable, Row, Rows
from evaltap.schemas.wire.dead_letter import headers_json
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import Manifest, RecordError, in_recording, parse_seq

if TYPE_CHECKING:
    import numpy.typing as npt

LARGEST_DEAD_LETTER = 8 << 20
"""Bytes of a broken record that are stored: a few kilobytes may unpack to hundreds of megabytes."""


def manifest_row(manifest: Manifest) -> ManifestRow:
    return ManifestRow(
        manifest.producer_id,
        manifest.highest_seq,
        drops=orjson.dumps(dict(manifest.drops)).decode(),
        closing=manifest.closing,
        stated_at=manifest.time.replace(tzinfo=None),
    )


def feedback_row(feedback: Feedback, source: SourceRecord) -> FeedbackRow:
    return FeedbackRow(
        feedback.app_name,
        in_recording(feedback.eval_set_id, feedback.eval_id, feedback.recording),
        feedback.eval_id,
        invocation_id=feedback.invocation_id or None,
        trace_id=feedback.trace_id or None,
        feedback_id=feedback.feedback_id,
        name=feedback.name,
        positive=feedback.positive,
        score=feedback.score,
        comment=feedback.comment or None,
        correction=feedback.correction or None,
        given_by=feedback.given_by or None,
        producer_id=source.record.header("producer_id") or "",
        given_at=feedback.time.replace(tzinfo=None),
    )


def dead_letter_row(source: SourceRecord, error: RecordError) -> DeadLetterRow:
    """Return the row of a record that cannot be read."""
    value, detail = source.record.value, str(error)
    if value is not None and len(value) > LARGEST_DEAD_LETTER:
        detail += f"; its first {LARGEST_DEAD_LETTER} bytes are kept; the log has all of it"
        value = value[:LARGEST_DEAD_LETTER]
    return DeadLetterRow(
        *source.partition,
        source.offset,
        reason=error.reason.value,
        detail=detail,
        parked=error.parked,
        record_key=source.record.key,
        record_headers=headers_json(source.record.headers),
        record_value=value,
    )


REMEMBERED_CASES = 10_000
"""Cases whose state is kept in memory, so that the next turn of a session needs no query."""


@dataclass(slots=True)
class LandedCounts:
    """The outcome of the records of one or more batches; the other counts add up to `records`."""

    records: int = 0
    turns: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    manifests: int = 0
    feedback: int = 0

    def add(self, other: "LandedCounts") -> None:
        self.records += other.records
        self.turns += other.turns
        self.duplicates += other.duplicates
        self.dead_letters += other.dead_letters
        self.manifests += other.manifests
        self.feedback += other.feedback


@dataclass(slots=True)
class _Known:
    """The state of a case: its header, the revisions of its turns, its first position."""

    header: str
    turns: dict[str, int] = field(default_factory=dict)
    inclusion_probability: float = 0.0
    """The largest among its turns, which share one sampling draw."""
    begin: FirstPosition | None = None
    """None until its first rows are written."""

    @property
    def revision(self) -> int:
        return sum(self.turns.values())


@dataclass(slots=True)
class _Rows:
    turns: list[LandedTurn] = field(default_factory=list)
    dead_letters: list[DeadLetterRow] = field(default_factory=list)
    manifests: list[ManifestRow] = field(default_factory=list)
    feedback: dict[str, FeedbackRow] = field(default_factory=dict)
    changed: dict[CaseKey, LandedTurn] = field(default_factory=dict)
    """The last turn of each case."""
    others: list[CaseRow] = field(default_factory=list)
    """Cases as they were before a turn of another user, so that each of their users is known."""
    erased: list[tuple[str, int]] = field(default_factory=list)
    """Producers and numbers of records that were erased from the log before they could land."""
    consumed: dict[str, list[int]] = field(default_factory=dict)

    def consume(self, producer_id: str, seq: int) -> None:
        """Note a record's sequence number, whatever its outcome."""
        if producer_id:
            self.consumed.setdefault(producer_id, []).append(seq)

    def consumed_ranges(self) -> list[Row]:
        """Return the sequence numbers as ranges."""
        return [
            (producer_id, first, last)
            for producer_id, numbers in self.consumed.items()
            for first, last in merged((number, number) for number in numbers)
        ]


class Lander:
    """Writes batches of records to a store.  Used from one thread.

    Every new turn is added to `recent`.  With `ahead`, `land` writes in the background and returns before
    the batch is stored.  If that fails, the next use of the store raises the error, and the lander must be
    discarded.
    """

    def __init__(
        self, store: Store, *, recent: RecentCases | None = None, ahead: bool = False
    ) -> None:
        self._store = store
        self._recent = recent
        self._ahead = ahead
        self._read_traces = ReadTraces(store)
        self._known: OrderedDict[CaseKey, _Known] = OrderedDict()
        self.changed: dict[CaseKey, FirstPosition] = {}
        """The cases that changed since `take_changed`."""
        self._seen = BloomFilter()
        with store.limited_memory(LANDING_MEMORY):  # DuckDB would keep what it reads
            # Without DISTINCT, which would hold the keys of all cases in memory.
            for keys in store.stream(f"SELECT {CASE_KEY} FROM cases", size=_AT_ONCE):
                self._seen.add_all([key for (key,) in keys])
        last = store.rows("SELECT max(landed_seq) FROM turns")[0][0]
        self._landed_seq = int(last or 0)

    def offsets(self) -> dict[Partition, int]:
        """Return the offset at which to continue each partition."""
        return stored_offsets(self._store)

    def take_changed(self) -> dict[CaseKey, FirstPosition]:
        """Return the cases that changed since the last call."""
        taken, self.changed = self.changed, {}
        return taken

    def land(self, batch: SourceBatch, *, instead_of: Sequence[DeadLetterId] = ()) -> LandedCounts:
        """Write a batch and its offsets in one transaction; return the counts of its records.

        The dead letters `instead_of` are deleted in the same transaction.
        """
        counts = LandedCounts(records=len(batch.records))
        rows = _Rows()
        turns: list[LandedTurn] = []
        for record in batch.records:
            # Convert each record to rows immediately, while the decoded case is in the processor's cache.
            match record.error or read_record(record.record):
                case LandedTurn() as landed:
                    turns.append(landed)
                    rows.consume(landed.origin.producer_id, landed.origin.seq)
                case Manifest() as manifest:
                    rows.manifests.append(manifest_row(manifest))
                case Feedback() as feedback:
                    rows.feedback.setdefault(feedback.feedback_id, feedback_row(feedback, record))
                    counts.feedback += 1
                case RecordError() as error:
                    rows.dead_letters.append(dead_letter_row(record, error))
                    if (seq := parse_seq(record.record.header("seq"))) is not None:
                        rows.consume(record.record.header("producer_id") or "", seq)
        for producer_id, seq in self._only_new_erased(batch.erased):
            rows.erased.append((producer_id, seq))
            rows.consume(producer_id, seq)
        self._recall({landed.origin.key for landed in turns})
        for landed in turns:
            counts.duplicates += not self._add(landed, rows)
        received, counts.feedback = counts.feedback, self._only_new_feedback(rows)
        counts.duplicates += received - counts.feedback
        received_bad = len(rows.dead_letters)
        if not instead_of:  # a replayed dead letter is deleted, and may be written again
            rows.dead_letters = self._only_new_dead_letters(rows.dead_letters)
        counts.duplicates += received_bad - len(rows.dead_letters)
        counts.turns = len(rows.turns)
        counts.manifests = len(rows.manifests)
        counts.dead_letters = len(rows.dead_letters)
        self._commit(rows, batch, instead_of)
        while len(self._known) > REMEMBERED_CASES:
            self._known.popitem(last=False)
        return counts

    def _only_new_erased(self, erased: Sequence[tuple[str, int]]) -> Rows:
        """Return the numbers among those of erased records that this store has not accounted for."""
        if not erased:
            return []
        producers, numbers = zip(*erased, strict=True)
        return self._store.rows(_NEW_ERASED, {"producers": producers, "numbers": numbers})

    def _only_new_feedback(self, rows: _Rows) -> int:
        """Remove feedback that is already stored; return how much is new."""
        if rows.feedback:
            known = self._store.rows(
                "SELECT feedback_id FROM feedback WHERE feedback_id IN $ids::VARCHAR[]",
                {"ids": list(rows.feedback)},
            )
            for (feedback_id,) in known:
                rows.feedback.pop(feedback_id, None)
        return len(rows.feedback)

    def _only_new_dead_letters(self, letters: list[DeadLetterRow]) -> list[DeadLetterRow]:
        """Return the dead letters that are not stored yet: a restored log is read a second time."""
        if not letters:
            return letters
        again = {row.position for row in letters}
        again &= set(self._store.rows(_DEAD_LETTERS_AT.format(what=_PLACE), _columns(again)))
        if not again:
            return letters
        # Values may be large, so they are only read when positions match.
        query = _DEAD_LETTERS_AT.format(what=f"{_PLACE}, sha256(record_value)")
        known = set(self._store.large_rows(query, _columns(again)))
        return [row for row in letters if (*row.position, _digest(row.record_value)) not in known]

    def _recall(self, keys: set[CaseKey]) -> None:
        """Load the state of cases that are in the store but not in memory."""
        unknown = []
        for key in keys:
            if key in self._known:
                self._known.move_to_end(key)
            elif key in self._seen:
                unknown.append(key)
        if not unknown:
            return
        names = _columns(unknown)
        for (
            app,
            eval_set,
            eval_id,
            header,
            ids,
            revisions,
            probability,
            *begin,
        ) in self._store.large_rows(_RECALL, names):
            turns = dict(zip(ids, revisions, strict=True))
            first = FirstPosition(*begin)
            self._known[(app, eval_set, eval_id)] = _Known(header, turns, probability, first)

    def _add(self, landed: LandedTurn, rows: _Rows) -> bool:
        """Add a turn; return False if it is already stored in that revision or a later one."""
        origin = landed.origin
        key, name, revision = origin.key, origin.invocation_id, origin.revision
        known = self._known.get(key)
        if known is not None and known.turns.get(name, -1) >= revision:
            # A late older revision is superseded: the newer one contains its evidence.
            return False
        last = rows.changed.get(key)
        if last is not None and last.case.session.userId != landed.case.session.userId:
            rows.others.append(self._case_row(last))
        begins = known is None
        if known is None:
            known = self._known[key] = _Known(landed.case.header_json)
        known.turns[name] = revision
        probability = landed.case.source.inclusionProbability
        known.inclusion_probability = max(
            known.inclusion_probability, 1.0 if probability is None else probability
        )
        self._landed_seq += 1
        rows.turns.append(landed)
        rows.changed[key] = landed
        if self._recent is not None:
            self._recent.add(landed, self._landed_seq, known.header if begins else None)
        return True

    def _commit(self, rows: _Rows, batch: SourceBatch, instead_of: Sequence[DeadLetterId]) -> None:
        first_seq = self._landed_seq - len(rows.turns) + 1
        try:
            now = self._store.now()
            tables = self._tables(rows, batch, first_seq, now)
            write = partial(self._write, tables, batch.traces, instead_of, now)
            if self._ahead:
                self._store.run_in_background(write)
            else:
                write()
        except BaseException:
            # The state in memory may now be ahead of the file.
            self._known.clear()
            raise
        self._note(rows, first_seq, now)

    def _tables(
        self, rows: _Rows, batch: SourceBatch, first_seq: int, now: datetime
    ) -> Sequence[tuple[str, Appendable]]:
        """Return the rows of each table in the form in which the writing thread needs the lock least."""
        offsets = batch.next_offsets.items()
        cases = [*rows.others, *map(self._case_row, rows.changed.values())]
        stamped: Iterable[CaseRow | DeadLetterRow | ManifestRow | FeedbackRow] = chain(
            cases, rows.dead_letters, rows.manifests, rows.feedback.values()
        )
        for one in stamped:
            one.landed_at = now
        tables: dict[str, Sequence[Struct] | Sequence[Row]] = {
            "turns": [turn.landed(seq, now) for seq, turn in enumerate(rows.turns, first_seq)],
            "tool_calls": [call for landed in rows.turns for call in landed.calls],
            "cases": cases,
            "dead_letters": rows.dead_letters,
            "manifests": rows.manifests,
            "feedback": [*rows.feedback.values()],
            "erasures": [(*row, now) for row in rows.erased],
            "consumed_ranges": [(*row, now) for row in rows.consumed_ranges()],
            "offsets": [(*partition, next_offset, now) for partition, next_offset in offsets],
        }
        return [
            (table, self._store.prepared(table, some)) for table, some in tables.items() if some
        ]

    def _case_row(self, landed: LandedTurn) -> CaseRow:
        """Return the row of a case, of which this is the last turn that landed."""
        known, fields = self._known[landed.origin.key], landed.case
        source = fields.source
        return CaseRow(
            *landed.origin.key,
            revision=known.revision,
            eval_mode=fields.eval_mode,
            user_id=fields.session.userId,
            turn_count=len(known.turns),
            service=source.service,
            framework=source.framework,
            convention=source.convention,
            recorder_version=source.recorderVersion,
            inclusion_probability=None
            if source.inclusionProbability is None
            else known.inclusion_probability,
            case_json=known.header,
        )

    def _write(
        self,
        tables: Sequence[tuple[str, Appendable]],
        traces: Sequence[ReadTrace],
        instead_of: Sequence[DeadLetterId],
        now: datetime,
    ) -> None:
        with self._store.transaction():
            for letter in instead_of:
                self._store.execute(_DELETE_DEAD_LETTER, letter)
            for table, rows in tables:
                self._store.append(table, rows)
            self._read_traces.write(traces, now)

    def _note(self, rows: _Rows, first_seq: int, now: datetime) -> None:
        """Note the changed cases, and the first position of new ones."""
        begin = FirstPosition(first_seq, now)
        for key in rows.changed:
            known = self._known[key]
            if known.begin is None:
                known.begin = begin
                self._seen.add(key)
            self.changed[key] = known.begin


def _columns(places: Iterable[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*places, strict=True)]


def _digest(value: bytes | None) -> str | None:
    return None if value is None else hashlib.sha256(value).hexdigest()


_PLACE = "topic, partition_number, record_offset"

_NEW_ERASED = """
SELECT e.producer_id, e.seq
FROM (SELECT unnest($producers::VARCHAR[]) AS producer_id, unnest($numbers::BIGINT[]) AS seq) e
ANTI JOIN consumed_ranges c
  ON c.producer_id = e.producer_id AND e.seq BETWEEN c.first_seq AND c.last_seq
"""

_DEAD_LETTERS_AT = """
WITH places AS (
  SELECT unnest(?) AS topic, unnest(?) AS partition_number, unnest(?) AS record_offset
)
SELECT {what} FROM dead_letters SEMI JOIN places USING (topic, partition_number, record_offset)
"""

_DELETE_DEAD_LETTER = """
DELETE FROM dead_letters
WHERE (topic, partition_number, record_offset, reason, detail, landed_at) = (?, ?, ?, ?, ?, ?)
"""

_AT_ONCE: Final = 10_000

_RECALL = """
WITH keys AS (SELECT unnest(?) AS app_name, unnest(?) AS eval_set_id, unnest(?) AS eval_id)
SELECT app_name, eval_set_id, eval_id,
       (SELECT arg_min(c.case_json, c.revision) FROM cases c
        WHERE (c.app_name, c.eval_set_id, c.eval_id)
            = (known.app_name, known.eval_set_id, known.eval_id)),
       list(invocation_id), list(turn_revision), max(probability), min(landed_seq), min(landed_at)
FROM (
  SELECT app_name, eval_set_id, eval_id, invocation_id, max(turn_revision) AS turn_revision,
         max(coalesce(inclusion_probability, 1)) AS probability,
         min(landed_seq) AS landed_seq, min(landed_at) AS landed_at
  FROM turns SEMI JOIN keys USING (app_name, eval_set_id, eval_id)
  GROUP BY ALL
) known
GROUP BY app_name, eval_set_id, eval_id
"""

_BITS: Final = 1 << 27
_PROBES: Final = 4
_Keys = TypeVar("_Keys", int, "npt.NDArray[Any]")


class BloomFilter:
    """A set of cases with false positives and no false negatives."""

    def __init__(self) -> None:
        self._bits = bytearray(_BITS >> 3)

    def add(self, case: CaseKey) -> None:
        """Add a case."""
        for place in _places(case_key(case)):
            self._bits[place >> 3] |= 1 << (place & 7)

    def add_all(self, keys: Sequence[int]) -> None:
        """Add cases by their `case_key`, which is quicker for many."""
        import numpy as np  # consumers of an empty store do without it

        bits = np.frombuffer(self._bits, np.uint8)
        for places in _places(np.array(keys, np.uint64)):
            np.bitwise_or.at(bits, places >> 3, (1 << (places & 7)).astype(np.uint8))

    def __contains__(self, case: CaseKey) -> bool:
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in _places(case_key(case)))


def _places(key: _Keys) -> Iterator[_Keys]:
    """Yield the bits of a key, or of each key of an array."""
    step = key >> 29 | 1
    for number in range(_PROBES):
        yield (key + number * step) & (_BITS - 1)
