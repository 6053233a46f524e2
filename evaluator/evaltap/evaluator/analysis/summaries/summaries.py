"""Compute the summaries and keep them up to date: changed parts are recomputed from the rows.

Nothing is accumulated, so a row of a summary equals a query over the rows, even if turns were late, grew or
were scored again.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.traffic import runs_apart
from evaltap.evaluator.cases.identity import CASE_KEY, CaseKey, is_about, key_of_case, named
from evaltap.evaluator.store.database import STORE, Store, sql, utc_now
from evaltap.evaluator.store.queries import StoreReader

NEVER: Final = datetime(1, 1, 1)


class Marks(NamedTuple):
    """The extent of the summaries, in the values that identify new rows of each table."""

    landed_seq: int = 0
    scored_at: datetime = NEVER
    feedback_at: datetime = NEVER
    reviewed_at: datetime = NEVER
    decided_at: datetime = NEVER


def read_marks(reader: StoreReader) -> Marks | None:
    """Return the extent of the summaries; None before they are built."""
    rows = reader.rows(f"SELECT {_FIELDS} FROM page_marks")
    return Marks(*rows[0]) if rows else None


def newest_rows(reader: StoreReader) -> Marks:
    """Return the extent of the rows."""
    (row,) = reader.rows(_NEWEST, {"never": NEVER})
    return Marks(*row)


def current_marks(reader: StoreReader) -> Marks | None:
    """Return the extent of the summaries if they match the rows, otherwise None.

    If another thread maintains them, they may lag behind the rows by a moment.
    """
    if not (rows := reader.rows(f"SELECT {_FIELDS}, written_at FROM page_marks")):
        return None
    *values, written_at = rows[0]
    marks, kept = Marks(*values), utc_now() - written_at < _KEPT
    current = (kept and not isinstance(reader, Store)) or marks == newest_rows(reader)
    return marks if current else None


class IndexedCase(NamedTuple):
    """What the summaries know of the age of a case; None where it has no such rows."""

    marks: Marks
    """Newer rows than these may be of the case, too."""
    last_at: int | None = None
    """The time of its last turn, in microseconds."""
    first_seq: int | None = None
    last_seq: int | None = None
    first_scored_at: datetime | None = None
    last_scored_at: datetime | None = None


def indexed_case(reader: StoreReader, key: CaseKey) -> IndexedCase | None:
    """Return what the summaries know of a case; None if they do not match the rows."""
    if (marks := current_marks(reader)) is None:
        return None
    rows = reader.rows(_INDEXED_CASE, named(key))
    return IndexedCase(marks, *rows[0]) if rows else IndexedCase(marks)


_INDEXED_CASE: Final = f"""
SELECT epoch_us(last_at), first_seq, last_seq, first_scored_at, last_scored_at FROM case_index
WHERE case_key = {key_of_case("$app", "$eval_set", "$eval_id")}
"""
_NEWEST: Final = """
SELECT coalesce((SELECT max(landed_seq) FROM turns), 0),
       greatest($never, (SELECT max(scored_at) FROM scores), (SELECT max(scored_at) FROM turn_scores)),
       greatest($never, (SELECT max(landed_at) FROM feedback)),
       greatest($never, (SELECT max(reviewed_at) FROM reviews)),
       greatest($never, (SELECT max(decided_at) FROM sampling_decisions))
"""

_FIELDS: Final = ", ".join(Marks._fields)
_KEPT: Final = timedelta(minutes=1)


_KEYS: Final = "app_name, eval_set_id, eval_id"
_APART: Final = "summaries of traffic"
_UNITS: Final = ("turns", "scores", "latency", "tools", "left_out")
_TURNS_AT_ONCE: Final = 200_000
"""The number of turns whose cases one statement summarises in a full rebuild."""
MOST_CAUGHT_UP: Final = 20_000
"""The maximum number of new rows for which a reading command first updates the summaries."""
_CLOCKS_APART: Final = timedelta(seconds=10)
"""Other processes write reviews, and their clocks may be behind the extent of the summaries."""


class Refreshed(NamedTuple):
    """The result of a step; `behind` means that more remains to be done."""

    cases: int = 0
    minutes: int = 0
    behind: bool = False


class Bounds(NamedTuple):
    """Lower bounds: no relevant row is older, so older rows need not be read."""

    landed_seq: int = 0
    landed_at: datetime = NEVER
    scored_at: datetime = NEVER


class Summaries:
    """The summaries of a store, used from the store's thread."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._calls = _CallPlaces(store)
        self._at_once = 0

    def marks(self) -> Marks | None:
        """Return the extent of the summaries; None before they are built."""
        return read_marks(self._store)

    def make(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Rebuild the summaries from all rows; a million turns take half a minute.  Steps go to
        `progress`."""
        self._calls.forget()
        with self._store.transaction():
            newest = newest_rows(self._store)
            for table in ("case_index", *_tables("minute"), *_tables("hour"), "page_marks"):
                self._store.execute(f"DELETE FROM {table}")
            # In parts, because the aggregated rows have to fit into memory.
            parts = newest.landed_seq // _TURNS_AT_ONCE + 1
            for part in range(parts):
                progress("cases" if parts == 1 else f"cases ({part + 1} of {parts})")
                of_part = f"WHERE hash(eval_id) % {parts} = {part}"
                self._write_cases(
                    {name: f"(FROM {table} {of_part})" for name, table in _WHOLE.items()}
                )
            progress("minutes")
            apart = runs_apart(self._store)
            self._write_minutes(_ALL_TURNS, {}, _WHOLE, apart=apart)
            progress("hours")
            self._store.execute(sql(__name__, "hours").format(minutes="TRUE"))
            self._mark(newest, apart=apart)
            self._calls.note(newest.landed_seq)

    def refresh(self, *, most_cases: int = 2_000, most_seconds: float = 0.15) -> Refreshed:
        """Update the summaries by one step: about `most_cases` cases, fewer if a step took too long.

        Rebuilds them if they do not exist, if more than a fifth of all turns are new, or if the first traffic
        has landed beside runs on cases.
        """
        marks, newest = self.marks(), newest_rows(self._store)
        if (
            marks is None
            or newest.landed_seq - marks.landed_seq > max(newest.landed_seq // 5, most_cases)
            or runs_apart(self._store) != self._are_apart()
        ):
            self.make()
            return Refreshed()
        if marks == newest:
            return Refreshed()
        began = self._clock()
        self._at_once = min(self._at_once or most_cases, most_cases)
        until = self._until(marks, newest, self._at_once)
        self._find_new(marks, until)
        done = self.rewrite(marks, until)
        if (took := self._clock() - began) > most_seconds:
            # Most of a step's time does not depend on its size.
            self._at_once = max(int(self._at_once * most_seconds / took), most_cases // 4, 1)
        else:
            self._at_once *= 2
        return done._replace(behind=until != newest)

    def catch_up(self) -> None:
        """Update the summaries completely if they exist and few rows are new.

        For more rows, this would take longer than reading the rows.
        """
        marks, newest = self.marks(), newest_rows(self._store)
        if marks is None or marks == newest:
            return
        ((new,),) = self._store.rows(
            "SELECT (SELECT count(*) FROM turns WHERE landed_seq > $seq)"
            " + (SELECT count(*) FROM turn_scores WHERE scored_at > $scored)",
            {"seq": marks.landed_seq, "scored": marks.scored_at},
        )
        if new <= MOST_CAUGHT_UP:
            while self.refresh(most_cases=MOST_CAUGHT_UP, most_seconds=60).behind:
                pass

    # -- what is new ---------------------------------------------------------------------------

    def _until(self, marks: Marks, newest: Marks, most: int) -> Marks:
        """Return the extent after a step over at most `most` new rows of a table."""
        scored = [newest.scored_at]
        for table in ("scores", "turn_scores"):
            ((count, last),) = self._store.rows(
                _NEXT_SCORED.format(table=table), {"since": marks.scored_at, "most": most}
            )
            if count == most:
                scored.append(last)
        landed = min(newest.landed_seq, marks.landed_seq + most)
        return newest._replace(landed_seq=landed, scored_at=min(scored))

    def _find_new(self, marks: Marks, until: Marks) -> None:
        """Write the cases with new rows to dirty_cases, and the minutes of new turns to dirty_minutes."""
        given = {
            "seq": marks.landed_seq,
            "until_seq": until.landed_seq,
            "scored": marks.scored_at,
            "until_scored": until.scored_at,
        }
        self._store.execute(_NEW_TURNS, given | {"decided": marks.decided_at})
        reviewed = max(marks.reviewed_at, NEVER + _CLOCKS_APART) - _CLOCKS_APART
        given |= {"feedback": marks.feedback_at, "reviewed": reviewed}
        self._store.execute(_NEW_CASES, given)
        self._find_minutes(
            "SEMI JOIN new_turns USING (app_name, eval_set_id, eval_id, invocation_id)",
            self._bounds(marks).landed_seq,
        )

    def find(self, cases: str, parameters: Mapping[str, object]) -> bool:
        """Mark the cases of a query whose rows are about to be deleted; return False without summaries.

        `rewrite` must follow within the same transaction.
        """
        if self.marks() is None:
            return False
        self._store.execute(_THESE_CASES.format(cases=cases), parameters or None)
        self._find_minutes(f"SEMI JOIN dirty_cases USING ({_KEYS})", 0)
        return True

    def _find_minutes(self, of: str, since: int) -> None:
        self._store.execute(_MINUTES.format(of=of), {"since": since})

    # -- writing what is dirty -------------------------------------------------------------------

    def rewrite(self, marks: Marks | None = None, until: Marks | None = None) -> Refreshed:
        """Rewrite the rows of dirty cases and minutes; they are up to date as of `until`.

        Without marks nothing is assumed, because rows may have been deleted.
        """
        if marks is None:
            self._calls.forget()
        bounds = self._bounds(marks) if marks else Bounds()
        with self._store.transaction():
            self._store.execute(_DELETE_CASES)
            self._write_cases(self._of_cases(bounds))
            apart = self._are_apart()
            self._rewrite_minutes(apart=apart)
            newest = newest_rows(self._store)
            # The newest rows may have been deleted.
            earlier: Any = map(min, until or self.marks() or Marks(), newest)
            self._mark(Marks(*earlier), apart=apart)
            self._calls.note(newest.landed_seq)
        ((cases, minutes),) = self._store.rows(
            "SELECT (SELECT count(*) FROM dirty_cases), (SELECT count(*) FROM dirty_minutes)"
        )
        return Refreshed(cases, minutes)

    def _bounds(self, marks: Marks) -> Bounds:
        """Return lower bounds for all rows of the dirty cases."""
        ((seq, scored),) = self._store.rows(
            "SELECT min(first_seq), min(first_scored_at) FROM case_index"
            " WHERE case_key IN (SELECT case_key FROM dirty_cases)"
        )
        seq = marks.landed_seq + 1 if seq is None else min(seq, marks.landed_seq + 1)
        ((landed,),) = self._store.rows(
            f"SELECT min(landed_at) FROM turns SEMI JOIN dirty_cases USING ({_KEYS})"
            " WHERE landed_seq >= $seq",
            {"seq": seq},
        )
        return Bounds(seq, landed or NEVER, min(scored or marks.scored_at, marks.scored_at))

    def _of_cases(self, bounds: Bounds) -> dict[str, str]:
        """Return queries for the rows of the dirty cases, by table."""
        since = {
            "turns": f"landed_seq >= {bounds.landed_seq}",
            "cases": f"landed_at >= TIMESTAMP '{bounds.landed_at}'",
            "calls": self._calls.condition(bounds.landed_seq),
            "scores": f"scored_at >= TIMESTAMP '{bounds.scored_at}'",
            "turn_scores": f"scored_at >= TIMESTAMP '{bounds.scored_at}'",
        }
        tables = {
            name: f"(FROM {_TABLES.get(name, name)} SEMI JOIN dirty_cases USING ({_KEYS}) WHERE {when})"
            for name, when in since.items()
        }
        reviews = f"(FROM v_review_decisions SEMI JOIN dirty_cases USING ({_KEYS}))"
        return tables | {"feedback": "feedback", "reviews": reviews}

    def _write_cases(self, tables: Mapping[str, str]) -> None:
        query = sql(__name__, "case_index").format(
            newest=sql(STORE, "newest"),
            case_key=CASE_KEY,
            is_about=is_about("f", "k"),
            **_named(tables),
        )
        self._store.execute(f"INSERT INTO case_index BY NAME {query}")

    def _rewrite_minutes(self, *, apart: bool) -> None:
        ((first, last),) = self._store.rows(
            "SELECT min(bucket), max(bucket) + INTERVAL 1 MINUTE FROM dirty_minutes"
        )
        if first is None:
            return
        for table in _tables("minute"):
            self._store.execute(
                f"DELETE FROM {table} WHERE bucket >= $first AND bucket < $last"
                " AND bucket IN (SELECT bucket FROM dirty_minutes)",
                {"first": first, "last": last},
            )
        self._write_minutes(_TURNS_OF_MINUTES, {"first": first, "last": last}, None, apart=apart)
        hours = "(SELECT date_trunc('hour', bucket) FROM dirty_minutes)"
        # As constants, so that DuckDB skips older rows.
        since, until = first.replace(minute=0), last + timedelta(hours=1)
        near = f"bucket >= TIMESTAMP '{since}' AND bucket < TIMESTAMP '{until}'"
        for table in _tables("hour"):
            self._store.execute(f"DELETE FROM {table} WHERE {near} AND bucket IN {hours}")
        minutes = f"{near} AND date_trunc('hour', bucket) IN {hours}"
        self._store.execute(sql(__name__, "hours").format(minutes=minutes))

    def _write_minutes(
        self, turns: str, given: Mapping[str, Any], tables: Mapping[str, str] | None, *, apart: bool
    ) -> None:
        if apart:
            turns = f"FROM ({turns}) ANTI JOIN units USING ({_KEYS})"
        self._store.execute(sql(__name__, "minute_turns").format(turns=turns), given or None)
        if tables is None:
            ((seq, scored),) = self._store.rows(_MINUTE_BOUNDS)
            turn = f"{_KEYS}, invocation_id"
            tables = {
                "decisions": f"(FROM sampling_decisions SEMI JOIN minute_turns USING ({turn}))",
                "calls": f"(FROM tool_calls WHERE {self._calls.condition(seq or 0)})",
                "turn_scores": f"(FROM turn_scores SEMI JOIN minute_turns USING ({turn})"
                f" WHERE scored_at >= TIMESTAMP '{scored or NEVER}')",
            }
        self._store.execute(sql(__name__, "minutes").format(**_named(tables)))

    def _are_apart(self) -> bool:
        """Return whether the summaries by time leave out runs on cases."""
        return _APART in self._store.column("SELECT name FROM page_marks")

    def _mark(self, marks: Marks, *, apart: bool) -> None:
        name = _APART if apart else "summaries"
        self._store.execute("DELETE FROM page_marks")
        self._store.append("page_marks", [(name, *marks, utc_now())])


def catch_up(reader: StoreReader) -> None:
    """Update the summaries of a file that may be written and no other process has open, like
    `Summaries.catch_up`."""
    if isinstance(reader, Store) and not reader.only_reads:
        Summaries(reader).catch_up()


class _CallPlaces:
    """The first row of tool_calls for newer turns, for turns that landed since the start.

    The table of calls has no order of landing, but its rows are written together with their turns.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seqs: list[int] = []
        self._places: list[int] = []

    def forget(self) -> None:
        """Forget all rows, because rows were deleted."""
        self._seqs, self._places = [], []

    def note(self, seq: int) -> None:
        """Record that exactly the turns up to a landed_seq are present."""
        ((count, last),) = self._store.rows("SELECT count(*), max(rowid) FROM tool_calls")
        if count != (last + 1 if count else 0):
            self.forget()  # rows were deleted, so the others may move
        elif not self._seqs or seq > self._seqs[-1]:
            self._seqs.append(seq)
            self._places.append(count)

    def condition(self, seq: int) -> str:
        """Return a condition that holds for all calls of turns with at least this landed_seq."""
        known = bisect_right(self._seqs, seq - 1)
        return f"rowid >= {self._places[known - 1]}" if known else "TRUE"


def _named(tables: Mapping[str, str]) -> dict[str, str]:
    return {name: _TABLES.get(table, table) for name, table in tables.items()}


def _tables(bucket: str) -> list[str]:
    return [f"{unit}_by_{bucket}" for unit in _UNITS]


_TABLES: Final[Mapping[str, str]] = {
    "turns": "turns",
    "cases": "cases",
    "calls": "tool_calls",
    "scores": "scores",
    "feedback": "feedback",
}

_WHOLE: Final[Mapping[str, str]] = {
    **_TABLES,
    "turn_scores": "turn_scores",
    "decisions": "sampling_decisions",
    "reviews": "v_review_decisions",
}

_NEXT_SCORED: Final = """
SELECT count(*), max(scored_at) FROM (
  SELECT scored_at FROM {table} WHERE scored_at > $since ORDER BY scored_at LIMIT $most
)
"""

_NEW_TURNS: Final = """
CREATE OR REPLACE TEMP TABLE new_turns AS
SELECT app_name, eval_set_id, eval_id, invocation_id FROM turns
WHERE landed_seq > $seq AND landed_seq <= $until_seq
UNION SELECT app_name, eval_set_id, eval_id, invocation_id FROM turn_scores
WHERE scored_at > $scored AND scored_at <= $until_scored
UNION SELECT app_name, eval_set_id, eval_id, invocation_id FROM sampling_decisions
WHERE decided_at > $decided
"""

_NEW_CASES: Final = f"""
CREATE OR REPLACE TEMP TABLE dirty_cases AS
SELECT {CASE_KEY} AS case_key, {_KEYS} FROM (
  SELECT {_KEYS} FROM new_turns WHERE $seq IS NOT NULL AND $until_seq IS NOT NULL
  UNION SELECT {_KEYS} FROM scores WHERE scored_at > $scored AND scored_at <= $until_scored
  UNION SELECT c.app_name, c.eval_set_id, c.eval_id FROM case_index c JOIN feedback f ON {is_about("f", "c")}
  WHERE f.landed_at > $feedback
  UNION SELECT {_KEYS} FROM reviews WHERE reviewed_at > $reviewed
)
"""

_THESE_CASES: Final = f"""
CREATE OR REPLACE TEMP TABLE dirty_cases AS
SELECT DISTINCT {CASE_KEY} AS case_key, {_KEYS} FROM ({{cases}})
"""

_MINUTES: Final = """
CREATE OR REPLACE TEMP TABLE dirty_minutes AS
SELECT DISTINCT date_trunc('minute', coalesce(started_at, landed_at)) AS bucket
FROM turns {of} WHERE landed_seq >= $since
"""

_DELETE_CASES: Final = """
DELETE FROM case_index WHERE case_key IN (SELECT case_key FROM dirty_cases)
"""

# All scores of a case are within the bounds in the index, which is written first.
_MINUTE_BOUNDS: Final = f"""
SELECT min(landed_seq), (
  SELECT min(first_scored_at) FROM case_index
  WHERE case_key IN (SELECT {CASE_KEY} FROM minute_turns)
) FROM minute_turns
"""

_ALL_TURNS: Final = "SELECT *, coalesce(started_at, landed_at) AS turn_at FROM turns"

_TURNS_OF_MINUTES: Final = """
SELECT *, started_at AS turn_at FROM turns
WHERE started_at >= $first AND started_at < $last
  AND date_trunc('minute', started_at) IN (SELECT bucket FROM dirty_minutes)
UNION ALL
SELECT *, landed_at AS turn_at FROM turns
WHERE started_at IS NULL AND landed_at >= $first AND landed_at < $last
  AND date_trunc('minute', landed_at) IN (SELECT bucket FROM dirty_minutes)
"""
