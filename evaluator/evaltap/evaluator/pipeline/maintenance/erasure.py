"""Erase a person: their cases are removed from log, store and eval sets, and no byte of them remains.

A subject is identified by a user id or a session id, and by the pseudonyms that replaced it in redacted
content. Whole sessions are removed.  Cases of other people that only mention the subject are counted, not
changed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.cases.identity import is_about
from evaltap.evaluator.pipeline.maintenance.archiving import remove_rows
from evaltap.evaluator.pipeline.maintenance.mentions import mention_pattern, mentions
from evaltap.evaluator.store.archives.reading import ArchiveStore
from evaltap.evaluator.store.archives.rows import SUMMARIES
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.file_type import is_archive
from evaltap.evaluator.store.rewriting import rewrite_file
from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import is_json_lines, read_bytes, write_bytes
from evaltap.schemas.log.local import LocalLog, open_log
from evaltap.schemas.wire.dead_letter import read_headers
from evaltap.schemas.wire.envelope import WireRecord

LETTERS_PER_READ = 100

_LISTS = ("evalCases", "eval_cases", "evalCaseResults", "eval_case_results")
_USER_NAMES = ("userId", "user_id")
_APP_NAMES = ("appName", "app_name")
_SESSION_NAMES = ("evalId", "eval_id", "sessionId", "session_id")


@dataclass(slots=True)
class Subject:
    """The person to erase: `names` are the id and its pseudonyms, `sessions` the person's known sessions."""

    names: frozenset[str]
    sessions: set[str] = field(default_factory=set)
    owners: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By application and session: whether the person is one of its known users."""

    def owns(self, case: Json) -> bool:
        """Return whether a case (or the result of one) belongs to the subject."""
        if not isinstance(case, Mapping):
            return False
        (app, *_), users = (_texts(case, names) for names in (_APP_NAMES, _USER_NAMES))
        sessions = [case.get(name) for name in _SESSION_NAMES] + [_curated_from(case)]
        parts = {
            part
            for one in sessions
            if isinstance(one, str)
            for part in accumulate(one.split("#"), "{}#{}".format)  # a turn of it: `session#turn`
        }
        if not self.names.isdisjoint({*users, *parts}):
            return True
        is_others = any(self.owners.get((app, part)) is False for part in parts)
        return not (is_others or self.sessions.isdisjoint(parts))

    def note_users(self, app: str, session: str, users: Iterable[str]) -> None:
        """Note who uses a session that has the id of one of the subject's."""
        if session in self.sessions and (known := {*users} - {""}):
            is_theirs = not known.isdisjoint(self.names) or self.owners.get((app, session), False)
            self.owners[app, session] = is_theirs

    @property
    def of_others(self) -> list[str]:
        """The sessions of other people that have the id of one of the subject's in another application."""
        owners = self.owners.items()
        return [
            f"{app}\x1f{one}" for (app, one), mine in owners if not mine and one not in self.names
        ]

    def gave(self, feedback: Json) -> bool:
        """Return whether this is feedback of the subject, possibly on another person's session."""
        if not isinstance(feedback, Mapping) or "feedbackId" not in feedback:
            return False
        given_by = feedback.get("givenBy")
        return isinstance(given_by, str) and given_by in self.names

    def is_mentioned(self, text: bytes) -> bool:
        """Return whether a text contains a name in any spelling."""
        return mentions(text, self.names)


def _texts(case: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the texts under some names in a case or its session, and an empty one."""
    session = case.get("sessionInput") or case.get("session_input") or {}
    places = [one for one in (case, session) if isinstance(one, Mapping)]
    found = [one.get(name) for one in places for name in names]
    return [*(one for one in found if isinstance(one, str) and one), ""]


def _curated_from(case: Mapping[str, Any]) -> Json:
    """Return the session of origin of a curated case, from its provenance."""
    place: Json = case
    for name in ("source", "curation", "from", "evalId"):
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


@dataclass(frozen=True, slots=True)
class Erased:
    """The result for one place: removed items by kind, and items that only mention the subject."""

    place: str
    removed: Mapping[str, int]
    mentions: int = 0


# -- the log ---------------------------------------------------------------------------------------


def find_in_log(path: Path, subject: Subject) -> None:
    """Add the subject's sessions on a log."""
    with closing(open_log(path, mode="read")) as log:
        for _, _, case in _cases(log):
            if subject.owns(case):
                subject.sessions.add(case["evalId"])
            _note_users(subject, case)


def _note_users(subject: Subject, case: Json) -> None:
    if isinstance(case, Mapping):
        users = _texts(case, _USER_NAMES)
        for session in _texts(case, _SESSION_NAMES):
            subject.note_users(_texts(case, _APP_NAMES)[0], session, users)


def erase_from_log(path: Path, subject: Subject, *, dry_run: bool) -> Erased:
    """Delete the subject's records and rewrite the file; raise InputError while others have it open."""
    with closing(open_log(path, mode="read" if dry_run else "append")) as log:
        theirs, others = [], 0
        for offset, record, case in _cases(log):
            mentioned = subject.is_mentioned(record.value or b"")
            # A record that cannot land becomes a dead letter, which may contain anything: a mention
            # suffices.
            theirs_by_name = subject.owns(case) or subject.gave(case)
            if theirs_by_name or (
                not _lands(case) and any(map(subject.is_mentioned, _all(record)))
            ):
                theirs.append(offset)
            else:
                others += mentioned
        if not dry_run:
            # Also with nothing to delete, because a previous erasure may have been interrupted.
            log.erase(theirs)
    return Erased(str(path), {"records": len(theirs)}, others)


def _lands(value: Json) -> bool:
    """Return whether this is a case, feedback or a manifest."""
    return isinstance(value, dict) and (
        "highestSeq" in value or isinstance(value.get("evalId"), str)
    )


def _cases(log: LocalLog) -> Iterator[tuple[int, WireRecord, Any]]:
    for number, record in log.records():
        try:
            case = orjson.loads(record.value or b"")
        except ValueError:
            case = None
        yield number, record, case


def _all(record: WireRecord) -> Iterator[bytes]:
    yield from (record.key or b"", record.value or b"")
    for name, value in record.headers:
        yield from (name.encode(), value or b"")


# -- the store -------------------------------------------------------------------------------------


def find_in_store(path: Path, subject: Subject) -> None:
    """Add the subject's sessions in a DuckDB file or an archive."""
    given = {"names": list(subject.names), "known": list(subject.names | subject.sessions)}
    with ArchiveStore(path) if is_archive(path) else Store(path, create=False) as store:
        subject.sessions.update(store.column(_SESSIONS, given))
        for app, session, user in store.rows(_USERS, {"sessions": [*subject.sessions]}):
            subject.note_users(app, session, [user])


# Cases curated from one turn, and their scores and runs, are named `session#turn`.
_SESSIONS = """
SELECT eval_id FROM cases WHERE user_id IN $names OR eval_id IN $names
UNION SELECT eval_id FROM gate_results WHERE user_id IN $names
UNION SELECT eval_id FROM (
  SELECT eval_id FROM cases UNION SELECT eval_id FROM scores UNION SELECT eval_id FROM gate_results
  UNION SELECT eval_id FROM units UNION SELECT eval_id FROM reference_cases
) JOIN (SELECT unnest($known) AS name) ON starts_with(eval_id, name || '#')
WHERE contains(eval_id, '#')
"""


_USERS = """
SELECT DISTINCT app_name, eval_id, user_id FROM cases
WHERE eval_id IN $sessions::VARCHAR[] AND user_id IS NOT NULL
"""


def erase_from_store(path: Path, subject: Subject, *, dry_run: bool) -> Erased:
    """Delete the subject's rows and rewrite the file, because DuckDB retains deleted bytes."""
    sessions = list(subject.sessions | subject.names)
    removed: dict[str, int] = {}
    with Store(path, create=False) as store:
        letters = [letter for (letter,) in _letters(store, subject, "rowid")]
        found = _mentions(store, subject, sessions)
        for table in _session_tables(store):
            where, given = _theirs(table, subject, sessions)
            if count := store.rows(f"SELECT count(*) FROM {table} WHERE {where}", given)[0][0]:
                removed[table] = count
        if letters:
            removed["dead_letters"] = len(letters)
        if removed and not dry_run:
            _delete(store, removed, subject, letters)
    if not dry_run:
        # See erase_from_log.
        rewrite_file(path)
    return Erased(str(path), removed, found)


def erase_from_archive(path: Path, subject: Subject, *, dry_run: bool) -> Erased:
    """Write the files of an archive that have the subject's rows again, without them."""
    sessions = list(subject.sessions | subject.names)
    with ArchiveStore(path) as store:
        found = _mentions(store, subject, sessions)
        letters = _letters(store, subject, _LETTER)
        doomed: dict[str, tuple[str, Mapping[str, object]]] = {
            table: _theirs(table, subject, sessions)
            for table in store.column(_TABLES_OF_SESSIONS)
            if table not in SUMMARIES
        }
        # A store that is restored reads the telemetry of these traces again.
        doomed["read_traces"] = (_NAMES_ONE, {"sessions": sessions})
        with store.scratch(_LETTER_PLACES, rows=letters) as named:
            theirs = f"(SELECT (topic, number, place) FROM {named})"
            doomed["dead_letters"] = (f"({_LETTER}) IN {theirs}", {})
            removed = remove_rows(store, doomed, dry_run=dry_run)
    return Erased(str(path), removed, found)


_LETTER = "topic, partition_number, record_offset"
_LETTER_PLACES = "SELECT ''::VARCHAR AS topic, 0::INTEGER AS number, 0::BIGINT AS place WHERE false"
_TABLES_OF_SESSIONS = (
    "SELECT table_name FROM duckdb_columns() WHERE column_name = 'eval_id' AND NOT internal"
)

_NAMES_ONE = """
(trace_id IN (SELECT trace_id FROM turns WHERE eval_id IN $sessions)
 OR EXISTS (SELECT 1 FROM unnest($sessions) AS s(name) WHERE contains(memory, s.name)))
"""

# The reading position of a trace remains; otherwise its telemetry would be read again at the next
# start.
_FORGET_NAMES = f"UPDATE read_traces SET memory = '' WHERE {_NAMES_ONE}"


def _letters(store: Store, subject: Subject, named: str) -> list[tuple[object, ...]]:
    """Return the names, by some columns, of the dead letters that mention the subject."""
    query = f"SELECT record_headers, record_key, record_value, detail, {named} FROM dead_letters"
    return [
        tuple(name)
        for chunk in store.stream(query, size=LETTERS_PER_READ)
        for headers, key, value, detail, *name in chunk
        if any(map(subject.is_mentioned, (*_parts(headers), *map(_bytes, (key, value, detail)))))
    ]


def _session_tables(store: Store) -> list[str]:
    rows = store.rows(
        "SELECT c.table_name FROM duckdb_columns() c JOIN duckdb_tables() t USING (table_name)"
        " WHERE c.column_name = 'eval_id' ORDER BY c.table_name"
    )
    return [name for (name,) in rows]


def _delete(store: Store, tables: Collection[str], subject: Subject, letters: list[object]) -> None:
    sessions = list(subject.sessions | subject.names)
    summaries = Summaries(store)
    with store.transaction():
        summarised = summaries.find(
            _SUMMARISED, {"sessions": sessions, "names": list(subject.names)}
        )
        # The numbers remain, so that a gap in them can be explained.
        where, given = _theirs("turns", subject, sessions)
        store.execute(
            "INSERT INTO erasures SELECT producer_id, seq, current_timestamp::TIMESTAMP"
            f" FROM turns WHERE {where}",
            given,
        )
        store.execute(_FORGET_NAMES, {"sessions": sessions})
        # Scores of the subject's feedback are found by that feedback, so it goes last.
        for table in sorted(tables, key="feedback".__eq__):
            if table != "dead_letters":
                where, given = _theirs(table, subject, sessions)
                store.execute(f"DELETE FROM {table} WHERE {where}", given)
        store.execute("DELETE FROM dead_letters WHERE rowid IN $letters", {"letters": letters})
        if summarised:
            summaries.rewrite()


# The cases whose summaries contain erased rows: the subject's own, and those with the subject's
# feedback.
_SUMMARISED = f"""
SELECT app_name, eval_set_id, eval_id FROM case_index WHERE eval_id IN $sessions
UNION SELECT c.app_name, c.eval_set_id, c.eval_id FROM case_index c JOIN feedback f ON {is_about("f", "c")}
WHERE f.given_by IN $names
"""


def _theirs(table: str, subject: Subject, sessions: list[str]) -> tuple[str, dict[str, list[str]]]:
    """Return the condition for the subject's rows in a table, and its parameters."""
    given, of_session = {"sessions": sessions}, "eval_id IN $sessions"
    if (others := subject.of_others) and table not in _WITHOUT_APP:
        given, of_session = given | {"others": others}, f"({of_session} AND NOT {_OF_OTHERS})"
    if table == "changes":
        return f"({of_session} OR coalesce({_NAMED_IN_SET}, false))", given
    named = given | {"names": list(subject.names)}
    if table == "feedback":
        return f"({of_session} OR given_by IN $names)", named
    if table in ("scores", "turn_scores"):
        return f"({of_session} OR {_OF_FEEDBACK})", named
    return of_session, given


_WITHOUT_APP = frozenset({"alert_cases", "recorded_sessions", "reference_cases"})
_OF_OTHERS = """len(list_filter($others::VARCHAR[], lambda one:
  concat_ws(chr(31), app_name, eval_id) = one
  OR starts_with(concat_ws(chr(31), app_name, eval_id), one || '#'))) > 0"""


# The metric `user_feedback` quotes feedback; without it, the cases are scored again.
_OF_FEEDBACK = f"""(
  metric_digest IN (SELECT metric_digest FROM run_metrics WHERE evaluator_name = 'user_feedback')
  AND (app_name, eval_set_id, eval_id) IN (
    SELECT (c.app_name, c.eval_set_id, c.eval_id) FROM cases c JOIN feedback f ON {is_about("f", "c")}
    WHERE f.given_by IN $names
  )
)"""


_NAMED_IN_SET = "list_has_any(TRY_CAST(detail->'$.cases' AS VARCHAR[]), $sessions)"
_TEXTS = {
    "turns": ("actual_json", "expected_json"),
    "cases": ("case_json",),
    "reference_cases": ("turns_json",),
    "recorded_sessions": ("conversation",),
    "gate_results": ("case_json", "feedback", "feedback_given"),
    "feedback": ("comment", "correction", "name", "given_by"),
    "reviews": ("after", "comment"),
    "scores": ("reason",),
    "turn_scores": ("reason",),
}
"""The columns in which other people's data may name the subject."""


def _mentions(store: Store, subject: Subject, sessions: list[str]) -> int:
    """Count the rows of other people that mention the subject."""
    # `lower` would copy the texts of 2,048 rows for each form, and a subquery would hold those of all rows.
    pattern = mention_pattern(subject.names)
    found = 0
    for table, columns in _TEXTS.items():
        where, given = _theirs(table, subject, sessions)
        named = " OR ".join(f"regexp_matches({column}, $pattern)" for column in columns)
        found += store.rows(
            f"SELECT count(*) FROM {table} WHERE NOT {where} AND ({named})",
            given | {"pattern": pattern},
        )[0][0]
    return found


# -- files -----------------------------------------------------------------------------------------


def find_in_file(path: Path, subject: Subject) -> None:
    """Add the subject's sessions in an eval set or a JSON Lines file."""
    for case in _file_cases(path):
        if subject.owns(case):
            named = (case.get(name) for name in _SESSION_NAMES)
            subject.sessions.update(name for name in named if isinstance(name, str) and name)
        _note_users(subject, case)


def erase_from_file(path: Path, subject: Subject, *, dry_run: bool) -> Erased:
    """Remove the subject's cases from a file; in JSON Lines, other lines keep their bytes."""
    if is_json_lines(path):
        return _erase_lines(path, subject, dry_run=dry_run)
    document = canonical.loads(read_bytes(path), path=str(path))
    name = _list_name(document, path)
    kept = [case for case in document[name] if not subject.owns(case)]
    removed = len(document[name]) - len(kept)
    if removed and not dry_run:
        _replace(path, canonical.dumps({**document, name: kept}))
    return Erased(str(path), {"cases": removed}, _count(kept, subject, orjson.dumps))


def _erase_lines(path: Path, subject: Subject, *, dry_run: bool) -> Erased:
    lines = read_bytes(path).splitlines(keepends=True)
    kept = [line for line in lines if not subject.owns(_line(line))]
    removed = len(lines) - len(kept)
    if removed and not dry_run:
        _replace(path, b"".join(kept))
    return Erased(str(path), {"cases": removed}, _count(kept, subject, lambda line: line))


def _file_cases(path: Path) -> Iterator[dict[str, Json]]:
    if is_json_lines(path):
        found: Iterable[Json] = map(_line, read_bytes(path).splitlines())
    else:
        document = canonical.loads(read_bytes(path), path=str(path))
        found = document[_list_name(document, path)]
    yield from (case for case in found if isinstance(case, dict))


def _list_name(document: Json, path: Path) -> str:
    for name in _LISTS:
        if isinstance(document, dict) and isinstance(document.get(name), list):
            return name
    raise InputError(
        f"{path}: expected an eval set, a result file or JSON Lines of cases; edit this file by hand"
    )


def _line(line: bytes) -> Json:
    try:
        return orjson.loads(line)
    except ValueError:
        return None


def _replace(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode & 0o777
    write_bytes(path, content)
    path.chmod(mode)


def _count(kept: Iterable[Json], subject: Subject, text: Callable[[Json], bytes]) -> int:
    return sum(subject.is_mentioned(text(one)) for one in kept)


def _parts(headers: str | None) -> Iterator[bytes]:
    """Yield the names and the values of a dead letter's headers."""
    for name, value in read_headers(headers):
        yield name.encode()
        yield value


def _bytes(value: Json) -> bytes:
    return value if isinstance(value, bytes) else str(value or "").encode()


def erase(
    subject: Subject,
    *,
    logs: Sequence[Path],
    stores: Sequence[Path],
    files: Sequence[Path],
    dry_run: bool,
) -> list[Erased]:
    """Erase after searching all places: one may contain the user's id, another only the session's."""
    known = -1
    while known < len(subject.sessions):  # ids found in one place may match more in another
        known = len(subject.sessions)
        for log in logs:
            find_in_log(log, subject)
        for path in stores:
            find_in_store(path, subject)
        for path in files:
            find_in_file(path, subject)
    return [
        *(erase_from_log(log, subject, dry_run=dry_run) for log in logs),
        *(
            (erase_from_archive if is_archive(path) else erase_from_store)(
                path, subject, dry_run=dry_run
            )
            for path in stores
        ),
        *(erase_from_file(path, subject, dry_run=dry_run) for path in files),
    ]
