"""Decide by rules which turns of live traffic a metric scores, with draws that are hashes and are stored.

A draw depends neither on the metric nor on the rule, so an expensive metric scores a subset of the turns that
a cheaper one with a higher rate scores.  The hash differs from the recorder's: among recorded turns, all of
the recorder's draws are small.
"""

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.estimates.scope import condition
from evaltap.evaluator.cases.identity import CaseIdentity, CaseKey
from evaltap.evaluator.pipeline.batch.pending import PendingCase
from evaltap.evaluator.scoring.contract.context import Status, TurnScore
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.evaluator.scoring.scorer import KnownScores
from evaltap.evaluator.store.database import Store, sql, utc_now
from evaltap.evaluator.store.queries import sql_text
from evaltap.schemas.formats.monitor import Condition, ScoreRule

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
    """The rates of rules with budgets: computed once an hour, with spending counted in between.

    A daily budget is spread over the day, since spending until it is used up would score the morning but not
    the evening.  The forecast for the rest of the day uses the turns per hour, and the cost per scored turn,
    of the last 7 days.
    """

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
            given = {"metrics": rule.metrics, "rule": rule.name, "today": today}
            self._today[rule.name] = _Spent(*self._store.rows(_SPENT_TODAY, given)[0])
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
        given: dict[str, object] = {"since": since, "today": today}
        past = self._store.rows(_SPENT_BEFORE, given | {"metrics": rule.metrics})
        self._past[rule.name] = each = _Spent(*past[0])
        spent, given = self._today[rule.name], given | {"hour": hour.hour}
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


def _left(limit: float | None, spent: float) -> float | None:
    return None if limit is None else max(0.0, limit - spent)


_SPENT: Final = """
SELECT coalesce(sum(cost_usd), 0), count(*) FILTER (NOT cached),
       count(DISTINCT (app_name, eval_set_id, eval_id, invocation_id, turn_revision))
FROM judge_calls c
WHERE metric_name IN $metrics::VARCHAR[]
"""
_SPENT_BEFORE: Final = f"{_SPENT} AND scored_at >= $since AND scored_at < $today"
"""By whatever rule, as it tells what a turn costs."""
_SPENT_TODAY: Final = f"""{_SPENT} AND scored_at >= $today AND EXISTS (
  FROM sampling_decisions d WHERE d.rule = $rule AND d.decision = 'score' AND d.metric_name = c.metric_name
    AND (d.app_name, d.eval_set_id, d.eval_id, d.invocation_id, d.turn_revision)
      = (c.app_name, c.eval_set_id, c.eval_id, c.invocation_id, c.turn_revision))
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


SEED: Final = "evaltap score sample v1\0"
LEFT_OUT: Final = TurnScore(Status.NOT_EVALUATED, None, "left out by a rule")
"""Marks a turn that is not scored although others of its case are; it gets no row."""
_SCORE, _SKIP, _UNCOVERED = "score", "skip", "uncovered"
_FIRST_CASES: Final = 10
"""How many cases are scored to learn what a turn costs, if a rule has a budget."""
TurnKey = tuple[str, str, str, str]


class Decision(NamedTuple):
    """Whether a metric scores a turn, by which rule, and with what probability."""

    rule: str | None
    unit: str
    probability: float
    draw: float
    decision: str
    reason: str
    outdated: bool = False
    """Whether a complaint about the turn has landed since."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """Which conditions a turn meets, by the rules' indexes: `where`, and each of `always`."""

    where: Sequence[bool]
    always: Sequence[Sequence[bool]]


def draw_of(eval_id: str, invocation_id: str | None = None) -> float:
    """Return the draw of a session or turn: 53 bits of a hash, scaled to [0, 1)."""
    named = SEED + eval_id + ("" if invocation_id is None else f"\0{invocation_id}")
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


class _Draws(NamedTuple):
    """The draws of a turn.

    A turn that was decided on keeps its unit: with another draw, its probability would not be the larger one.
    """

    eval_id: str
    turn: str
    unit: str
    """The unit of its earlier decision; empty if there is none."""

    def of(self, unit: str) -> tuple[str, float]:
        """Return the unit that decides, and its draw."""
        unit = self.unit or unit
        return unit, draw_of(self.eval_id, None if unit == "session" else self.turn)


class ScoreSampling:
    """Applies the rules to the turns of pending cases, and stores the decisions."""

    def __init__(
        self, store: Store, rules: Sequence[ScoreRule], metrics: Sequence[RunMetric]
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._rules = rules
        self._budgets = Budgets(store, rules)
        names = [one.metric.metric_name for one in metrics]
        self._of = {
            index: [number for number, rule in enumerate(rules) if name in rule.metrics]
            for index, name in enumerate(names)
        }
        self.stages = self._staged(names)
        """The metrics in stages: each after those on whose scores its rules depend."""
        self.heeds_complaints = any(one.negative_feedback for rule in rules for one in rule.always)
        """Whether feedback that lands later may have turns scored that were left out."""
        self._left_out: dict[tuple[CaseKey, int], frozenset[int]] = {}

    def _staged(self, names: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the indexes of the metrics in stages; metrics that depend on each other share the last."""
        after = {
            index: {one.failed for number in of for one in self._rules[number].always}
            for index, of in self._of.items()
        }
        stages, left = [], [*after]
        while left:
            waiting = {names[index] for index in left}
            ready = [index for index in left if not after[index] & waiting] or left
            stages.append(tuple(ready))
            left = [index for index in left if index not in ready]
        return stages

    @staticmethod
    def left_anything_out(store: Store) -> bool:
        """Return whether rules have left out turns of a store; they stay left out without the rules."""
        return bool(store.rows("SELECT 1 FROM sampling_decisions LIMIT 1"))

    def lots(self, cases: Sequence[PendingCase]) -> Iterator[Sequence[PendingCase]]:
        """Yield the cases in lots that are chosen and scored one after the other."""
        self._budgets.refresh()
        first = _FIRST_CASES if self._budgets.cost_is_unknown else len(cases)
        yield from filter(None, (cases[:first], cases[first:]))

    def choose(self, cases: Sequence[PendingCase], stage: Sequence[int]) -> list[PendingCase]:
        """Return the cases of which a metric of the stage scores any turn, with those metrics."""
        self._left_out.clear()
        self._budgets.refresh()
        staged = [
            one._replace(indexes=tuple(index for index in one.indexes if index in stage))
            for one in cases
        ]
        found: list[PendingCase] = []
        rows: list[tuple[object, ...]] = []
        facts, known = self._facts(staged), self._known(staged)
        for one in staged:
            kept = [index for index in one.indexes if self._keeps(one, index, facts, known, rows)]
            if kept:
                found.append(one._replace(indexes=tuple(kept)))
        if rows:
            with self._store.transaction():
                self._store.append("sampling_decisions", rows)
        return found

    def without_left_out(
        self, identity: CaseIdentity, indexes: Sequence[int], known: KnownScores, turns: int
    ) -> KnownScores:
        """Return the known scores of a case's turns, with turns that must not be scored marked."""
        found: dict[int, Sequence[TurnScore | None]] = {}
        for number, index in enumerate(indexes):
            places = self._left_out.get((identity[:3], index), frozenset())
            before = known.get(number) or [None] * turns
            found[number] = [
                score or (LEFT_OUT if place in places else None)
                for place, score in enumerate(before)
            ]
        return found

    def _keeps(
        self,
        one: PendingCase,
        index: int,
        facts: Mapping[TurnKey, _Facts],
        known: Mapping[tuple[TurnKey, int, str], Decision],
        rows: list[tuple[object, ...]],
    ) -> bool:
        """Decide on the turns of a case under a metric; return whether any is scored."""
        if not (of := self._of[index]):
            return True
        metric, key = self._metrics[index], one.key
        left_out = set()
        turns = [str(turn.get("invocationId") or "") for turn in one.case["actualConversation"]]
        of_turns = [facts.get((*key, name), _Facts((), ())) for name in turns]
        for place, name in enumerate(turns):
            revision = one.identity.turn_revisions[place]
            before = known.get(((*key, name), revision, metric.digest))
            draws = _Draws(key[2], name, before.unit if before and before.probability else "")
            decision = self._decide(of, draws, of_turns, place)
            is_new = True
            if before is not None and before.probability >= decision.probability:
                decision, is_new = before, before.outdated and before.probability < 1
            if is_new:
                is_scored = before is not None and before.decision == _SCORE
                if decision.decision == _SCORE and decision.rule is not None and not is_scored:
                    self._budgets.take(decision.rule, (key, name))
                rows.append(
                    (
                        *key,
                        name,
                        revision,
                        metric.metric.metric_name,
                        metric.digest,
                        *decision[:-1],
                        self._store.now(),
                    )
                )
            if decision.decision != _SCORE:
                left_out.add(place)
        self._left_out[key, index] = frozenset(left_out)
        return len(left_out) < len(turns)

    def _decide(
        self, of: Sequence[int], draws: _Draws, facts: Sequence[_Facts], place: int
    ) -> Decision:
        """Return the decision by the rule with the largest probability."""
        unit, draw = draws.of("turn")
        best = Decision(None, unit, 0.0, draw, _UNCOVERED, "no_rule")
        for number in of:
            session = self._rules[number].unit == "session"
            mine = facts if session else facts[place : place + 1]
            if not any(number < len(one.where) and one.where[number] for one in mine):
                continue
            found = self._by_rule(number, draws, mine)
            if found.probability >= best.probability and (found.probability or best.rule is None):
                best = found
        return best

    def _by_rule(self, number: int, draws: _Draws, facts: Sequence[_Facts]) -> Decision:
        """Return the decision by one rule, given the facts that meet its conditions."""
        rule = self._rules[number]
        held = (
            at for at in range(len(rule.always)) if any(one.always[number][at] for one in facts)
        )
        if self._budgets.spent(rule):
            probability, reason = 0.0, "budget"
        elif (always := next(held, None)) is not None:
            probability, reason = 1.0, f"always:{always}"
        else:
            probability, reason = self._budgets.rate(rule), "rate"
        unit, draw = draws.of(rule.unit or "turn")
        decision = _SCORE if draw < probability else _SKIP if probability else _UNCOVERED
        return Decision(rule.name, unit, probability, draw, decision, reason)

    def _known(self, cases: Sequence[PendingCase]) -> Mapping[tuple[TurnKey, int, str], Decision]:
        found = {}
        ids = [one.identity.eval_id for one in cases]
        for row in self._store.large_rows(_KNOWN, {"ids": ids}):
            *key, revision, digest = row[:6]
            found[(tuple(key), revision, digest)] = Decision(*row[6:])
        return found

    def _facts(self, cases: Sequence[PendingCase]) -> Mapping[TurnKey, _Facts]:
        query, _ = facts_query(self._rules)
        found: dict[TurnKey, _Facts] = {}
        ids = [one.identity.eval_id for one in cases]
        for app, name, eval_id, turn, *held in self._store.large_rows(query, {"ids": ids}):
            wheres: list[bool] = []
            always: list[list[bool]] = []
            for rule in self._rules:
                first, held = held[: 1 + len(rule.always)], held[1 + len(rule.always) :]
                wheres.append(first[0])
                always.append(first[1:])
            found[app, name, eval_id, turn] = _Facts(wheres, always)
        return found


def facts_query(rules: Sequence[ScoreRule]) -> tuple[str, int]:
    """Return a query over the turns of the sessions $ids, and the number of its boolean columns at the end.

    For each rule, there is a column for its `where`, then one for each condition of its `always`.
    """
    columns = []
    for rule in rules:
        where = [condition(name, value, where="score") for name, value in rule.where.items()]
        columns += [" AND ".join(where) or "TRUE", *(_held(one) for one in rule.always)]
    selected = "".join(f", coalesce({one}, false)" for one in columns)
    return sql(__name__, "turn_facts").format(conditions=selected), len(columns)


def _held(given: Condition) -> str:
    """Return a condition as SQL over the columns of `turn_facts`."""
    parts = []
    if given.error is not None:
        failed = "(status = 'error' OR failed_calls > 0)"
        parts.append(failed if given.error else f"NOT {failed}")
    if given.negative_feedback is not None:
        parts.append("complaints > 0" if given.negative_feedback else "complaints = 0")
    bounds: Mapping[str, Any] = {
        "latency_ms": given.slower_than_ms,
        "cost_usd": given.costlier_than_usd,
        "tool_count": given.more_steps_than,
    }
    parts += [
        f"{column} > {float(value)!r}" for column, value in bounds.items() if value is not None
    ]
    if given.failed:
        parts.append(f"list_contains(failed_metrics, {sql_text(given.failed)})")
    return f"({' AND '.join(parts)})"


_KNOWN: Final = """
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest,
       rule, unit, probability, draw, decision, reason,
       EXISTS (FROM feedback f WHERE f.eval_id = d.eval_id AND NOT f.positive AND f.landed_at > d.decided_at)
FROM latest_decisions d WHERE eval_id IN $ids::VARCHAR[]
"""
