"""A page of the list of cases: time, question, tools and outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.filters.choice import Choice, first_cases, fitting_query, order_of
from evaltap.evaluator.analysis.summaries.marks import current_marks
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.store.database import STORE, sql
from evaltap.evaluator.store.queries import Scratch, StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import utc_text

OPENING_LENGTH = 160


class MetricVerdict(NamedTuple):
    """The latest score of a case by one metric."""

    metric: str
    status: str
    score: float | None


@dataclass(frozen=True, slots=True)
class ListedCase:
    """A case in a list."""

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
    latency_ms: float | None
    """The latency of its slowest turn."""

    @property
    def failed(self) -> tuple[str, ...]:
        """The metrics that the case failed, including by a crash."""
        return tuple(one.metric for one in self.verdicts if one.status != "error")

    def data(self) -> dict[str, object]:
        """Return the case as JSON data."""
        return {
            "app": self.app,
            "eval_set_id": self.eval_set_id,
            "eval_id": self.eval_id,
            "started_at": utc_text(self.started_at, "milliseconds"),
            "opening": self.opening,
            "tools": list(self.tools),
            "outcome": self.outcome,
            "failed": list(self.failed),
            "verdicts": [one._asdict() for one in self.verdicts],
            "passed": self.passed,
            "not_evaluated": self.not_evaluated,
            "feedback": self.feedback,
            "version": self.version,
            "turns": self.turns,
            "cost_usd": self.cost_usd,
            "latency_ms": self.latency_ms,
        }


class Listing(NamedTuple):
    """The listed cases, and the number of all matching ones."""

    cases: list[ListedCase]
    matched: int


def list_cases(
    store: StoreReader, choice: Choice, limit: int, *, now: datetime | None = None
) -> Listing:
    """Return the first `limit` matching cases, in the order that the filter specifies."""
    query = fitting_query(store, choice, now=now)
    first = first_cases(query, limit, ordered=order_of(choice))
    places = f"SELECT *, row_number() OVER () AS place FROM ({first})"
    # A table with few rows, so that later queries read little.
    with store.scratch(places, query.parameters) as listed:
        matched = store.rows(f"SELECT coalesce(max(matched), 0) FROM {listed}")[0][0]
        return Listing(listed_cases(store, listed), matched)


def listed_cases(store: StoreReader, cases: Scratch) -> list[ListedCase]:
    """Return cases, given with the columns of `fitting_query` and their `place` in the list."""
    scores = sql(__name__, "listed_scores")
    if current_marks(store) is not None:
        listed = sql(__name__, "listing_indexed").format(cases=cases, scores=scores)
    else:
        listed = sql(__name__, "listing").format(
            cases=cases, newest=sql(STORE, "newest"), scores=scores, length=OPENING_LENGTH
        )
    return [
        ListedCase(
            app,
            name,
            eval_id,
            at,
            opening or "",
            tuple(tools),
            outcome,
            tuple(MetricVerdict(**one) for one in verdicts),
            *rest,
        )
        for app, name, eval_id, at, opening, tools, outcome, verdicts, *rest in store.rows(listed)
    ]


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
_REPEATED = f"""
SELECT eval_id FROM ({NAMES} WHERE list_contains($ids, eval_id))
GROUP BY eval_id HAVING count(*) > 1
"""
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


def repeated_ids(store: StoreReader, ids: Sequence[str]) -> set[str]:
    """Return the eval ids that several cases share: repeats, versions, applications."""
    return set(store.column(_REPEATED, {"ids": list(ids)}))


def nearest(store: StoreReader, case: str) -> str:
    """Return the ids most similar to an unknown name, for a message."""
    return _listed(store.column(_NEAREST, {"case": case})) or "none"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(one_line(name, _MOST_SHOWN) for name in names)
