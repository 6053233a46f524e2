"""The turns that a watch looks at, by session, in the order in which sessions began."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.estimates.quantiles import COMMON, measure
from evaltap.evaluator.estimates.scope import SIGNALS, Scope
from evaltap.evaluator.estimates.turns import choose_turns
from evaltap.evaluator.monitoring.rules import where_of
from evaltap.evaluator.monitoring.starts import start_of
from evaltap.evaluator.stats.detector import Bad
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import Watch

MOST_VALUES: Final = 20
LEAST_SHARE: Final = 0.02
OTHER: Final = "other"

_ALL: Final[Mapping[str, str]] = {}
_TURNS: Final = """
SELECT {value} AS value, session, eval_id, invocation_id, started_at, 1 / probability, has
FROM estimate_turns
WHERE counts AND started_at IS NOT NULL
  AND metric_digest IS NOT DISTINCT FROM (
    SELECT arg_max(metric_digest, scored_at) FROM estimate_turns
  )
ORDER BY min(started_at) OVER (PARTITION BY session), session, started_at, invocation_id
"""


class WatchedTurn(NamedTuple):
    """One turn: what it stands for, and whether it is bad."""

    value: str | None
    """Of the slice."""
    session: int
    eval_id: str
    turn: str
    """The invocation id."""
    started_at: datetime
    weight: float
    bad: bool


class WatchedSession(NamedTuple):
    """A session, by its first turns."""

    began: datetime
    ended: datetime
    turns: Sequence[WatchedTurn]

    def bad(self, longest: int) -> Bad:
        """Return what counts of the session."""
        counted = self.turns[:longest]
        return Bad(
            sum(turn.weight for turn in counted if turn.bad), sum(turn.weight for turn in counted)
        )


def read_turns(
    store: StoreReader, watch: Watch, by: str = "", within: Mapping[str, str] = _ALL
) -> list[WatchedTurn]:
    """Return the turns that count for a watch, of its metric's newest version, with their slice `by`.

    Sessions come in the order in which they began.  `within` takes only the turns of some slices.
    """
    signal, where = SIGNALS[watch.signal], where_of(watch, within)
    limit = None
    if signal.limit:
        limit = _common(store, signal.limit, watch, where)
        if limit is None:
            return []
    scope = Scope(metric=watch.metric, where=where, since=start_of(store, watch.name))
    choose_turns(store, scope, [by] if by else [], signal, limit=limit)
    rows = store.rows(_TURNS.format(value="by_0" if by else "NULL"))
    good = watch.signal == "pass_rate"
    return [
        WatchedTurn(value, session, eval_id, turn, started, weight, bool(has) != good)
        for value, session, eval_id, turn, started, weight, has in rows
    ]


def sessions_of(turns: Iterable[WatchedTurn]) -> list[WatchedSession]:
    """Return the sessions in the order in which they began."""
    found: dict[int, list[WatchedTurn]] = {}
    for turn in turns:
        found.setdefault(turn.session, []).append(turn)
    return [
        WatchedSession(many[0].started_at, max(turn.started_at for turn in many), many)
        for many in found.values()
    ]


def by_value(turns: Sequence[WatchedTurn], until: date) -> Mapping[str, Sequence[WatchedTurn]]:
    """Return turns by the value of their slice: the most frequent ones before a day, the rest as other."""
    weights: Counter[str] = Counter()
    for turn in turns:
        if turn.value is not None and turn.started_at.date() < until:
            weights[turn.value] += turn.weight  # type: ignore[assignment]  # a Counter of floats
    whole = sum(weights.values())
    kept = {value for value, n in weights.most_common(MOST_VALUES) if n >= LEAST_SHARE * whole}
    found: defaultdict[str, list[WatchedTurn]] = defaultdict(list)
    for turn in turns:
        if turn.value is not None:
            found[turn.value if turn.value in kept else OTHER].append(turn)
    return found


def _common(store: StoreReader, column: str, watch: Watch, where: str) -> float | None:
    """Return the weighted 95th percentile of a column in the baseline."""
    begins = start_of(store, watch.name)
    ((first,),) = store.rows(
        "SELECT min(started_at)::DATE FROM latest_turns WHERE started_at >= $begins",
        {"begins": (begins or datetime.min.replace(tzinfo=UTC)).replace(tzinfo=None)},
    )
    if first is None:
        return None
    until = datetime(first.year, first.month, first.day, tzinfo=UTC) + timedelta(
        days=watch.baseline_days
    )
    scope = Scope(since=begins, until=until, where=where)
    found = measure(store, column, scope, shares=[COMMON])
    return None if found is None else found.quantiles[0].value
