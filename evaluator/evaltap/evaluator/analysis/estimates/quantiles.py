"""Quantiles of all traffic: of latency, cost and calls."""

from collections.abc import Sequence
from typing import Final

from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.store.queries import StoreReader

COMMON: Final = 0.95
MEDIAN: Final = 0.5


def quantile(turns: Turns, share: float) -> float | None:
    """Return a quantile of the signal of the turns that count; None without turns."""
    counted = f"SELECT has, probability AS inclusion_probability FROM {turns.table} WHERE counts"
    (found,) = weighted_quantiles(turns.store, f"FROM ({counted})", "has", (share,))
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
