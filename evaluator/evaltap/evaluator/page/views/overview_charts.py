"""The charts of the overview: turns, pass rate, cost and latency over a span of time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from evaltap.evaluator.page import plots, traffic
from evaltap.evaluator.page.traffic import Latency, MetricRate, ScoreBucket, Span, TurnBucket
from evaltap.evaluator.reports.charts import duration, money
from evaltap.evaluator.store.queries import StoreReader

_ALARMS: Final = """
SELECT watch, min(turned_at) FROM alerts
WHERE status = 'firing' AND turned_at >= $start AND turned_at < $until
GROUP BY alert_id, watch ORDER BY 2
"""


def charts(
    span: Span,
    rows: Sequence[TurnBucket],
    scores: Sequence[ScoreBucket],
    chosen: MetricRate | None,
    effects: Mapping[str, float],
    latencies: Mapping[datetime | None, Latency],
    usual: float | None,
    alarms: Sequence[plots.Mark],
) -> tuple[plots.Chart, ...]:
    """Return the charts that have data."""
    turns, errors, costs = ([0.0] * span.buckets for _ in range(3))
    for row in rows:
        place = span.place(row.bucket)
        turns[place] += row.turns
        errors[place] += row.errors
        costs[place] += row.cost_usd or 0
    times = span.times()
    made = [
        plots.bars(
            "Turns", [plots.Point(at, n, part=e) for at, n, e in zip(times, turns, errors, strict=True)],
            words="turns", part="crashed", say=f"{sum(turns):,.0f} turns, {sum(errors):,.0f} of them crashed",
            marks=() if chosen else alarms,
        )
    ]  # fmt: skip
    if chosen:
        made.append(_pass_rate(span, scores, chosen, effects, usual, alarms))
    if any(costs):
        points = [plots.Point(at, round(one, 6)) for at, one in zip(times, costs, strict=True)]
        made.append(
            plots.bars("Cost", points, words="cost", say=f"{money(sum(costs))} in all", edge=money)
        )
    if latencies:
        made.append(_latency(span, latencies))
    return tuple(made)


def _pass_rate(
    span: Span,
    scores: Sequence[ScoreBucket],
    chosen: MetricRate,
    effects: Mapping[str, float],
    usual: float | None,
    alarms: Sequence[plots.Mark],
) -> plots.Chart:
    by_place: dict[int, list[ScoreBucket]] = {}
    for row in scores:
        if row.digest == chosen.digest and row.metric == chosen.metric:
            by_place.setdefault(span.place(row.bucket), []).append(row)
    points = []
    for place, at in enumerate(span.times()):
        rate = traffic.share(by_place.get(place, []), effects.get(chosen.digest, 1.0))
        points.append(
            plots.Point(at, rate.value, rate.interval.low, rate.interval.high)
            if rate
            else plots.Point(at, None)
        )
    rate = chosen.rate
    say = (
        f"{chosen.metric}: {100 * rate.value:.1f} % passed"
        if rate
        else f"{chosen.metric}: not evaluated"
    )
    dashed = "" if usual is None else f", dashed: period before, {100 * usual:.1f} %"
    return plots.lines(
        f"Pass rate · {chosen.metric}", [("pass rate", points)],
        say=f"{say}; band: 95 % interval{dashed}",
        low=0.0, high=1.0, form=lambda share: f"{100 * share:.0f} %", dashed=usual, marks=alarms,
        value=f"band: 95 % interval{dashed}",
    )  # fmt: skip


def alarms_in(reader: StoreReader, span: Span) -> list[plots.Mark]:
    """Return when alarms began in a span."""
    return [
        plots.Mark((at - span.start) / (span.end - span.start), f"alarm {watch}: {at:%H:%M}")
        for watch, at in reader.rows(_ALARMS, {"start": span.start, "until": span.end})
    ]


def _latency(span: Span, latencies: Mapping[datetime | None, Latency]) -> plots.Chart:
    by_bucket = [(at, latencies.get(at)) for at in span.times()]
    p95 = [plots.Point(at, found.p95 / 1000 if found else None) for at, found in by_bucket]
    median = [plots.Point(at, found.median / 1000 if found else None) for at, found in by_bucket]
    return plots.lines(
        "Latency", [("p95", p95), ("median", median)], low=0.0,
        form=lambda seconds: duration(1000 * seconds),
        say="median and 95th percentile of a turn's latency",
    )  # fmt: skip
