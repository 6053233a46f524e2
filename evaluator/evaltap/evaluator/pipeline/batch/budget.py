"""A daily budget for judges, spread over the day: a rate for each hour, fixed before the hour's first draw.

Spending until the budget is used up would score the morning but not the evening.  The forecast for the rest
of the day uses the turns per hour, and the cost per scored turn, of the last 7 days.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.store.database import Store, utc_now
from evaltap.schemas.formats.monitor import ScoreRule

DAYS: Final = 7


class _Spent(NamedTuple):
    """The cost and calls of a rule's metrics in some time, and the turns that they scored."""

    usd: float = 0.0
    calls: int = 0
    turns: int = 0

    @property
    def usd_per_turn(self) -> float:
        return self.usd / self.turns if self.turns else 0.0

    @property
    def calls_per_turn(self) -> float:
        return self.calls / self.turns if self.turns else 1.0


class Budgets:
    """The rates of rules with budgets: computed once an hour, with spending counted in between."""

    def __init__(self, store: Store, rules: Sequence[ScoreRule]) -> None:
        self._store = store
        self._rules = [rule for rule in rules if rule.budget is not None]
        self._rates: dict[str, tuple[datetime, float]] = {}
        self._past: dict[str, _Spent] = {}
        """The last days before today."""
        self._today: dict[str, _Spent] = {}
        self._taken: dict[str, set[Hashable]] = {}
        """The turns that will be scored, and whose cost is not known yet."""

    def refresh(self) -> None:
        """Read what was spent; called before decisions on turns, when the earlier ones are scored."""
        today = datetime.combine(utc_now().date(), time())
        for rule in self._rules:
            self._today[rule.name] = self._spent(rule, today, today + timedelta(days=1))
            self._taken[rule.name] = set()

    @property
    def cost_is_unknown(self) -> bool:
        """Whether a rule with a budget has scored nothing in the last days; known after `refresh`."""
        return not all(self._average(rule).turns for rule in self._rules)

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
        today, each, taken = (
            self._today[rule.name],
            self._average(rule),
            len(self._taken[rule.name]),
        )
        usd, calls = rule.budget.usd_per_day, rule.budget.calls_per_day
        over = usd is not None and today.usd + taken * each.usd_per_turn >= usd
        return over or (
            calls is not None and today.calls + taken * max(1.0, each.calls_per_turn) >= calls
        )

    def take(self, name: str, turn: Hashable) -> None:
        """Count a turn that will be scored; once, though by several metrics."""
        self._taken.get(name, set()).add(turn)

    def _average(self, rule: ScoreRule) -> _Spent:
        """Return the spending of the last days, with today's if there was none before."""
        self.rate(rule)
        past = self._past[rule.name]
        return past if past.turns else self._today[rule.name]

    def _plan(self, rule: ScoreRule, hour: datetime) -> float:
        assert rule.budget is not None  # checked by the caller
        today = datetime.combine(hour.date(), time())
        since = today - timedelta(days=DAYS)
        self._past[rule.name] = self._spent(rule, since, today)
        spent, each = self._today[rule.name], self._past[rule.name]
        given = {"since": since, "today": today, "hour": hour.hour}
        ((expected, days),) = self._store.rows(_DECIDED, {**given, "rule": rule.name})
        if not days:  # a new rule
            ((expected, days),) = self._store.rows(_EXPECTED, given)
        always = self._store.rows(_ALWAYS, {"rule": rule.name, "since": since})[0][0] or 0.0
        coming = expected / days if days else 0.0
        rate = rule.rate
        for left, cost in (
            (_left(rule.budget.usd_per_day, spent.usd), each.usd_per_turn),
            (_left(rule.budget.calls_per_day, spent.calls), each.calls_per_turn),
        ):
            if left is not None and coming and cost:
                rate = min(rate, max(0.0, left / (coming * cost) - always))
        return rate

    def _spent(self, rule: ScoreRule, since: datetime, until: datetime) -> _Spent:
        given = {"metrics": rule.metrics, "since": since, "until": until}
        return _Spent(*self._store.rows(_SPENT, given)[0])


def _left(limit: float | None, spent: float) -> float | None:
    return None if limit is None else max(0.0, limit - spent)


_SPENT: Final = """
SELECT coalesce(sum(cost_usd), 0), count(*) FILTER (NOT cached),
       count(DISTINCT (app_name, eval_set_id, eval_id, invocation_id, turn_revision))
FROM judge_calls
WHERE metric_name IN $metrics::VARCHAR[] AND scored_at >= $since AND scored_at < $until
"""

_EXPECTED: Final = """
SELECT count(*) FILTER (hour(landed_at) >= $hour), count(DISTINCT landed_at::DATE)
FROM turns WHERE landed_at >= $since AND landed_at < $today
"""

_DECIDED: Final = """
SELECT count(*) FILTER (hour(first_at) >= $hour), count(DISTINCT first_at::DATE)
FROM (
  SELECT min(decided_at) AS first_at FROM sampling_decisions
  WHERE rule = $rule AND decided_at >= $since AND decided_at < $today
  GROUP BY app_name, eval_set_id, eval_id, invocation_id, turn_revision
)
"""

_ALWAYS: Final = """
SELECT count(*) FILTER (reason LIKE 'always:%') / nullif(count(*), 0)
FROM sampling_decisions WHERE rule = $rule AND decided_at >= $since
"""
