"""Estimate how much the rules of a monitoring file would score and spend per day, from recent turns."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from evaltap.evaluator.pipeline.batch.sampling import facts_query
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import Json
from evaltap.schemas.formats.monitor import MonitorFile, ScoreRule

DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a rule; numbers are per day, and None where the store has no data for them."""

    name: str
    """The rule's."""
    metrics: tuple[str, ...]
    rate: float
    """The share of its turns that would be scored: all that match `always`, and the rate of the others."""
    turns_per_day: float
    """Turns that match its `where`."""
    always_per_day: float
    """Those of them that match a condition of `always`."""
    scored_per_day: float
    calls_per_day: float | None
    """Requests to judges; None if the metrics scored nothing in these days."""
    usd_per_day: float | None
    over_budget: bool
    """Whether the budget would lower the rate."""

    def data(self) -> dict[str, Json]:
        return asdict(self)


def price_rules(store: StoreReader, rules: MonitorFile) -> list[Price]:
    """Return how much each rule would have scored and spent per day over the last days of the traffic.

    They end with the newest turn.  Less than a day of traffic counts as a day.
    """
    ((oldest, newest),) = store.rows(f"SELECT min({_AT}), max({_AT}) FROM turns")
    if newest is None:
        return []
    since = newest - timedelta(days=DAYS)
    days = min(DAYS, max(1.0, (newest - oldest) / timedelta(days=1)))
    ids = [one for (one,) in store.rows(_RECENT, {"since": since})]
    return [_price(store, rule, ids, days, since) for rule in rules.score]


def _price(
    store: StoreReader, rule: ScoreRule, ids: Sequence[str], days: float, since: datetime
) -> Price:
    query, columns = facts_query([rule])
    held = store.rows(query, {"ids": ids})
    inside = [row[-columns:] for row in held if row[-columns]]
    turns, always = len(inside) / days, sum(any(row[1:]) for row in inside) / days
    given = {"metrics": rule.metrics, "since": since}
    ((known, calls, usd, unpriced),) = store.rows(_SPENT, given)
    scored = always + (turns - always) * rule.rate
    calls = scored * calls / known if known else None
    usd = scored * usd / known if known and not unpriced else None
    budget = rule.budget
    over = budget is not None and (
        _more(usd, budget.usd_per_day) or _more(calls, budget.calls_per_day)
    )
    rate = scored / turns if turns else rule.rate
    return Price(rule.name, tuple(rule.metrics), rate, turns, always, scored, calls, usd, over)


def _more(spent: float | None, limit: float | None) -> bool:
    return spent is not None and limit is not None and spent > limit


_AT: Final = "coalesce(started_at, landed_at)"
_RECENT: Final = f"SELECT DISTINCT eval_id FROM turns WHERE {_AT} > $since ORDER BY 1"

# Counts turns that any of the metrics scored.  A cached answer is priced as when it was first paid for.
_SPENT: Final = """
WITH scored AS (
  SELECT DISTINCT app_name, eval_set_id, eval_id, invocation_id, turn_revision
  FROM turn_scores WHERE metric_name IN $metrics::VARCHAR[] AND scored_at >= $since
)
SELECT (SELECT count(*) FROM scored), count(*), coalesce(sum(if(cached, saved_usd, cost_usd)), 0),
       count(*) FILTER (model IS NOT NULL AND if(cached, saved_usd, cost_usd) IS NULL)
FROM judge_calls WHERE metric_name IN $metrics::VARCHAR[] AND scored_at >= $since
"""


def price_lines(rules: MonitorFile, prices: Sequence[Price] | None) -> Iterator[str]:
    """Yield what the rules would have scored and spent per day; None without a store."""
    if prices is None:
        yield "cost of the score rules: add a DuckDB file to estimate it"
        return
    if rules.score and not prices:
        yield "cost of the score rules: unknown, no turn has landed"
    for one in prices:
        calls, usd = one.calls_per_day, one.usd_per_day
        asked = "judge calls unknown" if calls is None else f"{calls:,.1f} judge calls"
        cost = "cost unknown" if usd is None else f"{usd:,.4f} USD"
        turns = f"{one.scored_per_day:,.1f} of {one.turns_per_day:,.1f} turns"
        yield f"  {one.name}: per day {turns}, {asked}, {cost}"
        if one.over_budget:
            yield "    exceeds its budget, so the sampling rate is lowered every hour"
