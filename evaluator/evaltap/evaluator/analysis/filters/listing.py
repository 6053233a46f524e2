"""Lists of cases, page by page: a page begins after the sort key of the preceding case."""

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, NamedTuple
from zlib import crc32

import orjson

from evaltap.evaluator.analysis.filters.choice import (
    NEWEST,
    SORTED,
    Choice,
    ChosenQuery,
    SortKey,
    first_cases,
    fitting_query,
)
from evaltap.evaluator.analysis.filters.terms import KEYS
from evaltap.evaluator.analysis.summaries.summaries import IndexedCase, current_marks
from evaltap.evaluator.cases.identity import CASE_KEY, THIS_CASE, CaseKey, is_about, named
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.store.database import STORE, sql
from evaltap.evaluator.store.queries import Row, Scratch, StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import utc_text

OPENING_LENGTH = 160


class MetricVerdict(NamedTuple):
    """The latest score of a case by one metric."""

    metric: str
    status: str
    score: float | None
    reason: str
    """As scored, shortened; empty if the metric gave none."""


@dataclass(frozen=True, slots=True)
class ListedCase:
    app: str
    eval_set_id: str
    eval_id: str
    started_at: datetime
    """When its first turn started, or landed if the start is unknown, in UTC."""
    opening: str
    """The beginning of the first user message."""
    tools: tuple[str, ...]
    """In the order of the first call, without repetitions."""
    outcome: str
    """As in reports: the first of crashed, failed, error, passed, not_evaluated among its latest scores, or
    unscored."""
    verdicts: tuple[MetricVerdict, ...]
    """By the metrics that failed, crashed or returned an error."""
    passed: int
    """The number of metrics that the case passed."""
    not_evaluated: int
    """The number of metrics that could not evaluate the case."""
    feedback: str | None
    """up, down or mixed."""
    version: str | None
    turns: int
    cost_usd: float | None
    """Of the turns whose cost is known."""
    unpriced: int
    """The number of turns whose cost is unknown."""
    latency_ms: float | None
    """The latency of its slowest turn."""

    @property
    def reason(self) -> str:
        """The first reason; that of a crash precedes others."""
        reasons = [(one.status != "crashed", one.reason) for one in self.verdicts if one.reason]
        return min(reasons, key=lambda one: one[0], default=(False, ""))[1]

    @property
    def failed(self) -> tuple[str, ...]:
        """The metrics that the case failed, including by a crash."""
        return tuple(one.metric for one in self.verdicts if one.status != "error")

    def data(self) -> dict[str, object]:
        return asdict(self) | {
            "started_at": utc_text(self.started_at, "milliseconds"),
            "failed": self.failed,
            "verdicts": [one._asdict() for one in self.verdicts],
        }


def listed_cases(
    store: StoreReader, cases: Scratch, *, has_summaries: bool | None = None
) -> list[ListedCase]:
    """Return cases, given with the columns of `fitting_query` and their `place` in the list."""
    if has_summaries is None:
        has_summaries = current_marks(store) is not None
    if has_summaries:
        listed = sql(__name__, "listing_indexed").format(cases=cases, case_key=CASE_KEY)
    else:
        listed = sql(__name__, "listing").format(
            cases=cases,
            newest=sql(STORE, "newest"),
            length=OPENING_LENGTH,
            is_about=is_about("f", "l"),
        )
    rows = store.rows(listed)
    times = [at for *_, first, last in rows for at in (first, last) if at is not None]
    age = (min(times), max(times)) if times else None
    scores = _newest_scores(store, cases, age) if age or not has_summaries else {}
    found = []
    for app, name, eval_id, *of_turns, _, _ in rows:
        key = app, name, eval_id
        found.append(_listed_case(key, of_turns, scores.get(key, ())))
    return found


def _newest_scores(
    store: StoreReader, cases: Scratch, age: tuple[datetime, datetime] | None
) -> dict[CaseKey, list[MetricVerdict]]:
    """Return the latest score by each metric of some cases; all were given within `age`, if it is known."""
    aged = "TRUE" if age is None else "scored_at BETWEEN $first AND $last"
    limits = {} if age is None else {"first": age[0], "last": age[1]}
    found: dict[CaseKey, list[MetricVerdict]] = {}
    for app, name, eval_id, *verdict in store.rows(_SCORES.format(cases=cases, aged=aged), limits):
        found.setdefault((app, name, eval_id), []).append(MetricVerdict(*verdict))
    return found


_SCORES: Final = """
SELECT app_name, eval_set_id, eval_id, metric_name, status, score, left(coalesce(reason, ''), 1000)
FROM scores SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)
WHERE {aged}
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id, metric_name ORDER BY revision DESC, scored_at DESC
) = 1
ORDER BY metric_name
"""
_NOT_PASSED: Final = ("crashed", "failed", "error")


def _listed_case(key: CaseKey, of_turns: Row, scores: Sequence[MetricVerdict]) -> ListedCase:
    at, opening, tools, crashed, *rest = of_turns
    statuses = Counter(one.status for one in scores)
    scored = [*(status for status in (*_NOT_PASSED, "passed") if statuses[status]), "not_evaluated"]
    return ListedCase(
        *key,
        at,
        opening,
        tuple(tools),
        "crashed" if crashed else scored[0] if scores else "unscored",
        tuple(one for one in scores if one.status in _NOT_PASSED),
        statuses["passed"],
        statuses["not_evaluated"],
        *rest,
    )


SHORT: Final = 17
"""The length of a shortened id: both ends suffice to distinguish UUIDs that begin with the time."""
_LEAST_PIECE: Final = 4
_MOST_SHOWN: Final = 100
"""Characters of a name in a message."""
_MOST_NAMED: Final = 5

IS_CASE: Final = "(eval_id = $case OR eval_set_id || '/' || eval_id = $case)"
"""SQL: whether a row belongs to the case with a given full name."""

NAMES: Final = """
SELECT DISTINCT app_name, eval_set_id, eval_id FROM (
  SELECT app_name, eval_set_id, eval_id FROM cases
  UNION SELECT app_name, eval_set_id, eval_id FROM scores
)"""
"""SQL: every case, landed or scored from a file."""
_IDS = "(SELECT eval_id FROM cases UNION SELECT eval_id FROM scores)"
_FITTING = f"""
SELECT eval_id FROM {_IDS}
WHERE starts_with(eval_id, $start) AND ends_with(eval_id, $end) AND length(eval_id) >= $length
ORDER BY eval_id LIMIT {_MOST_NAMED + 1}
"""
_NEAREST = f"""
SELECT eval_id FROM {_IDS}
ORDER BY jaro_winkler_similarity(eval_id, $case) DESC, eval_id LIMIT {_MOST_NAMED}
"""


def shortened(eval_id: str, width: int = SHORT) -> str:
    """Return an id shortened in its middle, so that both ends remain distinguishing: `01a20ae4…25c88bb8`."""
    if len(eval_id) <= width:
        return eval_id
    end = (width - 1) // 2
    return f"{eval_id[: width - 1 - end]}…{eval_id[-end:]}"


def full_name(store: StoreReader, case: str) -> str:
    """Return the full name of a case, given the full name, the beginning of an id or a shortened id.

    A name that matches no case is returned unchanged.

    Raises InputError if a part matches several cases.
    """
    for table in ("cases", "scores"):
        if store.rows(f"SELECT 1 FROM {table} WHERE {IS_CASE} LIMIT 1", {"case": case}):
            return case
    start, _, end = case.replace("...", "…").partition("…")
    if len(start) + len(end) < _LEAST_PIECE:
        return case
    piece = {"start": start, "end": end, "length": len(start) + len(end)}
    found = store.column(_FITTING, piece)
    if len(found) > 1:
        more = ", …" if len(found) > _MOST_NAMED else ""
        names = _listed(found[:_MOST_NAMED])
        raise InputError(f"{case!r} is part of several ids; give a longer part: {names}{more}")
    return found[0] if found else case


def nearest(store: StoreReader, case: str) -> str:
    """Return the ids most similar to an unknown name, for a message."""
    return _listed(store.column(_NEAREST, {"case": case})) or "none"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(one_line(name, _MOST_SHOWN) for name in names)


_KEYS: Final = [SortKey(name) for name in KEYS.split(", ")]
_MOST_MICROSECONDS: Final = 2**62


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some cases of a list, and the marks of the adjacent pages (empty if there is none)."""

    cases: tuple[ListedCase, ...]
    matched: int
    next: str
    previous: str


class ListPlace(NamedTuple):
    """The cases before and after a case in a list (None if there is none), and its number."""

    previous: CaseKey | None = None
    next: CaseKey | None = None
    number: int = 0
    """From 1; 0 if the case is not in the list, or no filter narrows it."""
    of: int = 0


def _refuse_unread(mark: str) -> None:
    if mark:
        raise InputError(
            "after: not the `next` of a reply to this filter; leave it out to begin anew"
        )


def list_page(
    reader: StoreReader,
    choice: Choice,
    size: int,
    *,
    after: str = "",
    before: str = "",
    now: datetime | None = None,
    strict: bool = False,
) -> ListPage:
    """Return the cases after, or before, a mark.

    A mark of another order starts from the beginning; with `strict`, it raises InputError.
    """
    sorted_by = _sorted(reader, choice, now)
    order = sorted_by.order
    mark = _read(before or after, order)
    if strict and mark is None:
        _refuse_unread(before or after)
    backwards = bool(before) and mark is not None
    beyond, parameters = "TRUE", dict(sorted_by.query.parameters)
    if mark is not None:
        beyond = _beyond(order, _bound(mark, order, parameters), backwards)
    first = first_cases(
        sorted_by.query,
        size + 1,
        ordered=_ordered(order, backwards),
        where=beyond,
        columns=sorted_by.columns,
    )
    places = f"SELECT *, row_number() OVER (ORDER BY {_ordered(order)}) AS place FROM ({first})"
    columns = ", ".join(key.mark for key in order)
    with reader.scratch(places, parameters) as listed:
        marks = reader.rows(f"SELECT {columns}, matched FROM {listed} ORDER BY place")
        cases = listed_cases(reader, listed, has_summaries=sorted_by.query.has_summaries)
    if not marks:
        return ListPage((), 0, "", "")
    more = len(marks) > size
    if more:
        chosen = slice(1, None) if backwards else slice(0, size)
        marks, cases = marks[chosen], cases[chosen]
    return ListPage(
        tuple(cases),
        marks[0][-1],
        _written(marks[-1], order) if more or backwards else "",
        _written(marks[0], order) if (more if backwards else mark is not None) else "",
    )


def around(
    reader: StoreReader,
    choice: Choice,
    key: CaseKey,
    known: IndexedCase | None,
    *,
    now: datetime | None = None,
) -> ListPlace:
    """Return the position of a case in a list."""
    sorted_by = _sorted(reader, choice, now, has_summaries=known is not None)
    query = sorted_by.query
    found = query._replace(statement=f"SELECT {sorted_by.columns} FROM ({query.statement})")
    narrowed = bool(choice.filter.terms)
    if query.is_indexed:
        at = known.last_at if known else None
        return _around(reader, found, sorted_by.order, key, at, narrowed=narrowed)
    with reader.scratch(found.statement, found.parameters) as listed:  # computed once, not thrice
        found = query._replace(statement=f"FROM {listed}", parameters={})
        return _around(reader, found, sorted_by.order, key, None, narrowed=narrowed)


def _around(
    reader: StoreReader,
    query: ChosenQuery,
    order: list[SortKey],
    key: CaseKey,
    at: int | None,
    *,
    narrowed: bool,
) -> ListPlace:
    statement, parameters = query.statement, query.parameters
    is_case, names = THIS_CASE, named(key)
    this: Sequence[Sequence[object]] = []
    if at is not None:
        is_case += " AND last_at = make_timestamp($at)"  # DuckDB skips other row groups
        names["at"] = at
        if order == [NEWEST, *_KEYS] and not narrowed:
            this = [(at, *key)]
    if not this:
        marks = ", ".join(one.mark for one in order)
        this = reader.rows(f"SELECT {marks} FROM ({statement}) WHERE {is_case}", parameters | names)
    if not this:
        return ListPlace()
    parameters = dict(parameters)
    values = _bound(this[0], order, parameters)
    sides = " UNION ALL ".join(
        f"""SELECT {side} AS side, {KEYS} FROM (
          SELECT {KEYS} FROM ({statement}) WHERE {_beyond(order, values, side < 0)}
          ORDER BY {_ordered(order, side < 0)} LIMIT 1)"""
        for side in (-1, 1)
    )
    rows = reader.rows(sides, parameters)
    found: dict[int, CaseKey] = {side: (app, name, eval_id) for side, app, name, eval_id in rows}
    number = of = 0
    if narrowed:
        ((number, of),) = reader.rows(
            f"SELECT 1 + count(*) FILTER (WHERE {_beyond(order, values, True)}), count(*) FROM ({statement})",
            parameters,
        )
    return ListPlace(found.get(-1), found.get(1), number, of)


class _Sorted(NamedTuple):
    """The cases of a list with its sort columns."""

    query: ChosenQuery
    columns: str
    order: list[SortKey]


def _sorted(
    reader: StoreReader, choice: Choice, now: datetime | None, *, has_summaries: bool | None = None
) -> _Sorted:
    keys = SORTED[choice.filter.sort]
    columns = "".join(f", {sql} AS {key.column}" for key, sql in keys.items() if sql)
    query = fitting_query(reader, choice, now=now, has_summaries=has_summaries)
    return _Sorted(query, f"*{columns}", [*keys, *_KEYS])


def _ordered(order: Sequence[SortKey], backwards: bool = False) -> str:
    return ", ".join(key.direction(backwards) for key in order)


def _beyond(order: Sequence[SortKey], values: Sequence[str], backwards: bool) -> str:
    """Return a condition for the rows after, or before, a row with these values."""
    (key, *rest), (value, *others) = order, values
    operator = key.operator(backwards)
    if not rest:
        return f"{key.column} {operator} {value}"
    # The first condition follows from the second, and allows DuckDB to skip row groups.
    return (
        f"{key.column} {operator}= {value} AND ({key.column} {operator} {value}"
        f" OR ({_beyond(rest, others, backwards)}))"
    )


def _bound(
    mark: Sequence[object], order: Sequence[SortKey], parameters: dict[str, object]
) -> list[str]:
    """Return SQL for the values of a mark, which become parameters."""
    values = []
    for place, (value, key) in enumerate(zip(mark, order, strict=True)):
        name = f"mark_{place}"
        parameters[name] = value
        if key.is_time:
            values.append(f"make_timestamp(${name}::BIGINT)")
        else:
            values.append(f"${name}" if isinstance(value, str) else f"${name}::DOUBLE")
    return values


def _digest(order: Sequence[SortKey]) -> int:
    return crc32(_ordered(order).encode())


def _written(row: tuple[object, ...], order: Sequence[SortKey]) -> str:
    mark = orjson.dumps([_digest(order), *row[:-1]])
    return base64.urlsafe_b64encode(mark).decode().rstrip("=")


def _read(mark: str, order: Sequence[SortKey]) -> list[object] | None:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
    except (ValueError, binascii.Error):
        return None
    if not isinstance(found, list) or found[:1] != [_digest(order)]:
        return None
    values = found[1:]
    return values if len(values) == len(order) and all(map(_fits, values, order)) else None


def _fits(value: object, key: SortKey) -> bool:
    if key in _KEYS:
        return isinstance(value, str)
    if key.is_time:
        return isinstance(value, int) and abs(value) < _MOST_MICROSECONDS
    return isinstance(value, int | float)
