"""Pages of a list by keyset: the sort key of the preceding row says where a page begins."""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.filters.choice import Choice, fitting_query
from evaltap.evaluator.filters.listing import ListedCase, listed_cases
from evaltap.evaluator.filters.terms import KEYS
from evaltap.evaluator.store.queries import StoreReader

_LAST: Final = "1e308"
_NEWEST: Final = f"coalesce(-epoch_us(last_at)::DOUBLE, {_LAST})"
_SORT_KEYS: Final = {
    "newest": [_NEWEST],
    "oldest": [f"coalesce(epoch_us(first_at)::DOUBLE, {_LAST})"],
    "cost": [f"coalesce(-cost_usd, {_LAST})"],
    "latency": [f"coalesce(-latency_ms, {_LAST})"],
    "worst": ["-coalesce(not_passed, 0)::DOUBLE", f"coalesce(lowest, -{_LAST})", _NEWEST],
    "score": [f"coalesce(lowest, {_LAST})", _NEWEST],
}
"""By which a list is sorted, upwards, before the keys of the case."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some cases of a list, and the marks of the pages around them (empty: there is none)."""

    cases: tuple[ListedCase, ...]
    matched: int
    next: str
    previous: str


def list_page(
    reader: StoreReader,
    choice: Choice,
    size: int,
    *,
    after: str = "",
    before: str = "",
    now: datetime | None = None,
) -> ListPage:
    """Return the cases after, or before, a mark; an invalid mark starts from the beginning."""
    sorted_by = _sorted(reader, choice, now)
    order = sorted_by.order
    mark = _read(before or after, len(order) - 3)
    backwards = bool(before) and mark is not None
    beyond, parameters = "", dict(sorted_by.parameters)
    if mark is not None:
        parameters |= {f"mark_{place}": value for place, value in enumerate(mark)}
        values = ", ".join(f"$mark_{place}" for place in range(len(mark)))
        beyond = f"WHERE ({', '.join(order)}) {'<' if backwards else '>'} ({values})"
    direction = " DESC" if backwards else ""
    reader.execute(
        f"""CREATE OR REPLACE TEMP TABLE listed_cases AS
        SELECT *, row_number() OVER (ORDER BY {", ".join(order)}) AS place FROM (
          SELECT * FROM ({sorted_by.statement}) {beyond}
          ORDER BY {", ".join(name + direction for name in order)} LIMIT {size + 1}
        )""",
        parameters,
    )
    marks = reader.rows(f"SELECT {', '.join(order)}, matched FROM listed_cases ORDER BY place")
    cases = listed_cases(reader)
    more = len(marks) > size
    if more:
        chosen = slice(1, None) if backwards else slice(0, size)
        marks, cases = marks[chosen], cases[chosen]
    return ListPage(
        tuple(cases),
        marks[0][-1] if marks else 0,
        _written(marks[-1]) if marks and (more or backwards) else "",
        _written(marks[0]) if marks and (more if backwards else mark is not None) else "",
    )


def around(
    reader: StoreReader, choice: Choice, key: CaseKey, *, now: datetime | None = None
) -> tuple[CaseKey | None, CaseKey | None]:
    """Return the cases before and after one in a list; None where there is none."""
    sorted_by = _sorted(reader, choice, now)
    order = ", ".join(sorted_by.order)
    down = ", ".join(f"{name} DESC" for name in sorted_by.order)
    is_case = "app_name = $app AND eval_set_id = $eval_set AND eval_id = $eval_id"
    rows = reader.rows(
        f"""WITH listed AS MATERIALIZED (SELECT {order} FROM ({sorted_by.statement})),
        this AS (FROM listed WHERE {is_case})
        SELECT -1, {KEYS} FROM (
          SELECT * FROM listed WHERE ({order}) < (SELECT ({order}) FROM this) ORDER BY {down} LIMIT 1)
        UNION ALL
        SELECT 1, {KEYS} FROM (
          SELECT * FROM listed WHERE ({order}) > (SELECT ({order}) FROM this) ORDER BY {order} LIMIT 1)""",
        {**sorted_by.parameters, "app": key[0], "eval_set": key[1], "eval_id": key[2]},
    )
    found: dict[int, CaseKey] = {side: (app, name, eval_id) for side, app, name, eval_id in rows}
    return found.get(-1), found.get(1)


class _Sorted(NamedTuple):
    """The cases of a list with the columns that it is sorted by."""

    statement: str
    parameters: dict[str, Any]
    order: list[str]


def _sorted(reader: StoreReader, choice: Choice, now: datetime | None) -> _Sorted:
    keys = _SORT_KEYS[choice.filter.sort]
    query = fitting_query(reader, choice, now=now)
    names = [f"sort_{place}" for place in range(len(keys))]
    columns = ", ".join(f"{key} AS {name}" for key, name in zip(keys, names, strict=True))
    statement = f"SELECT *, {columns} FROM ({query.statement})"
    return _Sorted(statement, query.parameters, [*names, *KEYS.split(", ")])


def _written(row: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(row[:-1])).decode().rstrip("=")


def _read(mark: str, numbers: int) -> list[Any] | None:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
    except (ValueError, binascii.Error):
        return None
    kinds = [(int, float)] * numbers + [(str,)] * 3
    fits = isinstance(found, list) and len(found) == len(kinds)
    return found if fits and all(map(isinstance, found, kinds)) else None
