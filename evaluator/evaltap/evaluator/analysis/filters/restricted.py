"""A view of a store that only contains the chosen cases, for partial reports and exports."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.filters.choice import Choice, chosen_query
from evaltap.evaluator.analysis.filters.language import Filter
from evaltap.evaluator.analysis.filters.terms import KEYS, has_wildcard
from evaltap.evaluator.analysis.summaries.summaries import IndexedCase
from evaltap.evaluator.cases.identity import THIS_CASE, CaseKey, is_about, named
from evaltap.evaluator.store.database import layout
from evaltap.evaluator.store.opening import NAME
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean


@contextmanager
def restricted(
    reader: StoreReader,
    choice: Choice,
    keys: Sequence[CaseKey] | None = None,
    paths: Sequence[Path] = (),
) -> Iterator[None]:
    """Let the block see only the rows of the chosen cases in every table; `keys` replaces the choice.

    Feedback for a session without a turn here is excluded, as are scores of cases that never landed.
    `paths` are the reader's files, for messages.  Raises InputError if no case matches.
    """
    query = f"SELECT {KEYS} FROM cases LIMIT 0"
    parameters: dict[str, object] = {}
    if keys is None:
        query, parameters, *_ = chosen_query(reader, choice)
    with reader.scratch(query, parameters, rows=keys or ()) as chosen:
        if not reader.rows(f"SELECT 1 FROM {chosen} LIMIT 1"):
            raise InputError(no_case(choice, paths or [reader.path], reader))
        using = {
            table: f"USING ({KEYS if of_app else 'eval_set_id, eval_id'})"
            for table, of_app in reader.rows(_TABLES_OF_CASES, {"tables": [*layout().tables]})
        }
        using["feedback"] = f"ON {is_about('r', 'c')}"
        views = {
            table: f"FROM {NAME}.main.{table} r SEMI JOIN {chosen} c {condition}"
            for table, condition in using.items()
        }
        with reader.seeing(views):
            yield


@contextmanager
def restricted_to_case(
    reader: StoreReader, key: CaseKey, known: IndexedCase | None
) -> Iterator[None]:
    """Restrict a reader to the turns and scores of one case within the block, with copies of its few rows.

    Of the file only that part is read where the case is, as far as that is `known`.
    """
    landed = scored = _Condition()
    if known is not None and known.first_seq is not None:
        landed = _between("landed_seq", known.first_seq, known.last_seq, known.marks.landed_seq)
    if known is not None and known.first_scored_at is not None:
        limits = known.first_scored_at, known.last_scored_at
        scored = _between("scored_at", *limits, known.marks.scored_at)

    def copy(table: str, age: _Condition) -> AbstractContextManager[None]:
        query = f"FROM {NAME}.main.{table} WHERE {THIS_CASE} AND ({age.sql})"
        return reader.seeing({table: query}, {**named(key), **age.parameters}, copied=True)

    with (
        copy("turns", landed),
        copy("scores", scored),
        copy("turn_scores", scored),
        copy("cases", _landed_with_turns(reader)),
    ):
        yield


class _Condition(NamedTuple):
    """A condition with its parameters: a statement that names no values is checked only once."""

    sql: str = "TRUE"
    parameters: Mapping[str, object] = {}


def _landed_with_turns(reader: StoreReader) -> _Condition:
    """Return a condition that all revisions of the case meet: each landed together with a turn."""
    ((first, last),) = reader.rows("SELECT min(landed_at), max(landed_at) FROM turns")
    if first is None:
        return _Condition()
    return _Condition("landed_at BETWEEN $first AND $last", {"first": first, "last": last})


def _between(column: str, first: object, last: object, mark: object) -> _Condition:
    """Return a condition for rows of a known age, and for rows newer than the summaries."""
    return _Condition(
        f"{column} BETWEEN $first AND $last OR {column} > $mark",
        {"first": first, "last": last, "mark": mark},
    )


_TABLES_OF_CASES = f"""
SELECT table_name, bool_or(column_name = 'app_name') FROM duckdb_columns()
WHERE database_name = '{NAME}' AND list_contains($tables, table_name) GROUP BY ALL
HAVING bool_or(column_name = 'eval_id') AND bool_or(column_name = 'eval_set_id')
ORDER BY ALL
"""


def no_case(choice: Choice, paths: Sequence[Path], store: StoreReader) -> str:
    """Return the message for a choice that matches no case."""
    hints = [*unknown_values(store, choice.filter)] or [
        "leave a term out, or list all cases with `evaltap cases`"
    ]
    return f"{', '.join(map(str, paths))}: no case matches {choice.text}; {'; '.join(hints)}"


_METRICS: Final = "SELECT DISTINCT metric_name FROM scores"
_STORED: Final[Mapping[str, str]] = {
    "metric": _METRICS,
    "score": _METRICS,
    "tool": "SELECT DISTINCT tool_name FROM tool_calls WHERE tool_name IS NOT NULL",
    "version": "SELECT DISTINCT version FROM turns WHERE version IS NOT NULL",
    "app": "SELECT DISTINCT app_name FROM turns WHERE app_name <> ''",
    "model": "SELECT DISTINCT unnest(models) FROM turns",
}
"""Queries for the known values of a field."""
_MOST_NAMED: Final = 8


def unknown_values(store: StoreReader, wanted: Filter) -> Iterator[str]:
    """Yield a message for each unknown value, with the most similar known one, or some of them."""
    for term in wanted.terms:
        if term.negated or term.field not in _STORED:
            continue
        known = sorted(str(name) for (name,) in store.rows(_STORED[term.field]))
        field = "metric" if term.name else term.field
        for value in [term.name] if term.name else term.values:
            if not has_wildcard(value) and value not in known:
                some = ", ".join(known[:_MOST_NAMED]) or "none"
                hint = did_you_mean(value, known) or f"stored: {some}"
                yield f"no {field} {value!r} is stored; {hint}"
