"""Usage of all traffic: mean, total and quantiles of latency, cost, tokens and calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.scope import Scope, Signal
from evaltap.evaluator.analysis.estimates.turns import Turns, choose_turns
from evaltap.evaluator.analysis.stats.estimate import Estimate, estimate
from evaltap.evaluator.analysis.stats.intervals import Interval
from evaltap.evaluator.store.queries import StoreReader

MEASURES: Final = ("latency_ms", "cost_usd", "input_tokens", "output_tokens", "tool_count")
"""The measurable columns of turns; NULL means unknown, and is not counted."""
COMMON: Final = 0.95
MEDIAN: Final = 0.5


class Quantile(NamedTuple):
    """A quantile in the unit of its values, with its interval for the process and for this traffic."""

    value: float
    process: Interval
    traffic: Interval


@dataclass(frozen=True, slots=True)
class Measure:
    """A column over the traffic, in its own unit; turns without a known value do not count."""

    mean: Estimate
    quantiles: tuple[Quantile, ...]

    @property
    def total(self) -> float:
        """The sum over the turns that the recorded ones represent."""
        return self.mean.rate.value * self.mean.estimated_turns


def measure(
    store: StoreReader, column: str, scope: Scope | None = None, *, shares: Sequence[float] = ()
) -> Measure | None:
    """Return mean and quantiles of a column of MEASURES; None if no turn has a known value."""
    if column not in MEASURES:
        raise ValueError(f"{column} is not measured; expected one of {', '.join(MEASURES)}")
    known = Signal(column, f"{column} IS NOT NULL")
    with choose_turns(store, scope or Scope(), (), known) as turns:
        return _measure(turns, shares)


def _measure(turns: Turns, shares: Sequence[float]) -> Measure | None:
    query = "SELECT DISTINCT has::DOUBLE FROM {turns} WHERE counts ORDER BY 1"
    values = [value for (value,) in turns.rows(query)]
    if not values:
        return None
    low, width = values[0], values[-1] - values[0]
    # Shifted and scaled to 0 to 1, a mean is a mean of scores.
    mean = _estimate(turns, f"(has - {low!r}) / {width or 1.0!r}", scores=True)

    def scaled(ends: Interval) -> Interval:
        return Interval(low + ends.low * width, low + ends.high * width)

    def below(value: float) -> Estimate:
        return _estimate(turns, f"(has <= {value!r})::DOUBLE")

    found = (quantile(values, share, below) for share in shares)
    rate = replace(
        mean.rate, value=low + mean.rate.value * width, interval=scaled(mean.rate.interval)
    )
    mean = replace(mean, rate=rate, traffic=scaled(mean.traffic))
    return Measure(mean, tuple(one for one in found if one is not None))


def _estimate(turns: Turns, value: str, *, scores: bool = False) -> Estimate:
    (profiles,) = turns.profiles(value=value).values()
    found = estimate(profiles, scores=scores)
    assert found is not None  # every profile has turns
    return found


def common_limit(store: StoreReader, column: str) -> float | None:
    """Return the weighted 95th percentile of a column over all stored turns; None if no value is known."""
    (found,) = weighted_quantiles(store, "FROM latest_turns", column, (COMMON,))
    return found


def weighted_quantiles(
    store: StoreReader, turns: str, column: str, shares: Sequence[float]
) -> list[float | None]:
    """Return quantiles of a column over the traffic, without intervals, in a single query.

    `turns` is SQL, `FROM …`, over rows with the column and their inclusion probability.  A quantile is None
    if no value is known.
    """
    rows = store.rows(
        f"""
        SELECT min(value) FILTER (share >= wanted - 1e-9)
        FROM (
          SELECT value, sum(weight) OVER (ORDER BY value) / sum(weight) OVER () AS share
          FROM (
            SELECT {column} AS value, 1 / coalesce(inclusion_probability, 1) AS weight
            {turns}
            WHERE {column} IS NOT NULL AND coalesce(inclusion_probability, 1) > 0
          )
        ) RIGHT JOIN (SELECT unnest($shares::DOUBLE[]) AS wanted) ON TRUE
        GROUP BY wanted ORDER BY wanted""",
        {"shares": sorted(shares)},
    )
    return [None if value is None else float(value) for (value,) in rows]


def quantile(
    values: Sequence[float], share: float, below: Callable[[float], Estimate]
) -> Quantile | None:
    """Return the weighted quantile, by inverting the estimated shares of turns at or below a value.

    `values` are the distinct values, ascending; `below(x)` estimates the share of turns with at most x, and
    is called about 4·log2(values) times.  The interval contains the values whose share may be the requested
    one (Woodruff, Journal of the American Statistical Association 47, 1952).
    """
    if not values:
        return None
    at = cache(lambda place: below(values[place]))

    def first(reaches: Callable[[Estimate], float], start: int, end: int) -> int:
        while start < end:
            middle = (start + end) // 2
            if reaches(at(middle)) >= share:
                end = middle
            else:
                start = middle + 1
        return start

    last = len(values) - 1
    place = first(lambda one: one.rate.value, 0, last)

    def interval(ends: Callable[[Estimate], Interval]) -> Interval:
        low = first(lambda one: ends(one).high, 0, place)
        high = first(lambda one: ends(one).low, place, last)
        return Interval(values[low], values[high])

    return Quantile(
        values[place], interval(lambda one: one.rate.interval), interval(lambda one: one.traffic)
    )
