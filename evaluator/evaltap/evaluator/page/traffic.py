"""Read a span of time from the summaries: turns, rates with intervals, quantiles, tools."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import newest_verdicts
from evaltap.evaluator.analysis.stats.difference import difference, holm
from evaltap.evaluator.analysis.stats.estimate import Estimate, estimate, kish
from evaltap.evaluator.analysis.stats.rate import Interval, Rate, t95, wilson_of
from evaltap.evaluator.reports.model import SEVERITY
from evaltap.evaluator.store.queries import StoreReader

SPANS: Final = {
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=5)),
    "24h": (timedelta(hours=24), timedelta(minutes=15)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
    "30d": (timedelta(days=30), timedelta(hours=6)),
}
"""The selectable spans, with the widths of their buckets."""
_WIDTHS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 120, 360, 1440))
_MOST_BUCKETS: Final = 120
_COUNTED: Final = ("passed", "failed", "crashed")
_BIN: Final = 1.05


@dataclass(frozen=True, slots=True)
class Span:
    """A span in buckets of some width; times are in UTC without a time zone, as in the tables."""

    name: str
    """The name in `SPANS`; empty for a span with chosen ends."""
    start: datetime
    end: datetime
    width: timedelta

    @property
    def address(self) -> dict[str, str]:
        """The parameters of the span in links to the overview."""
        if self.name:
            return {"range": self.name}
        return {"from": f"{self.start:%Y-%m-%dT%H:%M}", "to": f"{self.end:%Y-%m-%dT%H:%M}"}

    @property
    def unit(self) -> str:
        """The summaries to read."""
        return "hour" if self.width >= timedelta(hours=1) else "minute"

    @property
    def buckets(self) -> int:
        return -(-(self.end - self.start) // self.width)

    @property
    def before(self) -> "Span":
        """The preceding span of the same length."""
        length = self.end - self.start
        return Span(self.name, self.start - length, self.start, self.width)

    def place(self, at: datetime) -> int:
        """Return the index of a time's bucket."""
        return min(self.buckets - 1, max(0, (at - self.start) // self.width))

    def times(self) -> list[datetime]:
        """Return the beginning of each bucket."""
        return [self.start + number * self.width for number in range(self.buckets)]

    def parameters(self, app: str) -> dict[str, object]:
        """Return the parameters of statements about the span."""
        return {"start": self.start, "until": self.end, "app": app}


def span_between(start: datetime, end: datetime) -> Span:
    """Return a span with the given ends, in whole buckets, as many as a chart can show."""
    length = max(end - start, _WIDTHS[0])
    width = next((one for one in _WIDTHS if length <= _MOST_BUCKETS * one), _WIDTHS[-1])
    return Span("", _whole(start, width), _whole(end + width - timedelta.resolution, width), width)


def _whole(at: datetime, width: timedelta) -> datetime:
    day = datetime(at.year, at.month, at.day)
    return day + (at - day) // width * width


def shortest_with(first: datetime, end: datetime) -> str:
    """Return the shorter of `1h` and `6h` that reaches back to a time, otherwise `24h`.

    Otherwise, a store that was started this morning would be one bar at the edge of an empty day.
    """
    return next((name for name in ("1h", "6h") if span_of(name, end).start <= first), "24h")


def span_of(name: str, end: datetime) -> Span:
    """Return the named span that ends with the bucket of a time."""
    length, width = SPANS.get(name, SPANS["24h"])
    last = _whole(end, width) + width
    return Span(name if name in SPANS else "24h", last - length, last, width)


@dataclass(frozen=True, slots=True)
class MetricRate:
    """The verdicts of a metric on turns, and its pass rate for all traffic."""

    metric: str
    digest: str
    counts: Mapping[str, int]
    """Turns by status."""
    rate: Rate | None
    mean: float | None


def _drawn(summary: str, span: Span) -> str:
    """Return rows of a summary, grouped into the buckets of the chart."""
    return f"""(
      SELECT * REPLACE (time_bucket($width, bucket, $start) AS bucket), bucket AS summed_at
      FROM {summary}_by_{span.unit}
      WHERE bucket >= $start AND bucket < $until AND ($app::VARCHAR = '' OR app_name = $app)
    )"""


class TurnBucket(NamedTuple):
    bucket: datetime
    turns: int
    errors: int
    weight: float
    cost_usd: float | None
    priced: float
    """The turns of the traffic whose cost is known, as the recorded ones stand for them."""


def turn_buckets(reader: StoreReader, span: Span, app: str) -> list[TurnBucket]:
    """Return turns, errors, weights and costs by bucket."""
    rows = reader.rows(
        f"""SELECT bucket, sum(turns)::BIGINT, sum(errors + incomplete)::BIGINT, sum(weight), sum(cost_usd),
                   coalesce(sum(priced), 0)
            FROM {_drawn("turns", span)} GROUP BY bucket ORDER BY bucket""",
        span.parameters(app) | {"width": span.width},
    )
    return [TurnBucket(*row) for row in rows]


def turn_count(reader: StoreReader, span: Span, app: str) -> int:
    ((turns,),) = reader.rows(
        f"""SELECT coalesce(sum(turns), 0)::BIGINT FROM turns_by_{span.unit}
            WHERE bucket >= $start AND bucket < $until AND ($app::VARCHAR = '' OR app_name = $app)""",
        span.parameters(app),
    )
    return int(turns)


class LeftOut(NamedTuple):
    """The turns, or the calls of a tool, that sampling left out, as the recorded ones stand for them."""

    n: float = 0.0
    errors: float = 0.0
    cost_usd: float = 0.0


def left_out(reader: StoreReader, span: Span, app: str) -> dict[tuple[str, str], LeftOut]:
    """Return what sampling left out: by `turns` or `calls`, and by tool; nothing without sampling."""
    rows = reader.rows(
        f"""SELECT kind, coalesce(tool_name, ''), sum(n), sum(errors), coalesce(sum(cost_usd), 0)
            FROM left_out_by_{span.unit}
            WHERE bucket >= $start AND bucket < $until AND ($app::VARCHAR = '' OR app_name = $app)
            GROUP BY ALL""",
        span.parameters(app),
    )
    return {(kind, tool): LeftOut(*sums) for kind, tool, *sums in rows}


class ScoreBucket(NamedTuple):
    """The verdicts of a version of a metric in a bucket that have one status."""

    bucket: datetime
    metric: str
    digest: str
    status: str
    turns: int
    weight: float
    squares: float
    """The sum of the squares of their weights."""
    score_sum: float | None
    scored_weight: float


def score_buckets(
    reader: StoreReader, span: Span, app: str, *, by_bucket: bool = True
) -> list[ScoreBucket]:
    """Return verdicts by bucket, metric, version of the metric and status; or all of the span in one."""
    bucket = "bucket" if by_bucket else "$start::TIMESTAMP"
    rows = reader.rows(
        f"""SELECT {bucket}, metric_name, metric_digest, status, sum(n)::BIGINT, sum(w), sum(w2),
                   sum(score_sum), sum(scored_w)
            FROM {_drawn("scores", span)} LEFT JOIN (
              SELECT metric_name, metric_digest, max(started_at) AS last_run
              FROM run_metrics JOIN runs USING (run_id) GROUP BY ALL
            ) USING (metric_name, metric_digest)
            GROUP BY ALL ORDER BY max(summed_at), max(last_run)""",
        span.parameters(app) | {"width": span.width},
    )
    return [ScoreBucket(*row) for row in rows]


def newest_versions(rows: Sequence[ScoreBucket]) -> list[ScoreBucket]:
    """Return the rows of each metric's newest version, so that verdicts of two versions do not mix."""
    newest = {row.metric: row.digest for row in rows}
    return [row for row in rows if newest[row.metric] == row.digest]


class Newest(NamedTuple):
    """The newest verdicts of a metric as `evaltap estimate` sees them, with strata and sessions."""

    estimate: Estimate
    effect: float
    """The variance of their rate over that of independent turns with the same weights, sessions apart."""

    def rate_of(self, rate: Rate) -> Rate:
        """Return a rate of the same traffic with the interval that its sessions and strata allow.

        The rate may be of more turns, or of fewer, than the newest ones: then it has as many sessions for
        each turn, which resemble each other as much.
        """
        mine = self.estimate.rate
        if rate.n == mine.n and math.isclose(rate.value, mine.value, abs_tol=1e-9):
            return mine
        effective = max(rate.effective_n / self.effect, min(rate.effective_n, 1.0))
        sessions = self.estimate.effective_sessions * rate.n / mine.n
        interval = wilson_of(rate.value, effective, t95(max(sessions - 1, 1)))
        return replace(rate, interval=interval, effective_n=effective)


def newest_estimates(reader: StoreReader, span: Span, app: str) -> dict[str, Newest]:
    """Return the estimates from the newest verdicts in a span, by metric digest."""
    found: dict[str, Newest] = {}
    with newest_verdicts(reader, span.start, span.end, app) as turns:
        for (_, digest), profiles in turns.profiles().items():
            known = estimate(profiles)
            if known is not None and isinstance(digest, str):
                found[digest] = Newest(known, kish(profiles) / known.rate.effective_n)
    return found


def rates(rows: Sequence[ScoreBucket], newest: Mapping[str, Newest]) -> list[MetricRate]:
    """Return each metric's rate over the rows."""
    groups: dict[tuple[str, str], list[ScoreBucket]] = {}
    for row in rows:
        groups.setdefault((row.metric, row.digest), []).append(row)
    found = []
    for (name, digest), some in sorted(groups.items()):
        counts: dict[str, int] = {status: 0 for status in SEVERITY}
        for row in some:
            counts[row.status] += row.turns
        weight = sum(row.scored_weight for row in some)
        mean = sum(row.score_sum or 0 for row in some) / weight if weight else None
        rate = share(some, newest.get(digest))
        found.append(MetricRate(name, digest, counts, rate, mean))
    return found


def share(rows: Sequence[ScoreBucket], newest: Newest | None = None) -> Rate | None:
    """Return the weighted share that passed."""
    counted = [row for row in rows if row.status in _COUNTED]
    found = Rate.of_weights(
        sum(row.weight for row in counted if row.status == "passed"),
        sum(row.weight for row in counted),
        sum(row.squares for row in counted),
        sum(row.turns for row in counted),
        "turns",
    )
    return found if found is None or newest is None else newest.rate_of(found)


_SURE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a rate since the previous period; positive if it rose."""

    value: float
    interval: Interval
    word: str
    """better, worse or no significant change."""


def changes(pairs: Sequence[tuple[Rate | None, Rate | None]]) -> list[Change | None]:
    """Compare the rates of a table with those before; None if one is unknown.

    The more rates there are, the more of them differ by chance: if nothing changed, any of them is called
    better or worse with a chance of 5 % (Holm).
    """
    found = {
        place: difference(before, now)
        for place, (before, now) in enumerate(pairs)
        if before is not None and now is not None
    }
    sure = holm([2 * min(one.p_value, 1 - one.p_value) for one in found.values()])
    made: list[Change | None] = [None] * len(pairs)
    for (place, one), p_value in zip(found.items(), sure, strict=True):
        word = (
            "no significant change" if p_value > _SURE else "worse" if one.value > 0 else "better"
        )
        made[place] = Change(-one.value, Interval(-one.interval.high, -one.interval.low), word)
    return made


class Latency(NamedTuple):
    """Quantiles in milliseconds, to within 2.5 %."""

    median: float
    p95: float


def latencies(reader: StoreReader, span: Span, app: str) -> dict[datetime | None, Latency]:
    """Return the latency by bucket, for buckets with turns; the key None is the whole span."""
    rows = reader.rows(
        f"""WITH binned AS (
              SELECT bucket, bin, sum(w) AS w FROM {_drawn("latency", span)}
              GROUP BY GROUPING SETS ((bucket, bin), (bin))),
            added AS (
              SELECT bucket, bin, sum(w) OVER (PARTITION BY bucket ORDER BY bin) AS so_far,
                     sum(w) OVER (PARTITION BY bucket) AS total
              FROM binned)
            SELECT bucket, min(bin) FILTER (so_far >= 0.5 * total),
                   min(bin) FILTER (so_far >= 0.95 * total)
            FROM added GROUP BY bucket""",
        span.parameters(app) | {"width": span.width},
    )
    return {bucket: Latency(_middle(median), _middle(p95)) for bucket, median, p95 in rows}


def _middle(number: int) -> float:
    """Return the middle of a bin in milliseconds."""
    return float(_BIN ** (number + 0.5))


@dataclass(frozen=True, slots=True)
class ToolUse:
    tool: str
    calls: int
    errors: int
    p95_ms: float | None
    left_out: LeftOut

    @property
    def all_calls(self) -> float:
        """The calls of all traffic."""
        return self.calls + self.left_out.n

    @property
    def all_errors(self) -> float:
        """The failed calls of all traffic."""
        return self.errors + self.left_out.errors

    @property
    def error_rate(self) -> float:
        """The share of the calls of all traffic that failed."""
        return self.all_errors / self.all_calls if self.all_calls > 0 else 0.0


def tools(
    reader: StoreReader,
    span: Span,
    app: str,
    others: Mapping[tuple[str, str], LeftOut] | None = None,
) -> list[ToolUse]:
    """Return the called tools, those with most errors first; `others` is what sampling left out."""
    rows = reader.rows(
        f"""WITH binned AS (
              SELECT coalesce(tool_name, '') AS tool, bin, sum(calls)::BIGINT AS calls,
                     sum(errors)::BIGINT AS errors, if(bin IS NULL, 0, sum(calls)) AS timed
              FROM {_drawn("tools", span)} GROUP BY tool, bin),
            added AS (
              SELECT *, sum(timed) OVER (PARTITION BY tool ORDER BY bin NULLS FIRST) AS so_far,
                     sum(timed) OVER (PARTITION BY tool) AS total
              FROM binned)
            SELECT tool, sum(calls)::BIGINT AS calls, sum(errors)::BIGINT AS errors,
                   min(bin) FILTER (so_far >= 0.95 * total)
            FROM added GROUP BY tool ORDER BY errors DESC, calls DESC, tool""",
        span.parameters(app) | {"width": span.width},
    )
    return [
        ToolUse(
            tool,
            calls,
            errors,
            None if p95 is None else _middle(p95),
            (others or {}).get(("calls", tool), LeftOut()),
        )
        for tool, calls, errors, p95 in rows
    ]
