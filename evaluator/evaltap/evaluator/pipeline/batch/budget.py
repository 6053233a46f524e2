"""A daily budget for judges, spread over the day: a rate for each hour, fixed before the hour's first draw.

Spending until the budget is used up would score the morning but not the evening.  The forecast for the rest
of the day uses the turns per hour, and the cost per scored turn, of the last 7 days.
"""

from collections import Counter
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.store.database import Store, utc_now
from evaltap.schemas.formats.monitor import ScoreRule

DAYS: Final = 7


class _Spent(NamedTuple):
    """Today's cost and calls of a rule's metrics, and their averages per scored turn over the last days."""

    usd: float
    calls: int
    usd_per_turn: float
    calls_per_turn: float


class Budgets:
    """The rates of rules with budgets: computed once an hour, with spending counted in between."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rates: dict[str, tuple[datetime, float]] = {}
        self._spent: dict[str, _Spent] = {}
        self._taken: Counter[str] = Counter()

    def rate(self, rule: ScoreRule) -> float:
        """Return the sampling rate of a rule for this hour."""
        if rule.budget is None:
            return rule.rate
        now = utc_now()
        hour = now.replace(minute=0, second=0, microsecond=0)
        planned = self._rates.get(rule.name)
        if planned is None or planned[0] != hour:
            planned = hour, self._plan(rule, hour)
            self._rates[rule.name] = planned
        return planned[1]

    def spent(self, rule: ScoreRule) -> bool:
        """Return whether the day's budget is used up despite the hourly plan."""
        if rule.budget is None:
            return False
        self.rate(rule)
        spent, taken = self._spent[rule.name], self._taken[rule.name]
        usd, calls = rule.budget.usd_per_day, rule.budget.calls_per_day
        over = usd is not None and spent.usd + taken * spent.usd_per_turn >= usd
        return over or (
            calls is not None and spent.calls + taken * max(1.0, spent.calls_per_turn) >= calls
        )

    def take(self, name: str) -> None:
        """Count a turn that will be scored."""
        self._taken[name] += 1

    def _plan(self, rule: ScoreRule, hour: datetime) -> float:
        assert rule.budget is not None  # checked by the caller
        today = datetime.combine(hour.date(), time())
        given = {"metrics": rule.metrics, "today": today, "since": today - timedelta(days=DAYS)}
        ((usd, calls, of_days, calls_of_days, turns),) = self._store.rows(_SPENT, given)
        dear, asked = (of_days / turns, calls_of_days / turns) if turns else (0.0, 1.0)
        spent = _Spent(usd, calls, dear, asked)
        self._spent[rule.name] = spent
        self._taken[rule.name] = 0
        given = {"since": today - timedelta(days=DAYS), "today": today, "hour": hour.hour}
        ((expected, days),) = self._store.rows(_EXPECTED, given)
        always = (
            self._store.rows(_ALWAYS, {"rule": rule.name, "since": given["since"]})[0][0] or 0.0
        )
        coming = expected / days if days else 0.0
        rate = rule.rate
        for left, cost in (
            (_left(rule.budget.usd_per_day, spent.usd), spent.usd_per_turn),
            (_left(rule.budget.calls_per_day, spent.calls), spent.calls_per_turn),
        ):
            if left is not None and coming and cost:
                rate = min(rate, max(0.0, left / (coming * cost) - always))
        return rate


def _left(limit: float | None, spent: float) -> float | None:
    return None if limit is None else max(0.0, limit - spent)


_SPENT: Final = """
SELECT coalesce(sum(cost_usd) FILTER (scored_at >= $today), 0),
       count(*) FILTER (scored_at >= $today AND NOT cached),
       coalesce(sum(cost_usd), 0), count(*) FILTER (NOT cached),
       count(DISTINCT (app_name, eval_set_id, eval_id, invocation_id, turn_revision))
FROM judge_calls WHERE metric_name IN $metrics::VARCHAR[] AND scored_at >= $since
"""

_EXPECTED: Final = """
SELECT count(*) FILTER (hour(landed_at) >= $hour), count(DISTINCT landed_at::DATE)
FROM turns WHERE landed_at >= $since AND landed_at < $today
"""

_ALWAYS: Final = """
SELECT count(*) FILTER (reason LIKE 'always:%') / nullif(count(*), 0)
FROM sampling_decisions WHERE rule = $rule AND decided_at >= $since
"""
