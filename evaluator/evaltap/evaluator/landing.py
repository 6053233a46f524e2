"""Landing: records of a log become rows, in one DuckDB transaction with the log's offsets.

A crash before the commit leaves nothing, after it everything; the next start reads on at the stored
offset.  What cannot be decoded becomes a dead letter with its reason and raw bytes.  A turn that is
already there in that revision is a re-delivery and is counted, not stored again.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

from evaltap.evaluator.fresh_cases import FreshCases
from evaltap.evaluator.landed_rows import (
    LandedTurn,
    case_row,
    dead_letter_row,
    feedback_row,
    landed_turn,
    manifest_row,
)
from evaltap.evaluator.log_position import stored_offsets
from evaltap.evaluator.outlined_case import outline_case
from evaltap.evaluator.pending import Begin, CaseKey
from evaltap.evaluator.read_traces import ReadTraces
from evaltap.evaluator.seen import Seen
from evaltap.evaluator.seq_ranges import merged
from evaltap.evaluator.sources.base import Partition, SourceBatch
from evaltap.evaluator.store import Row, Store
from evaltap.schemas.documents import case_data
from evaltap.schemas.errors import FormatError
from evaltap.schemas.feedback import Feedback
from evaltap.schemas.record import (
    DecodedCase,
    Manifest,
    Reason,
    RecordError,
    WireRecord,
    counted,
    decode_record,
)

REMEMBERED_CASES = 10_000
"""Cases whose turns are kept in memory, so that the next turn of a live session needs no query."""


class LetterName(NamedTuple):
    """What tells a dead letter from others at its place, which a topic that was made anew gives again.

    Not its value, which may be large: finding it would read those around it as well.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    landed_at: datetime


@dataclass(slots=True)
class LandedCounts:
    """What became of the records of one or more batches; the numbers add up to `records`."""

    records: int = 0
    turns: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    manifests: int = 0
    feedback: int = 0

    def add(self, other: "LandedCounts") -> None:
        """Add the counts of another batch."""
        self.records += other.records
        self.turns += other.turns
        self.duplicates += other.duplicates
        self.dead_letters += other.dead_letters
        self.manifests += other.manifests
        self.feedback += other.feedback


@dataclass(slots=True)
class _Known:
    """What is known of a case: its header, the revision of each of its turns, where it begins."""

    header: str
    turns: dict[str, int] = field(default_factory=dict)
    begin: Begin | None = None
    """None until its first rows are written."""

    @property
    def revision(self) -> int:
        return sum(self.turns.values())


@dataclass(slots=True)
class _Rows:
    """What one transaction writes."""

    turns: list[LandedTurn] = field(default_factory=list)
    dead_letters: list[Row] = field(default_factory=list)
    manifests: list[Row] = field(default_factory=list)
    feedback: dict[str, Row] = field(default_factory=dict)
    touched: dict[CaseKey, Row] = field(default_factory=dict)
    """The cases of the turns, with what the last one says of its case."""
    consumed: dict[str, list[int]] = field(default_factory=dict)

    def consume(self, producer_id: str, seq: int) -> None:
        """Note the number of a record, whatever becomes of it."""
        if producer_id:
            self.consumed.setdefault(producer_id, []).append(seq)

    def consumed_ranges(self) -> list[Row]:
        """Return the numbers of the records as ranges."""
        return [
            (producer_id, first, last)
            for producer_id, numbers in self.consumed.items()
            for first, last in merged((number, number) for number in numbers)
        ]


class Lander:
    """Writes batches of records into a store; one thread.

    `fresh` is told of every new turn.  A lander that lands `ahead` leaves the writing behind: `land`
    returns before the batch is stored, and a failure is raised by whatever uses the store next; then the
    lander is of no more use.
    """

    def __init__(
        self, store: Store, *, fresh: FreshCases | None = None, ahead: bool = False
    ) -> None:
        self._store = store
        self._fresh = fresh
        self._ahead = ahead
        self._read_traces = ReadTraces(store)
        self._known: OrderedDict[CaseKey, _Known] = OrderedDict()
        self._touched: dict[CaseKey, Begin] = {}
        self._seen = Seen()
        for names in store.stream(_NAMES, size=10_000):
            for name in names:
                self._seen.add(name)
        last = store.rows("SELECT max(landed_seq) FROM turns")[0][0]
        self._landed_seq = int(last or 0)

    def offsets(self) -> dict[Partition, int]:
        """Return where to go on reading each log."""
        return stored_offsets(self._store)

    @property
    def touched(self) -> Mapping[CaseKey, Begin]:
        """The cases that have something new since `take_touched`."""
        return self._touched

    def take_touched(self) -> dict[CaseKey, Begin]:
        """Return the cases that have something new since the last call."""
        taken, self._touched = self._touched, {}
        return taken

    def land(self, batch: SourceBatch, *, instead_of: Sequence[LetterName] = ()) -> LandedCounts:
        """Write a batch and its offsets in one transaction; return what became of its records.

        `instead_of` are dead letters that go in the same transaction.
        """
        counts = LandedCounts(records=len(batch.records))
        rows = _Rows()
        turns: list[tuple[LandedTurn, int]] = []
        for record in batch.records:
            # Rows at once, so that the decoded case is freed while it is in the processor's cache.
            match record.error or _read(record.record):
                case LandedTurn() as landed:
                    turns.append((landed, len(record.record.value or b"")))
                    rows.consume(landed.producer_id, landed.seq)
                case Manifest() as manifest:
                    rows.manifests.append(manifest_row(manifest))
                case Feedback() as feedback:
                    rows.feedback.setdefault(feedback.feedback_id, feedback_row(feedback, record))
                    counts.feedback += 1
                case RecordError() as error:
                    rows.dead_letters.append(dead_letter_row(record, error))
                    if (seq := counted(record.record.header("seq"))) is not None:
                        rows.consume(record.record.header("producer_id") or "", seq)
        self._recall({landed.key for landed, _ in turns})
        for landed, size in turns:
            counts.duplicates += not self._add(landed, size, rows)
        received, counts.feedback = counts.feedback, self._only_new_feedback(rows)
        counts.duplicates += received - counts.feedback
        received_bad = len(rows.dead_letters)
        if not instead_of:  # a letter that is replayed goes, and may come again
            rows.dead_letters = self._only_new_letters(rows.dead_letters)
        counts.duplicates += received_bad - len(rows.dead_letters)
        counts.turns = len(rows.turns)
        counts.manifests = len(rows.manifests)
        counts.dead_letters = len(rows.dead_letters)
        self._commit(rows, batch, instead_of)
        while len(self._known) > REMEMBERED_CASES:
            self._known.popitem(last=False)
        return counts

    def _only_new_feedback(self, rows: _Rows) -> int:
        """Leave out the feedback that is there already; return how much is new."""
        if rows.feedback:
            known = self._store.rows(
                "SELECT feedback_id FROM feedback WHERE feedback_id IN $ids::VARCHAR[]",
                {"ids": list(rows.feedback)},
            )
            for (feedback_id,) in known:
                rows.feedback.pop(feedback_id, None)
        return len(rows.feedback)

    def _only_new_letters(self, letters: list[Row]) -> list[Row]:
        """Leave out bad records that lie where they lay: a log that was put back is read again."""
        if not letters:
            return letters
        again = {row[:3] for row in letters}
        again &= set(self._store.rows(_LETTERS_AT.format(what=_PLACE), _columns(again)))
        if not again:
            return letters
        # Only now: reading values costs memory, as they may be large.
        query = _LETTERS_AT.format(what=f"{_PLACE}, sha256(record_value)")
        known = set(self._store.large_rows(query, _columns(again)))
        return [row for row in letters if (*row[:3], _digest(row[8])) not in known]

    def _recall(self, keys: set[CaseKey]) -> None:
        """Load what the store knows of cases that are not remembered."""
        unknown = []
        for key in keys:
            if key in self._known:
                self._known.move_to_end(key)
            elif key in self._seen:
                unknown.append(key)
        if not unknown:
            return
        names = _columns(unknown)
        for app, eval_set, eval_id, header, ids, revisions, *begin in self._store.large_rows(
            _RECALL, names
        ):
            turns = dict(zip(ids, revisions, strict=True))
            self._known[(app, eval_set, eval_id)] = _Known(header, turns, Begin(*begin))

    def _add(self, landed: LandedTurn, size: int, rows: _Rows) -> bool:
        """Add a turn; return False when it is there already in that revision."""
        key = landed.key
        known = self._known.get(key)
        if known is not None and known.turns.get(landed.invocation_id, -1) >= landed.revision:
            # An older revision that comes late is superseded: its evidence is in the newer one.
            return False
        begins = known is None
        if known is None:
            known = self._known[key] = _Known(landed.header)
        known.turns[landed.invocation_id] = landed.revision
        self._landed_seq += 1
        rows.turns.append(landed)
        rows.touched[key] = landed.case
        if self._fresh is not None:
            self._fresh.add(landed, self._landed_seq, size, begins=begins)
        return True

    def _commit(
        self,
        rows: _Rows,
        batch: SourceBatch,
        instead_of: Sequence[LetterName],
    ) -> None:
        first_seq = self._landed_seq - len(rows.turns) + 1
        try:
            now = self._store.now()
            cases = [self._case_row(key, fields) for key, fields in rows.touched.items()]
            write = partial(self._write_all, rows, cases, batch, instead_of, first_seq, now)
            if self._ahead:
                self._store.behind(write)
            else:
                write()
        except BaseException:
            # What is remembered may now be ahead of the file.
            self._known.clear()
            raise
        self._note(rows, first_seq, now)

    def _case_row(self, key: CaseKey, fields: Row) -> Row:
        known = self._known[key]
        return case_row(key, known.revision, len(known.turns), fields, known.header)

    def _write_all(
        self,
        rows: _Rows,
        cases: Sequence[Row],
        batch: SourceBatch,
        instead_of: Sequence[LetterName],
        first_seq: int,
        now: datetime,
    ) -> None:
        turns = [landed.row(seq, now) for seq, landed in enumerate(rows.turns, first_seq)]
        with self._store.transaction():
            for letter in instead_of:
                self._store.execute(_TAKE_LETTER, letter)
            self._write("turns", turns)
            self._write("tool_calls", [call for landed in rows.turns for call in landed.calls])
            self._write("cases", _stamped(cases, now))
            self._write("dead_letters", _stamped(rows.dead_letters, now))
            self._write("manifests", _stamped(rows.manifests, now))
            self._write("feedback", _stamped(list(rows.feedback.values()), now))
            self._write("consumed_ranges", _stamped(rows.consumed_ranges(), now))
            places = batch.next_offsets.items()
            self._write("offsets", [(*part, next_, now) for part, next_ in places])
            self._read_traces.write(batch.traces, now)

    def _note(self, rows: _Rows, first_seq: int, now: datetime) -> None:
        """Remember what was touched, and where cases begin that are new."""
        for key in rows.touched:
            known = self._known[key]
            if known.begin is None:
                known.begin = Begin(first_seq, now)
                self._seen.add(key)
            self._touched[key] = known.begin

    def _write(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            self._store.append(table, rows)


def _columns(places: Iterable[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*places, strict=True)]


def _digest(value: bytes | None) -> str | None:
    return None if value is None else hashlib.sha256(value).hexdigest()


_PLACE = "topic, partition_number, record_offset"

_LETTERS_AT = """
WITH places AS (
  SELECT unnest(?) AS topic, unnest(?) AS partition_number, unnest(?) AS record_offset
)
SELECT {what} FROM dead_letters SEMI JOIN places USING (topic, partition_number, record_offset)
"""

_TAKE_LETTER = """
DELETE FROM dead_letters
WHERE (topic, partition_number, record_offset, reason, detail, landed_at) = (?, ?, ?, ?, ?, ?)
"""

_NAMES = "SELECT DISTINCT app_name, eval_set_id, eval_id FROM cases"

_RECALL = """
WITH keys AS (SELECT unnest(?) AS app_name, unnest(?) AS eval_set_id, unnest(?) AS eval_id)
SELECT app_name, eval_set_id, eval_id,
       (SELECT arg_min(c.case_json, c.revision) FROM cases c
        WHERE (c.app_name, c.eval_set_id, c.eval_id)
            = (known.app_name, known.eval_set_id, known.eval_id)),
       list(invocation_id), list(turn_revision), min(landed_seq), min(landed_at)
FROM (
  SELECT app_name, eval_set_id, eval_id, invocation_id, max(turn_revision) AS turn_revision,
         min(landed_seq) AS landed_seq, min(landed_at) AS landed_at
  FROM turns SEMI JOIN keys USING (app_name, eval_set_id, eval_id)
  GROUP BY ALL
) known
GROUP BY app_name, eval_set_id, eval_id
"""


def readable(record: WireRecord) -> str | None:
    """Return the reason why a record cannot be landed, None when it can."""
    read = _read(record)
    return read.reason.value if isinstance(read, RecordError) else None


def _read(record: WireRecord) -> LandedTurn | Manifest | Feedback | RecordError:
    try:
        decoded = decode_record(record)
        if not isinstance(decoded, DecodedCase):
            return decoded
        # The outline vouches for the form of a case as well as a look at its data would.
        outlined = outline_case(record.value or b"")
        if outlined is None and (case := case_data(decoded.case)) is not decoded.case:
            decoded = decoded._replace(case=case)
        return landed_turn(decoded, outlined)
    except RecordError as error:
        return error
    except FormatError as error:
        return RecordError(Reason.INVALID_CASE, str(error))
    except (TypeError, ValueError) as error:
        # JSON that can be read and not be written: nested too deep, numbers too large.
        return RecordError(Reason.INVALID_CASE, f"cannot be stored: {error}")


def _stamped(rows: Sequence[Row], now: datetime) -> list[Row]:
    return [(*row, now) for row in rows]
