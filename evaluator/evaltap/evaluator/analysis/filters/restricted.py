"""A view of a store that only contains the chosen cases, for partial reports and exports."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evaltap.evaluator.analysis.filters.choice import Choice, chosen_query
from evaltap.evaluator.analysis.filters.terms import KEYS
from evaltap.evaluator.analysis.filters.unknown import unknown_values
from evaltap.evaluator.analysis.summaries.case_key import key_of_case
from evaltap.evaluator.analysis.summaries.marks import current_marks
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.opening import NAME
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.shards import ShardedStore
from evaltap.schemas.errors import InputError


class RestrictedStore(ShardedStore):
    """Several files read as one, in which every table only has the rows of the chosen cases.

    Feedback for a session without a turn here is excluded, as are scores of cases that never landed.  Raises
    InputError if no case matches.  `keys` replaces the choice by given cases.
    """

    def __init__(
        self, paths: Sequence[Path], choice: Choice, keys: Sequence[CaseKey] | None = None
    ) -> None:
        if len(paths) == 1:
            with Store(paths[0], create=False) as store:  # migrates an older layout
                catch_up(store)
        super().__init__(paths)
        try:
            self._choose(choice, keys)
            if not self.rows("SELECT 1 FROM chosen_cases LIMIT 1"):
                raise InputError(no_case(choice, paths, self))
            for table in self._of_cases():
                self._restrict(table)
        except BaseException:
            self.close()
            raise

    def _choose(self, choice: Choice, keys: Sequence[CaseKey] | None) -> None:
        if keys is None:
            query = chosen_query(self, choice)
            self.execute(f"CREATE TABLE chosen_cases AS {query.statement}", query.parameters)
            return
        columns = ", ".join(f"{name} VARCHAR" for name in KEYS.split(", "))
        self.execute(f"CREATE TABLE chosen_cases ({columns})")
        self.append("chosen_cases", keys)

    def _of_cases(self) -> list[str]:
        rows = self.rows(
            "SELECT table_name FROM duckdb_columns() c JOIN duckdb_views() v"
            " ON v.view_name = c.table_name AND v.database_name = c.database_name"
            " WHERE c.database_name = current_database() AND v.sql LIKE '%shard_0%' GROUP BY ALL"
            " HAVING list_has_all(list(c.column_name), ['app_name', 'eval_set_id', 'eval_id'])"
            " ORDER BY ALL"
        )
        return [name for (name,) in rows]

    def _restrict(self, table: str) -> None:
        self.execute(f"ALTER VIEW {table} RENAME TO all_{table}")
        keys = KEYS
        if table == "feedback":  # feedback without an application may belong to any
            keys = "eval_set_id, eval_id"
        self.execute(
            f"CREATE VIEW {table} AS FROM all_{table} SEMI JOIN chosen_cases USING ({keys})"
        )


def restrict(
    reader: StoreReader, choice: Choice, keys: Sequence[CaseKey] | None = None
) -> StoreReader:
    """Restrict a reader to the chosen cases, like a RestrictedStore, with views that only it sees."""
    try:
        if keys is None:
            query = chosen_query(reader, choice)
            reader.execute(f"CREATE TEMP TABLE chosen_cases AS {query.statement}", query.parameters)
        else:
            columns = ", ".join(f"{name} VARCHAR" for name in KEYS.split(", "))
            reader.execute(f"CREATE TEMP TABLE chosen_cases ({columns})")
            reader.append("chosen_cases", keys)
        if not reader.rows("SELECT 1 FROM chosen_cases LIMIT 1"):
            raise InputError(no_case(choice, [reader.path], reader))
        for table, of_app in reader.rows(_TABLES_OF_CASES):
            using = KEYS if of_app and table != "feedback" else "eval_set_id, eval_id"
            reader.execute(
                f"CREATE TEMP VIEW {table} AS FROM {NAME}.main.{table} SEMI JOIN chosen_cases USING ({using})"
            )
    except BaseException:
        reader.close()
        raise
    return reader


@contextmanager
def restricted_to_case(reader: StoreReader, key: CaseKey) -> Iterator[None]:
    """Restrict a reader to the turns and scores of one case within the block, with copies of its few rows.

    If the summaries know the age of the case, only that part of the file is read.
    """
    names: dict[str, str] = dict(zip(("app", "eval_set", "eval_id"), key, strict=True))
    copied = []

    def copy(table: str, condition: str) -> None:
        reader.execute(
            f"CREATE TEMP TABLE {table} AS FROM {NAME}.main.{table} WHERE {_IS_CASE} AND ({condition})",
            names,
        )
        copied.append(table)

    try:
        landed, scored = _ages(reader, names)
        copy("turns", landed)
        copy("scores", scored)
        copy("turn_scores", scored)
        copy("cases", _landed_with_turns(reader))
        yield
    finally:
        for table in copied:
            reader.execute(f"DROP TABLE temp.{table}")


def _ages(reader: StoreReader, names: dict[str, str]) -> tuple[str, str]:
    """Return conditions that all turns of the case meet, and that all its scores meet."""
    marks = current_marks(reader)
    ages = reader.rows(_AGE, names) if marks is not None else []
    landed = scored = "TRUE"
    if marks is not None and ages:
        first_seq, last_seq, first_scored, last_scored = ages[0]
        if first_seq is not None:
            landed = _between("landed_seq", first_seq, last_seq, marks.landed_seq)
        if first_scored is not None:
            times = (f"TIMESTAMP '{at}'" for at in (first_scored, last_scored, marks.scored_at))
            scored = _between("scored_at", *times)
    return landed, scored


def _landed_with_turns(reader: StoreReader) -> str:
    """Return a condition that all revisions of the case meet: each landed together with a turn."""
    ((first, last),) = reader.rows("SELECT min(landed_at), max(landed_at) FROM turns")
    return f"landed_at BETWEEN TIMESTAMP '{first}' AND TIMESTAMP '{last}'" if first else "TRUE"


def _between(column: str, first: object, last: object, mark: object) -> str:
    """Return a condition for rows of a known age, and for rows newer than the summaries."""
    return f"{column} BETWEEN {first} AND {last} OR {column} > {mark}"


_IS_CASE = "app_name = $app AND eval_set_id = $eval_set AND eval_id = $eval_id"

_AGE = f"""
SELECT first_seq, last_seq, first_scored_at, last_scored_at FROM case_index
WHERE case_key = {key_of_case("$app", "$eval_set", "$eval_id")}
"""

# A view that takes precedence over a table, also in the views of the file.
_TABLES_OF_CASES = f"""
SELECT c.table_name, bool_or(c.column_name = 'app_name')
FROM duckdb_columns() c
JOIN duckdb_tables() t ON t.table_name = c.table_name AND t.database_name = c.database_name
WHERE c.database_name = '{NAME}' GROUP BY ALL
HAVING bool_or(c.column_name = 'eval_id') AND bool_or(c.column_name = 'eval_set_id')
ORDER BY ALL
"""


def no_case(choice: Choice, paths: Sequence[Path], store: StoreReader) -> str:
    """Return the message for a choice that matches no case."""
    hints = [*unknown_values(store, choice.filter)] or [
        "leave a term out, or list all cases with `evaltap cases`"
    ]
    return f"{', '.join(map(str, paths))}: no case matches {choice.text}; {'; '.join(hints)}"
