"""The cases that a filter selects, as a query and as a temporary table."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import duckdb
import orjson

from evaltap.evaluator.analysis.filters.language import NO_FILTER, Filter, Term
from evaltap.evaluator.analysis.filters.terms import (
    DECISIONS,
    KEYS,
    Bound,
    cases_of,
    has_wildcard,
    matches,
    moment,
)
from evaltap.evaluator.analysis.summaries.summaries import current_marks
from evaltap.evaluator.analysis.traffic import told_of_runs, without_runs
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

VIEW: Final = "curation_turns"
"""The documented view for conditions: a row for each turn in its current state."""


def check_condition(store: StoreReader, where: str, *, name: str = "--where") -> None:
    """Raise InputError for anything but a condition over the columns of `curation_turns`."""
    columns = store.column(f"DESCRIBE {VIEW}")
    why = fault_of(where)
    try:
        if not why:
            store.rows(f"SELECT 1 FROM {VIEW} WHERE (\n{where}\n) LIMIT 0")
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
    if why:
        raise InputError(
            f"{name} {where}: {why}; expected one SQL condition over {', '.join(columns)}"
        )


def fault_of(where: str) -> str:
    """Return why a text is no single condition; empty if it is.

    Subqueries are rejected: a condition could use them to read other tables and files.
    """
    # Alone, it must not close a bracket that it has not opened; in brackets, it must be an
    # expression.
    for written in (f"SELECT 1 WHERE\n{where}\n", f"SELECT 1 WHERE (\n{where}\n)"):
        tree = duckdb.execute("SELECT json_serialize_sql($sql)", {"sql": written}).fetchall()[0][0]
        parsed = orjson.loads(tree)
        if parsed.get("error"):
            return str(parsed.get("error_message", "no condition")).splitlines()[0]
    statements = parsed["statements"]
    holds_more = len(statements) != 1 or _holds_query(statements[0]["node"], top=True)
    return "a query within it" if holds_more else ""


def _holds_query(node: object, *, top: bool = False) -> bool:
    if isinstance(node, list):
        return any(map(_holds_query, node))
    if not isinstance(node, dict):
        return False
    # The node of the whole statement is the only expected query.
    if not top and (node.get("class") == "SUBQUERY" or node.get("type") == "SELECT_NODE"):
        return True
    return any(_holds_query(value) for value in node.values())


class _Joined(NamedTuple):
    columns: tuple[tuple[str, str], ...]
    join: str


_TURN: Final = "(app_name, eval_set_id, eval_id, invocation_id)"
_REVISION: Final = "(app_name, eval_set_id, eval_id, invocation_id, turn_revision)"

_JOINED: Final = (
    _Joined(
        (
            ("tools", "coalesce(k.tools, [])"),
            ("tool_path", "array_to_string(coalesce(k.tools, []), ' > ')"),
            ("failed_calls", "coalesce(k.failed_calls, 0)"),
        ),
        f"LEFT JOIN v_turn_tools k USING {_REVISION}",
    ),
    _Joined(
        (("user_id", "c.user_id"), ("service", "c.service"), ("framework", "c.framework")),
        "LEFT JOIN latest_cases c USING (app_name, eval_set_id, eval_id)",
    ),
    _Joined(
        (("complaints", "coalesce(f.complaints, 0)"), ("praises", "coalesce(f.praises, 0)")),
        f"LEFT JOIN v_turn_feedback f USING {_TURN}",
    ),
    _Joined(
        (
            ("failed_metrics", "coalesce(v.failed_metrics, [])"),
            (
                "outcome",
                "CASE WHEN t.status IN ('error', 'incomplete') OR v.failed THEN 'failed'"
                " WHEN v.passed THEN 'passed' ELSE 'unknown' END",
            ),
        ),
        f"LEFT JOIN v_turn_verdicts v USING {_REVISION}",
    ),
)


def turns_with(*texts: str) -> str:
    """Return a query for the rows of `curation_turns`, with the columns that SQL texts name.

    Columns of turns and cases, `app`, `revision` and `weight` are always included.
    """
    named = set(re.findall(r"\w+", " ".join(texts).lower()))
    columns, joins = [], []
    for one in _JOINED:
        wanted = [f"{expression} AS {name}" for name, expression in one.columns if name in named]
        if wanted:
            columns.extend(wanted)
            joins.append(one.join)
    return f"""SELECT t.app_name AS app, t.turn_revision AS revision,
      t.* EXCLUDE (turn_revision, inclusion_probability, actual_json, expected_json, event_id, seq),
      coalesce(t.inclusion_probability, 1) AS inclusion_probability,
      1 / coalesce(t.inclusion_probability, 1) AS weight
      {"".join(f", {column}" for column in columns)}
      FROM latest_turns t {" ".join(joins)}
      WHERE coalesce(t.inclusion_probability, 1) > 0"""


class SortKey(NamedTuple):
    """A column that a list is sorted by."""

    column: str
    descending: bool = False
    is_time: bool = False
    """Whether the column is a time, which marks contain as microseconds."""

    @property
    def mark(self) -> str:
        """SQL for the column's value in a mark."""
        return f"epoch_us({self.column})" if self.is_time else self.column

    def direction(self, backwards: bool) -> str:
        """Return SQL for the column's item in an ORDER BY."""
        return f"{self.column}{' DESC' if self.descending != backwards else ''}"

    def operator(self, backwards: bool) -> str:
        """Return the comparison operator for later values."""
        return "<" if self.descending != backwards else ">"


_LAST: Final = "1e308"
NEWEST: Final = SortKey("last_at", descending=True, is_time=True)
# Times are sorted unconverted, so that DuckDB skips row groups that cannot contain any of the first
# cases.
SORTED: Final[Mapping[str, Mapping[SortKey, str]]] = {
    "newest": {NEWEST: ""},
    "oldest": {SortKey("first_at", is_time=True): ""},
    "cost": {SortKey("sort_0"): f"coalesce(-cost_usd, {_LAST})"},
    "latency": {SortKey("sort_0"): f"coalesce(-latency_ms, {_LAST})"},
    "worst": {
        SortKey("sort_0"): "-coalesce(not_passed, 0)::DOUBLE",
        SortKey("sort_1"): f"coalesce(lowest, -{_LAST})",
        NEWEST: "",
    },
    "score": {SortKey("sort_0"): f"coalesce(lowest, {_LAST})", NEWEST: ""},
}
"""The sort keys of each order before the keys of the case, with the SQL of computed columns."""

_INDEXED: Final = f"""SELECT {KEYS}, first_at, last_at, cost_usd, unpriced, latency_ms, turns, lowest,
       {{not_passed}} AS not_passed
{{chosen}}"""

_FROM_ROWS: Final = f"""FROM (
  SELECT {KEYS}, min(coalesce(started_at, landed_at)) AS first_at,
         max(coalesce(started_at, landed_at)) AS last_at,
         sum(cost_usd) AS cost_usd, count(*) FILTER (cost_usd IS NULL) AS unpriced,
         max(latency_ms) AS latency_ms, count(*) AS turns
  FROM latest_turns {{chosen}} GROUP BY ALL
)"""

_LOWEST: Final = f"""LEFT JOIN (
  SELECT {KEYS}, min(score) AS lowest,
         nullif(count(*) FILTER (status IN ('failed', 'crashed', 'error')), 0) AS not_passed
  FROM latest_scores GROUP BY ALL
) USING ({KEYS})"""


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter and an SQL condition that one turn of the case must meet."""

    filter: Filter = NO_FILTER
    where: str = ""
    traffic: bool = False
    """Whether to leave out runs on cases where traffic has landed, too, unless the choice names them."""

    def __bool__(self) -> bool:
        return bool(self.filter.terms or self.where)

    @property
    def leaves_out_runs(self) -> bool:
        return self.traffic and not self.filter.names_runs

    @property
    def text(self) -> str:
        """The choice as the user wrote it."""
        parts = [self.filter.text, f"where {self.where}" if self.where else ""]
        return ", ".join(part for part in parts if part)


def told_of_left_out(store: StoreReader, choice: Choice) -> str:
    """Return a sentence on the turns of runs that a choice leaves out; empty if these are none."""
    return told_of_runs(store, choice.where) if choice.leaves_out_runs else ""


class ChosenQuery(NamedTuple):
    """A statement and the values of its parameters."""

    statement: str
    parameters: dict[str, object]
    is_indexed: bool
    """Whether the query only reads the summary of cases."""
    has_summaries: bool
    """Whether the summaries match the rows."""


def chosen_query(
    store: StoreReader,
    choice: Choice,
    *,
    columns: str = KEYS,
    limit: int | None = None,
    now: datetime | None = None,
) -> ChosenQuery:
    """Return a query for the cases, sorted as the filter specifies; otherwise like `fitting_query`."""
    fitting = fitting_query(store, choice, now=now)
    keys = SORTED[choice.filter.sort]
    order = ", ".join(
        f"{made or one.column}{' DESC' * one.descending}" for one, made in keys.items()
    )
    statement = f"""
        SELECT {columns} FROM ({fitting.statement})
        ORDER BY {order}, {KEYS}
        {"" if limit is None else f"LIMIT {limit}"}"""
    return fitting._replace(statement=statement)


def fitting_query(
    store: StoreReader,
    choice: Choice,
    *,
    now: datetime | None = None,
    has_summaries: bool | None = None,
) -> ChosenQuery:
    """Return a query for the cases; it reads the summaries if they exist and are current.

    `has_summaries` says whether they are; None: find out.

    Its columns: the keys, first_at, last_at, cost_usd, latency_ms, turns and, for orders that need them,
    lowest and not_passed of the latest scores.  Raises InputError for an invalid condition.
    """
    if choice.where:
        check_condition(store, choice.where)
    if has_summaries is None:
        has_summaries = current_marks(store) is not None
    bound = Bound()
    apart = _without_runs(store, choice)
    joins, conditions = [], ["first_seq IS NOT NULL", *apart]
    for term in choice.filter.terms:
        moment = now or datetime.now(UTC)
        condition = condition_of(term, bound, moment) if has_summaries else None
        if condition is not None:
            conditions.append(f"({condition}) IS {'NOT ' if term.negated else ''}TRUE")
        else:
            cases = cases_of(term, choice.filter, bound, moment)
            joins.append(f"{'ANTI' if term.negated else 'SEMI'} JOIN ({cases}) USING ({KEYS})")
    if choice.where:
        turns = f"SELECT {KEYS} FROM ({turns_with(choice.where)}) WHERE (\n{choice.where}\n)"
        joins.append(f"SEMI JOIN ({turns}) USING ({KEYS})")
    ranks = choice.filter.sort in ("worst", "score")
    if has_summaries:
        not_passed = "nullif(len(failed) + len(errored), 0)" if ranks else "NULL"
        chosen = f"FROM case_index {' '.join(joins)} WHERE {' AND '.join(conditions)}"
        statement = _INDEXED.format(chosen=chosen, not_passed=not_passed)
    else:
        ranked = _LOWEST if ranks else ""
        joins += [f"WHERE {one}" for one in apart]
        statement = f"{_FROM_ROWS.format(chosen=' '.join(joins))} {ranked}"
    return ChosenQuery(statement, bound.values, has_summaries and not joins, has_summaries)


def _without_runs(store: StoreReader, choice: Choice) -> list[str]:
    """Return the condition that leaves out runs; nothing where there is nothing to leave out."""
    apart = without_runs(store, choice.where, app="app_name") if choice.leaves_out_runs else ""
    return [apart] if apart else []


def first_cases(
    query: ChosenQuery, limit: int, *, ordered: str, where: str = "TRUE", columns: str = "*"
) -> str:
    """Return a statement for the first `limit` cases of a query, and `matched`: the total number of cases.

    `columns` are selected from the query before `where` and `ordered` are applied.
    """
    # Reading the summary again is cheaper than materialising it: finding its newest rows reads few
    # rows.
    kept = "NOT MATERIALIZED" if query.is_indexed else "MATERIALIZED"
    return f"""
        WITH fitting AS {kept} ({query.statement})
        SELECT *, (SELECT count(*) FROM fitting) AS matched FROM (
          FROM (SELECT {columns} FROM fitting) WHERE {where} ORDER BY {ordered} LIMIT {limit}
        )"""


def chosen_keys(store: StoreReader, choice: Choice) -> list[CaseKey]:
    """Return the application, eval set and id of the selected cases, in order."""
    query = chosen_query(store, choice)
    return [
        (app, name, eval_id) for app, name, eval_id in store.rows(query.statement, query.parameters)
    ]


# -- terms as conditions over `case_index` ---------------------------------------------------------

# Each selects the same cases as the query of the same term in `terms`; a test compares them.


_LISTS: Final[Mapping[str, str]] = {
    "failed": "failed",
    "error": "errored",
    "not_evaluated": "not_evaluated",
    "passed": "passed",
}


def condition_of(term: Term, bound: Bound, now: datetime) -> str | None:
    """Return the condition on the rows of a term's cases; None if the summary lacks the data."""
    if term.field in _TIMES:
        return f"{_TIMES[term.field]} {bound(moment(term, now))}"
    made = _CONDITIONS.get(term.field)
    return made(term, bound) if made else None


def _number(column: str) -> Callable[[Term, Bound], str]:
    return lambda term, bound: f"{column} {term.operator} {bound(term.number)}"


def _column(name: str) -> Callable[[Term, Bound], str]:
    return lambda term, bound: matches(name, term, bound)


def _any_of(values: str) -> Callable[[Term, Bound], str]:
    def condition(term: Term, bound: Bound) -> str:
        if any(has_wildcard(value) for value in term.values):
            return f"len(list_filter({values}, lambda one: {matches('one', term, bound)})) > 0"
        # Six times as fast as the lambda.
        found = (f"list_contains({values}, {bound(value)})" for value in term.values)
        return f"({' OR '.join(found)})"

    return condition


def _feedback(term: Term, bound: Bound) -> str | None:
    # The summary does not distinguish feedback that is neither up nor down from no feedback.
    signs = {"up": (1, 0), "down": (-1, 0)}
    if any(value not in signs for value in term.values):
        return None
    wanted = sorted({sign for value in term.values for sign in signs[value]})
    return f"feedback IN {bound(wanted)}::TINYINT[]"


def _status(term: Term, bound: Bound) -> str:
    conditions = {
        "failed": "len(failed) > 0 OR errors > 0",
        "crashed": "severity = 5",
        "error": "len(errored) > 0 OR severity = 5",
        "not_evaluated": "len(not_evaluated) > 0",
        "passed": "len(passed) > 0 AND len(failed) + len(errored) = 0",
        "unscored": "len(passed) + len(failed) + len(errored) + len(not_evaluated) = 0",
    }
    return f"({' OR '.join(f'({conditions[value]})' for value in term.values)})"


def _reviewed(term: Term, bound: Bound) -> str:
    wanted = bound([action for value in term.values for action in DECISIONS.get(value, ())])
    decided = f"reviewed IN {wanted}::VARCHAR[]"
    if "no" not in term.values:
        return decided
    return f"({decided} OR reviewed IS NULL OR reviewed = 'skip')"


def _metric(term: Term, bound: Bound) -> str | None:
    # The summary counts crashed cases as failed.
    if any(value not in _LISTS for value in term.values):
        return None
    name = bound(term.name)
    return f"({' OR '.join(f'list_contains({_LISTS[one]}, {name})' for one in term.values)})"


_TIMES: Final[Mapping[str, str]] = {"since": "last_at >=", "from": "last_at >=", "to": "first_at <"}

_CONDITIONS: Final[Mapping[str, Callable[[Term, Bound], str | None]]] = {
    "status": _status,
    "metric": _metric,
    "tool": _any_of("tools"),
    "gap": lambda term, bound: f"list_has_any(gaps, {bound(list(term.values))}::VARCHAR[])",
    "feedback": _feedback,
    "cost": _number("cost_usd"),
    "latency": _number("latency_ms"),
    "turns": _number("turns"),
    "calls": _number("calls"),
    "tokens": _number("tokens"),
    "app": _column("app_name"),
    "user": _column("user_id"),
    "model": _any_of("models"),
    "set": _column("eval_set_id"),
    "id": _column("eval_id"),
    "service": _column("service"),
    "reviewed": _reviewed,
    "label": _any_of("labels"),
}
