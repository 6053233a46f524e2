"""The turns of a watch, by session, in the order in which sessions began."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.quantiles import COMMON, MEDIAN, quantile
from evaltap.evaluator.analysis.estimates.scope import SIGNALS, Scope, Signal
from evaltap.evaluator.analysis.estimates.turns import Turns, choose_turns
from evaltap.evaluator.analysis.stats.detector import BadTurns
from evaltap.evaluator.analysis.stats.sample import Cell
from evaltap.evaluator.monitoring.changes import EVERYTHING, Changes
from evaltap.evaluator.monitoring.rules import start_of, where_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import Watch

MOST_VALUES: Final = 20
LEAST_SHARE: Final = 0.02
OTHER: Final = "other"
EXAMPLES: Final = 10
"""The maximum number of cases that an alarm names."""
MOST_POINTS: Final = 40
"""The number of past days to whose beginning an evaluation can return; earlier changes require reading all
turns."""

_ALL: Final[Mapping[str, str]] = {}
_TURNS: Final = """
SELECT {value} AS value, session, eval_id, invocation_id, started_at, 1 / probability, has
FROM {turns}
WHERE counts AND started_at IS NOT NULL
ORDER BY min(started_at) OVER (PARTITION BY session, started_at::DATE), session, started_at, invocation_id
"""


class Counting(NamedTuple):
    """The rules which turns of a watch count and which are bad, derived from all turns at an evaluation."""

    digest: str | None
    """The newest version of the watch's metric."""
    limit: float | None = None
    """For slow, costly and long: a quantile of the baseline's turns."""
    limit_until: datetime = EVERYTHING
    """UTC, without a time zone: the end of that baseline."""

    def holds(self, changes: Changes, metric: str) -> bool:
        """Return whether the rules remain the same after some changes."""
        others = {digest for name, digest in changes.versions if name == metric} - {self.digest}
        return not others and changes.since >= self.limit_until


class WatchedTurn(NamedTuple):
    """One turn: its weight, and whether it is bad."""

    value: str | None
    """The value of the slice."""
    session: int
    eval_id: str
    turn: str
    """The invocation id."""
    started_at: datetime
    weight: float
    bad: bool


class WatchedSession(NamedTuple):
    """A session of a day, by its first turns; after midnight (UTC), a continued session is a new one.

    So a past day is closed: later turns do not change its sessions.
    """

    began: datetime
    ended: datetime
    turns: Sequence[WatchedTurn]

    def bad(self, longest: int) -> BadTurns:
        """Return the counted turns of the session."""
        counted = self.turns[:longest]
        return BadTurns(
            sum(turn.weight for turn in counted if turn.bad), sum(turn.weight for turn in counted)
        )


def quantiles_of(watch: Watch) -> tuple[float | None, ...]:
    """Return the baseline quantiles above which a learning watch counts turns; (None,) if it uses none.

    The 95th percentile reveals a tail that has grown; the median reveals sooner that all turns have changed.
    """
    return (COMMON, MEDIAN) if SIGNALS[watch.signal].limit else (None,)


def counting_of(store: StoreReader, watch: Watch, quantile: float | None = None) -> Counting | None:
    """Return the counting rules for a watch, from all of its turns; None if there are no turns."""
    signal = SIGNALS[watch.signal]
    if signal.limit:
        return _above(store, signal.limit, COMMON if quantile is None else quantile, watch)
    if not signal.of_metric:
        return Counting(None)
    with choose_turns(store, _scope(store, watch, _ALL), [], signal) as turns:
        ((digest,),) = turns.rows("SELECT arg_max(metric_digest, scored_at) FROM {turns}")
    return None if digest is None else Counting(digest)


def turns_of(
    store: StoreReader,
    watch: Watch,
    counting: Counting,
    by: str = "",
    within: Mapping[str, str] = _ALL,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> AbstractContextManager[Turns]:
    """Return the turns of a watch, by a slice, within a period of aware times.

    `within` restricts the turns to some slices.
    """
    scope = _scope(store, watch, within, since, until, counting.digest)
    signal = SIGNALS[watch.signal]
    return choose_turns(store, scope, [by] if by else [], signal, limit=counting.limit)


def read_turns(
    store: StoreReader,
    watch: Watch,
    counting: Counting,
    by: str = "",
    within: Mapping[str, str] = _ALL,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[WatchedTurn]:
    """Return the counted turns of a watch, with their value of the slice `by`.

    Sessions are in the order in which they began.
    """
    with turns_of(store, watch, counting, by, within, since=since, until=until) as turns:
        rows = turns.rows(_TURNS, value="by_0" if by else "NULL")
    good = watch.signal == "pass_rate"
    return [
        WatchedTurn(value, session, eval_id, turn, started, weight, bool(has) != good)
        for value, session, eval_id, turn, started, weight, has in rows
    ]


def _scope(
    store: StoreReader,
    watch: Watch,
    within: Mapping[str, str],
    since: datetime | None = None,
    until: datetime | None = None,
    digest: str | None = None,
) -> Scope:
    begins = start_of(store, watch.name)
    since = max((one for one in (begins, since) if one is not None), default=None)
    digests = () if digest is None else (digest,)
    where = where_of(watch, within)
    return Scope(metric=watch.metric, digests=digests, where=where, since=since, until=until)


def sessions_of(turns: Iterable[WatchedTurn]) -> list[WatchedSession]:
    """Return the sessions of each day in the order in which they began."""
    found: dict[tuple[int, date], list[WatchedTurn]] = {}
    for turn in turns:
        found.setdefault((turn.session, turn.started_at.date()), []).append(turn)
    return [
        WatchedSession(many[0].started_at, max(turn.started_at for turn in many), many)
        for many in found.values()
    ]


def cells_of(session: WatchedSession, *, good: bool) -> tuple[Cell, ...]:
    """Return a session as cells for estimators; for a pass rate, passed turns count."""
    counts = Counter((1 / turn.weight, turn.bad != good) for turn in session.turns)
    found = []
    for chance in sorted({chance for chance, _ in counts}):
        has = counts[chance, True]
        found.append(Cell(chance, has + counts[chance, False], has, has))
    return tuple(found)


def has_ended(session: WatchedSession, until: datetime | None, quiet: timedelta) -> bool:
    """Return whether a session has ended; a session in the future, from a fast clock, counts as ended."""
    return until is None or not until - quiet < session.ended <= until


def by_value(turns: Sequence[WatchedTurn], until: date) -> Mapping[str, Sequence[WatchedTurn]]:
    """Return turns by slice value; values not among the most frequent before a day become `other`."""
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


def _above(store: StoreReader, column: str, share: float, watch: Watch) -> Counting | None:
    """Return counting rules for turns above a weighted quantile of a column in the baseline."""
    begins = start_of(store, watch.name)
    ((first,),) = store.rows(
        "SELECT min(started_at)::DATE FROM latest_turns WHERE started_at >= $begins",
        {"begins": (begins or datetime.min.replace(tzinfo=UTC)).replace(tzinfo=None)},
    )
    if first is None:
        return None
    until = datetime.combine(first, time()) + timedelta(days=watch.baseline_days)
    where = where_of(watch, _ALL)
    scope = Scope(since=begins, until=until.replace(tzinfo=UTC), where=where)
    with choose_turns(store, scope, [], Signal(column, f"{column} IS NOT NULL")) as turns:
        limit = quantile(turns, share)
    return None if limit is None else Counting(None, limit, until)
