"""The turns of a watch, by session, in the order in which sessions began."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime, time, timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.estimates.scope import Scope, Signal
from evaltap.evaluator.analysis.estimates.turns import COMMON, MEDIAN, Turns, choose_turns, quantile
from evaltap.evaluator.analysis.stats.detector import BadTurns
from evaltap.evaluator.analysis.stats.estimate import Cell
from evaltap.evaluator.cases.identity import is_about
from evaltap.evaluator.monitoring.measures import (
    CAP_SHARE,
    CAP_TIMES,
    Found,
    is_good,
    mean_of,
    signal_of,
    unit_of,
)
from evaltap.evaluator.monitoring.rules import start_of, where_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import Watch

EVERYTHING: Final = datetime.min
NOTHING: Final = datetime.max
LEAST_DAYS: Final = 7
LEAST_SESSIONS: Final = 50
"""A baseline contains at least so many days and sessions."""


class Changes(NamedTuple):
    """The data that an evaluation must read again."""

    since: datetime = EVERYTHING
    """UTC, without a time zone: turns that started earlier are unchanged since the last evaluation."""
    versions: frozenset[tuple[str, str]] = frozenset()
    """The metrics of new scores and decisions, with their digests."""
    newest: datetime | None = None
    """The start of the newest turn in the store."""
    scored: datetime | None = None
    """The start of the newest turn that has a new score or decision."""


class ChangeFinder:
    """Compares a store with its previous state: new rows by their order, deleted ones by their number."""

    def __init__(self) -> None:
        self._before: Mapping[str, Any] | None = None

    def find(self, reader: StoreReader) -> Changes:
        """Return what is new since the last call; in the first call, everything is."""
        (now,) = reader.records(_STATE)
        before, self._before = self._before, now
        newest = now["newest"]
        if before is None or before["starts"] != now["starts"]:
            return Changes(newest=newest)
        marks = {name: before[name] for name in _MARKS}
        (added,) = reader.records(_ADDED, marks)
        if any(now[name] != before[name] + added[name] for name in added):
            return Changes(newest=newest)
        if not any(added.values()):
            return Changes(NOTHING, newest=newest)
        ((since, newest_scored),) = reader.rows(_CHANGED, marks)
        scored = {name: before[name] for name in ("scored_at", "decided_at")}
        versions = frozenset(reader.rows(_VERSIONS, scored))
        return Changes(since or NOTHING, versions, newest, newest_scored)


_MARKS: Final = ("landed_seq", "scored_at", "decided_at", "feedback_at")

_STATE: Final = """
SELECT
  (SELECT count(*) FROM turns) AS turns,
  (SELECT coalesce(max(landed_seq), 0) FROM turns) AS landed_seq,
  (SELECT max(started_at) FROM turns) AS newest,
  (SELECT count(*) FROM turn_scores) AS turn_scores,
  (SELECT coalesce(max(scored_at), TIMESTAMP '0001-01-01') FROM turn_scores) AS scored_at,
  (SELECT count(*) FROM sampling_decisions) AS decisions,
  (SELECT coalesce(max(decided_at), TIMESTAMP '0001-01-01') FROM sampling_decisions) AS decided_at,
  (SELECT count(*) FROM feedback) AS feedback,
  (SELECT coalesce(max(landed_at), TIMESTAMP '0001-01-01') FROM feedback) AS feedback_at,
  (SELECT count(*) FROM watch_starts) AS starts
"""

_ADDED: Final = """
SELECT
  (SELECT count(*) FROM turns WHERE landed_seq > $landed_seq) AS turns,
  (SELECT count(*) FROM turn_scores WHERE scored_at > $scored_at) AS turn_scores,
  (SELECT count(*) FROM sampling_decisions WHERE decided_at > $decided_at) AS decisions,
  (SELECT count(*) FROM feedback WHERE landed_at > $feedback_at) AS feedback
"""

# A revision may have started at another time than the previous one.
_CHANGED: Final = f"""
WITH fresh AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id FROM turn_scores WHERE scored_at > $scored_at
  UNION SELECT app_name, eval_set_id, eval_id, invocation_id
  FROM sampling_decisions WHERE decided_at > $decided_at
  UNION SELECT app_name, eval_set_id, eval_id, invocation_id
  FROM turns WHERE landed_seq > $landed_seq AND turn_revision > 1
)
SELECT min(started_at), max(started_at) FILTER (scored) FROM (
  SELECT started_at, false AS scored FROM turns WHERE landed_seq > $landed_seq
  UNION ALL
  SELECT started_at, true FROM turns SEMI JOIN fresh USING (app_name, eval_set_id, eval_id, invocation_id)
  UNION ALL
  SELECT t.started_at, false FROM turns t JOIN feedback f ON {is_about("f", "t")}
  WHERE f.landed_at > $feedback_at
)
"""

_VERSIONS: Final = """
SELECT metric_name, metric_digest FROM turn_scores WHERE scored_at > $scored_at
UNION SELECT metric_name, metric_digest FROM sampling_decisions WHERE decided_at > $decided_at
"""

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
SELECT {value} AS value, session, eval_id, invocation_id, started_at, 1 / probability AS weight,
       if($good, 1 - part, part) AS bad, amount
FROM (
  SELECT *, coalesce(has::DOUBLE, 0) AS amount, greatest(0, least(1, amount / $largest)) AS part FROM {turns}
)
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
    """UTC, without a time zone: the end of that baseline, as far as it has one."""
    largest: float = 1.0
    """For learned means: larger values count as much as this one."""

    def holds(self, changes: Changes, metric: str) -> bool:
        """Return whether the rules remain the same after some changes."""
        others = {digest for name, digest in changes.versions if name == metric} - {self.digest}
        return not others and changes.since >= self.limit_until


class WatchedTurn(NamedTuple):
    """One turn: its weight, its value, and how bad it is."""

    value: str | None
    """The value of the slice."""
    session: int
    eval_id: str
    turn: str
    """The invocation id."""
    started_at: datetime
    weight: float
    bad: float
    """0 or 1; for means, from 0 to 1."""
    amount: float
    """Whether it has the signal, 0 or 1; for means, its value."""


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
            sum(turn.weight * turn.bad for turn in counted),
            sum(turn.weight for turn in counted),
            self.began.hour,
            self.began.weekday() >= SATURDAY,
        )

    def steps(self, longest: int, *, at_once: bool) -> "Iterator[Step]":
        """Yield what becomes known of the session, and when: each turn at once, or the session at its end."""
        if not at_once:
            yield Step(self.ended, self.began.date(), self.bad(longest))
            return
        day, weekend = self.began.date(), self.began.weekday() >= SATURDAY
        bad, weight, before = 0.0, 0.0, None
        for turn in self.turns[:longest]:
            bad += turn.weight * turn.bad
            weight += turn.weight
            now = BadTurns(bad, weight, self.began.hour, weekend)
            yield Step(turn.started_at, day, now, before)
            before = now


class Step(NamedTuple):
    """What becomes known of a session at a time."""

    at: datetime
    day: date
    session: BadTurns
    before: BadTurns | None = None
    """What was known of the session already."""


SATURDAY: Final = 5
_LATE: Final = frozenset({"negative_feedback"})
"""Signals of a turn that are known long after it."""


def counts_at_once(watch: Watch) -> bool:
    """Return whether a finished turn counts at once, instead of when its session has ended.

    Errors, latency and cost are final with the turn, and so is what a fixed limit counts.
    """
    return watch.has_limit or not (signal_of(watch).of_metric or watch.signal in _LATE)


def quantiles_of(watch: Watch) -> tuple[float | None, ...]:
    """Return the baseline quantiles above which a learning watch counts turns; (None,) if it uses none.

    The 95th percentile reveals a tail that has grown; the median reveals sooner that all turns have changed.
    """
    return (COMMON, MEDIAN) if signal_of(watch).limit else (None,)


def counting_of(store: StoreReader, watch: Watch, quantile: float | None = None) -> Counting | None:
    """Return the counting rules for a watch, from all of its turns; None if there are no turns."""
    signal = signal_of(watch)
    if signal.limit:
        return _above(store, signal.limit, COMMON if quantile is None else quantile, watch)
    if not signal.of_metric and unit_of(watch) and not watch.has_limit:
        found = _above(store, signal.has, CAP_SHARE, watch)
        if found is None or found.limit is None:
            return None
        return found._replace(limit=None, largest=CAP_TIMES * found.limit or 1.0)
    if not signal.of_metric:
        return Counting(None)
    with choose_turns(store, _scope(store, watch, _ALL), [], signal) as turns:
        ((digest,),) = turns.rows("SELECT arg_max(metric_digest, scored_at) FROM {turns}")
    return None if digest is None else Counting(digest)


def turns_of(
    store: StoreReader,
    watch: Watch,
    counting: Counting,
    by: Sequence[str] = (),
    within: Mapping[str, str] = _ALL,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> AbstractContextManager[Turns]:
    """Return the turns of a watch, by slices, within a period of aware times.

    `within` restricts the turns to some slices.
    """
    scope = _scope(store, watch, within, since, until, counting.digest)
    return choose_turns(store, scope, by, signal_of(watch), limit=counting.limit)


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
    named = [by] if by else []
    with turns_of(store, watch, counting, named, within, since=since, until=until) as turns:
        given = {"good": is_good(watch), "largest": counting.largest}
        rows = turns.rows(_TURNS, given, value="by_0" if by else "NULL")
    return [WatchedTurn(*row) for row in rows]


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
    return Scope(watch.metric, digests, where=where, since=since, until=until, traffic=True)


def sessions_of(turns: Iterable[WatchedTurn]) -> list[WatchedSession]:
    """Return the sessions of each day in the order in which they began, which is that of the turns."""
    days = groupby(turns, key=lambda turn: (turn.session, turn.started_at.date()))
    found = [list(many) for _, many in days]
    return [WatchedSession(many[0].started_at, many[-1].started_at, many) for many in found]


def cells_of(turns: Iterable[WatchedTurn]) -> tuple[Cell, ...]:
    """Return the turns of a session as cells for the estimator of a share."""
    counts = Counter((1 / turn.weight, turn.amount > 0) for turn in turns)
    found = []
    for chance in sorted({chance for chance, _ in counts}):
        has = counts[chance, True]
        found.append(Cell(chance, has + counts[chance, False], has, has))
    return tuple(found)


def mean_of_turns(
    sessions: Iterable[Sequence[WatchedTurn]], *, fewest: float = 0.0
) -> Found | None:
    """Return the mean of the values of turns, by session; None with fewer effective sessions."""
    listed = [many for many in sessions if many]
    largest = max((turn.amount for many in listed for turn in many), default=0.0)
    sums = (
        (sum(one.weight * one.amount for one in many), sum(one.weight for one in many), len(many))
        for many in listed
    )
    return mean_of(sums, largest, fewest=fewest)


def has_ended(session: WatchedSession, until: datetime | None, quiet: timedelta) -> bool:
    """Return whether a session has had no turn for some time."""
    return until is None or session.ended <= until - quiet


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
    """Return counting rules for turns above a weighted quantile of a column in the watch's baseline."""
    scope = _scope(store, watch, _ALL)
    with choose_turns(store, scope, [], Signal(column, f"{column} IS NOT NULL")) as turns:
        least = {"days": watch.baseline_days, "sessions": LEAST_SESSIONS}
        ((ends,),) = turns.rows(_BASELINE_ENDS, least)
        until = NOTHING if ends is None else datetime.combine(ends, time())
        limit = quantile(turns, share, until)
    return None if limit is None else Counting(None, limit, until)


# As `_baseline` of a learned watch, whose turns count at once.
_BASELINE_ENDS: Final = """
SELECT min(day) FROM (
  SELECT started_at::DATE AS day, count(DISTINCT session) AS sessions,
         sum(sessions) OVER (ORDER BY day) - sessions AS before,
         row_number() OVER (ORDER BY day) - 1 AS days
  FROM {turns} WHERE counts AND started_at IS NOT NULL GROUP BY day
)
WHERE days >= $days AND before >= $sessions
"""
