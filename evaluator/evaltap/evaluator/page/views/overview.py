"""The overview: traffic in a span of time, rates with their certainty, and the most frequent failures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from evaltap.evaluator.analysis.filters.language import quoted
from evaltap.evaluator.analysis.traffic import told_of_runs, without_runs
from evaltap.evaluator.ingest.landing.seq_ranges import size
from evaltap.evaluator.page import traffic
from evaltap.evaluator.page.reasons import ReasonCount, TurnCounts, reasons
from evaltap.evaluator.page.request import PageAnswer, PageRequest, link
from evaltap.evaluator.page.traffic import (
    Change,
    Latency,
    LeftOut,
    MetricRate,
    Newest,
    ScoreBucket,
    Span,
    ToolUse,
    TurnBucket,
    newest_estimates,
)
from evaltap.evaluator.pipeline.maintenance.completeness import landed_accounts
from evaltap.evaluator.reports.figures import duration, money
from evaltap.evaluator.reports.html.charts import Chart, Mark, Point, Tile, bars, lines
from evaltap.evaluator.reports.model import SEVERITY
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import shifted, stored_time
from evaltap.schemas.errors import InputError

_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_YEAR: Final = 1990
_LAST_YEAR: Final = 2200


@dataclass(frozen=True, slots=True)
class MetricLine:
    rate: MetricRate
    change: Change | None
    hrefs: Mapping[str, str]
    """Links to the cases of each status."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why cases failed, with its cases."""

    of: ReasonCount
    q: str
    """The filter of the cases, without the words of the reason, which not every reader may see."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The fate of the recorded turns."""

    recorded: int
    landed: int
    dropped: int
    missing: int
    dead: int
    unscored: int


@dataclass(frozen=True, slots=True)
class ToolLine:
    use: ToolUse
    href: str
    error_href: str


@dataclass(frozen=True, slots=True)
class Overview:
    made: bool
    """Whether the summaries are built; without them there is nothing to show yet."""
    landed: bool
    spans: tuple[tuple[str, str], ...]
    app: str
    span: Span | None = None
    apps: tuple[str, ...] = ()
    metric: str = ""
    sampled: bool = False
    effective: float = 0.0
    tiles: tuple[Tile, ...] = ()
    charts: tuple[Chart, ...] = ()
    metrics: tuple[MetricLine, ...] = ()
    reasons: tuple[Reason, ...] = ()
    tools: tuple[ToolLine, ...] = ()
    delivery: Delivery | None = None
    turns: int = 0
    left_out: str = ""
    """A sentence on turns of runs on cases, which do not count."""


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read the overview; its part `live` contains what changes as turns land."""
    data = read(reader, request)
    part = request["part"] == "live"
    return PageAnswer("_overview.html.j2" if part else "overview.html.j2", "Overview", data)


def _usual(chosen: MetricRate | None, before: Iterable[MetricRate]) -> float | None:
    """Return the rate of the chosen metric in the span before."""
    same = [one.rate for one in before if chosen and one.digest == chosen.digest]
    return next((rate.value for rate in same if rate), None)


def read(reader: StoreReader, request: PageRequest) -> Overview:
    """Return the overview of the requested span, application and metric."""
    app = request.exact("app")
    spans = tuple((one, link("/", range=one, app=app)) for one in traffic.SPANS)
    ((made, landed, first, last),) = reader.rows(
        "SELECT (SELECT count(*) > 0 FROM page_marks), (SELECT count(*) > 0 FROM cases),"
        " min(bucket), max(bucket) FROM turns_by_hour"
    )
    if not made or last is None:
        return Overview(made, landed, spans, app)
    end = _end(reader, request, last)
    name = request["range"] or traffic.shortest_with(_minute(reader, "min", first), end)
    span = _between(request) or traffic.span_of(name, end)
    rows = traffic.turn_buckets(reader, span, app)
    scores = traffic.newest_versions(traffic.score_buckets(reader, span, app))
    newest = request.past.get(
        ("newest estimates", span.name or span, app), lambda: newest_estimates(reader, span, app)
    )
    earlier = traffic.score_buckets(reader, span.before, app, by_bucket=False)
    before = traffic.rates(traffic.newest_versions(earlier), newest)
    found = traffic.rates(scores, newest)
    chosen = _chosen(found, request.exact("metric"))
    latencies = traffic.latencies(reader, span, app)
    others = traffic.left_out(reader, span, app)
    tools = traffic.tools(reader, span, app, others)
    turns = sum(row.turns for row in rows)
    named = "SELECT DISTINCT app_name FROM turns_by_hour WHERE app_name != '' ORDER BY 1"
    apps = tuple(reader.column(named))
    delivery = _delivery(reader)
    why = reasons(
        reader,
        span,
        app,
        turns=TurnCounts(turns, traffic.turn_count(reader, span.before, app)),
        verdicts=_verdict_counts(found, before),
        past=request.past,
    )
    alarms = alarms_in(reader, span)
    left_out = others.get(("turns", ""))
    return Overview(
        made,
        landed,
        spans,
        app,
        span=span,
        apps=apps,
        metric=chosen.metric if chosen else "",
        sampled=_is_sampled(rows, scores),
        effective=chosen.rate.effective_n if chosen and chosen.rate else 0.0,
        tiles=_tiles(request, span, rows, left_out, chosen, latencies, tools, delivery),
        charts=_charts(
            span, rows, scores, chosen, newest, latencies, _usual(chosen, before), alarms
        ),
        metrics=_metric_lines(request, span, found, before),
        reasons=tuple(Reason(one, _filter(request, _failing(one), span)) for one in why),
        tools=tuple(_tool_line(request, one, span) for one in tools),
        delivery=delivery,
        turns=turns,
        left_out=told_of_runs(reader),
    )


def _is_sampled(rows: Sequence[TurnBucket], scores: Sequence[ScoreBucket]) -> bool:
    """Return whether recorders left out turns, or score rules verdicts."""
    turns, weight = sum(row.turns for row in rows), sum(row.weight for row in rows)
    return weight > turns * 1.001 or any(row.weight > row.turns * 1.001 for row in scores)


def _metric_lines(
    request: PageRequest, span: Span, found: Sequence[MetricRate], before: Sequence[MetricRate]
) -> tuple[MetricLine, ...]:
    earlier = {one.digest: one.rate for one in before}
    changes = traffic.changes([(earlier.get(one.digest), one.rate) for one in found])
    return tuple(
        MetricLine(
            one,
            change,
            {status: _cases(request, f"metric:{one.metric}={status}", span) for status in SEVERITY},
        )
        for one, change in zip(found, changes, strict=True)
    )


def _between(request: PageRequest) -> Span | None:
    """Return the span from `from` to `to`, if both are given."""
    if not (request["from"] and request["to"]):
        return None
    start, end = _time(request, "from"), _time(request, "to")
    if start >= end:
        raise InputError(
            f"from {request['from']} to {request['to']}: expected an end after the start"
        )
    return traffic.span_between(start, end)


def _time(request: PageRequest, name: str) -> datetime:
    try:
        found = datetime.fromisoformat(request[name])
    except ValueError:
        raise InputError(
            f"{name}: expected a time in UTC, e.g. 2026-11-01 or 2026-11-02T12:00, found {request[name]!r}"
        ) from None
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        raise InputError(f"{name}: {request[name]} is out of range")
    return stored_time(found) if found.tzinfo else found


def _end(reader: StoreReader, request: PageRequest, last: datetime) -> datetime:
    """Return the end of the span: now, or the last turn of a file that is not being written."""
    now = stored_time(request.now)
    if request.live:
        return now
    ended = shifted(_minute(reader, "max", last), timedelta(minutes=1))
    return min(now, max(ended, _EPOCH))


def _minute(reader: StoreReader, which: Literal["min", "max"], hour: datetime) -> datetime:
    ((found,),) = reader.rows(
        f"SELECT {which}(bucket) FROM turns_by_minute"
        " WHERE bucket >= $hour AND bucket < $hour + INTERVAL 1 HOUR",
        {"hour": hour},
    )
    return found or hour


def _chosen(found: Sequence[MetricRate], wanted: str) -> MetricRate | None:
    """Return the requested metric, otherwise the one with most failed turns."""
    by_name = {one.metric: one for one in found}
    failing = sorted(
        found, key=lambda one: (-one.counts["failed"], one.rate.value if one.rate else 2.0)
    )
    return by_name.get(wanted) or next(iter(failing), None)


def _cases(request: PageRequest, q: str, span: Span) -> str:
    return link("/cases", q=_filter(request, q, span), sort="worst")


def _filter(request: PageRequest, q: str, span: Span) -> str:
    """Return a filter with the span and application of the page."""
    app = request.exact("app")
    more = f" app:{quoted(app)}" if app else ""
    until = "" if span.name else f" to:{span.end:%Y-%m-%dT%H:%M}"
    return f"{q} from:{span.start:%Y-%m-%dT%H:%M}{until}{more}"


def _failing(reason: ReasonCount) -> str:
    """Return the filter of cases with the status that a reason explains."""
    if reason.status == "crashed":
        typed = '"' not in reason.metric and reason.metric not in ("error", "did not end")
        return f'status:crashed error:"{reason.metric}"' if typed else "status:crashed"
    return f"metric:{reason.metric}={reason.status}"


def _tool_line(request: PageRequest, use: ToolUse, span: Span) -> ToolLine:
    q = f"tool:{quoted(use.tool)}"
    return ToolLine(use, _cases(request, q, span), _cases(request, f"{q} error:*", span))


def _tiles(
    request: PageRequest,
    span: Span,
    rows: Sequence[TurnBucket],
    others: LeftOut | None,
    chosen: MetricRate | None,
    latencies: Mapping[datetime | None, Latency],
    tools: Sequence[ToolUse],
    delivery: Delivery,
) -> tuple[Tile, ...]:
    turns, errors = sum(row.turns for row in rows), sum(row.errors for row in rows)
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    remark = f"{errors:,} crashed" if errors else "none crashed"
    whole, cost = float(turns), sum(costs)
    if others is not None:
        whole, cost = whole + others.n, cost + others.cost_usd
        crashed = (errors + others.errors) / (whole or 1.0)
        remark = f"recorded, of {whole:,.0f}; {100 * crashed:.1f} % of all crashed"
    tiles = [Tile("turns", f"{turns:,}", remark, _cases(request, "", span))]
    if chosen and (rate := chosen.rate):
        ends = f"{100 * rate.interval.low:.1f} to {100 * rate.interval.high:.1f} %"
        href = _cases(request, f"metric:{chosen.metric}=failed", span)
        tiles.append(Tile(f"pass rate · {chosen.metric}", f"{100 * rate.value:.1f} %", ends, href))
    if (latency := latencies.get(None)) is not None:
        slow = _cases(request, f"latency:>{latency.p95 / 1000:.2g}s", span)
        median = f"median {duration(latency.median)}"
        tiles.append(Tile("latency, p95", duration(latency.p95), median, slow))
    if costs:
        known = _known_cost(cost, sum(row.priced for row in rows), whole)
        if others is not None:
            known += f", {money(sum(costs))} of it recorded"
        tiles.append(Tile("cost", money(cost), known, _cases(request, "cost:>0", span)))
    tiles += _tool_errors(request, span, tools, recorded="" if others is None else " recorded")
    href = _cases(request, "status:unscored", span) if delivery.unscored else ""
    tiles.append(Tile("unscored", f"{delivery.unscored:,}", "cases, all time", href))
    return tuple(tiles)


def _known_cost(cost: float, priced: float, whole: float) -> str:
    """Return what a turn costs, and of how many of `whole` turns that is known."""
    known = f"{money(cost / priced)} a turn" if priced else ""
    return known if priced >= 0.999 * whole else f"{known} (known for {priced:,.0f})"


def _tool_errors(
    request: PageRequest, span: Span, tools: Sequence[ToolUse], *, recorded: str
) -> Iterator[Tile]:
    if all_calls := sum(one.all_calls for one in tools):
        calls, failed_calls = sum(one.calls for one in tools), sum(one.errors for one in tools)
        failing = sum(one.all_errors for one in tools) / all_calls
        href = _cases(request, "error:*", span) if failed_calls else ""
        said = f"{failed_calls:,} of {calls:,}{recorded} calls"
        yield Tile("tool errors", f"{100 * failing:.1f} %", said, href)


def _verdict_counts(
    found: Sequence[MetricRate], before: Sequence[MetricRate]
) -> Mapping[str, TurnCounts]:
    """Return the number of verdicts of each metric in the span and in the previous one."""
    earlier = {one.metric: sum(one.counts.values()) for one in before}
    return {
        one.metric: TurnCounts(sum(one.counts.values()), earlier.get(one.metric, 0))
        for one in found
    }


def _delivery(reader: StoreReader) -> Delivery:
    found = landed_accounts(reader)
    apart = without_runs(reader, app="app_name") or "TRUE"
    ((unscored,),) = reader.rows(
        f"SELECT count(*) FROM case_index WHERE severity = 1 AND first_seq IS NOT NULL AND {apart}"
    )
    return Delivery(
        sum(one.recorded for one in found),
        sum(one.landed for one in found),
        sum(sum(one.dropped.values()) for one in found),
        sum(size(one.lost) for one in found),
        sum(size(one.dead) for one in found),
        unscored,
    )


_ALARMS: Final = """
SELECT watch, min(turned_at) FROM alerts
WHERE status = 'firing' AND turned_at >= $start AND turned_at < $until
GROUP BY alert_id, watch ORDER BY 2
"""


def _charts(
    span: Span,
    rows: Sequence[TurnBucket],
    scores: Sequence[ScoreBucket],
    chosen: MetricRate | None,
    newest: Mapping[str, Newest],
    latencies: Mapping[datetime | None, Latency],
    usual: float | None,
    alarms: Sequence[Mark],
) -> tuple[Chart, ...]:
    turns, errors, costs = ([0.0] * span.buckets for _ in range(3))
    for row in rows:
        place = span.place(row.bucket)
        turns[place] += row.turns
        errors[place] += row.errors
        costs[place] += row.cost_usd or 0
    times = span.times()
    made = [
        bars(
            "Turns",
            [Point(at, n, part=e) for at, n, e in zip(times, turns, errors, strict=True)],
            words="turns",
            part="crashed",
            say=f"{sum(turns):,.0f} turns, {sum(errors):,.0f} of them crashed",
            marks=() if chosen else alarms,
        )
    ]
    if chosen:
        made.append(_pass_rate(span, scores, chosen, newest, usual, alarms))
    if any(costs):
        points = [Point(at, round(one, 6)) for at, one in zip(times, costs, strict=True)]
        say = f"{money(sum(costs))} in all"
        made.append(bars("Cost", points, words="cost", say=say, edge=money))
    if latencies:
        made.append(_latency(span, latencies))
    return tuple(made)


def _pass_rate(
    span: Span,
    scores: Sequence[ScoreBucket],
    chosen: MetricRate,
    newest: Mapping[str, Newest],
    usual: float | None,
    alarms: Sequence[Mark],
) -> Chart:
    by_place: dict[int, list[ScoreBucket]] = {}
    for row in scores:
        if row.digest == chosen.digest and row.metric == chosen.metric:
            by_place.setdefault(span.place(row.bucket), []).append(row)
    points = []
    for place, at in enumerate(span.times()):
        rate = traffic.share(by_place.get(place, []), newest.get(chosen.digest))
        points.append(Point(at, rate.value, *rate.interval) if rate else Point(at, None))
    passed = f"{100 * chosen.rate.value:.1f} % passed" if chosen.rate else "not evaluated"
    dashed = "" if usual is None else f", dashed: period before, {100 * usual:.1f} %"
    return lines(
        f"Pass rate · {chosen.metric}",
        [("pass rate", points)],
        say=f"{chosen.metric}: {passed}; band: 95 % interval{dashed}",
        low=0.0,
        high=1.0,
        form=lambda share: f"{100 * share:.0f} %",
        dashed=usual,
        marks=alarms,
        value=f"band: 95 % interval{dashed}",
    )


def alarms_in(reader: StoreReader, span: Span) -> list[Mark]:
    """Return when alarms began in a span."""
    return [
        Mark((at - span.start) / (span.end - span.start), f"alarm {watch}: {at:%H:%M}")
        for watch, at in reader.rows(_ALARMS, {"start": span.start, "until": span.end})
    ]


def _latency(span: Span, latencies: Mapping[datetime | None, Latency]) -> Chart:
    by_bucket = [(at, latencies.get(at)) for at in span.times()]
    p95 = [Point(at, found.p95 / 1000 if found else None) for at, found in by_bucket]
    median = [Point(at, found.median / 1000 if found else None) for at, found in by_bucket]
    return lines(
        "Latency",
        [("p95", p95), ("median", median)],
        low=0.0,
        form=lambda seconds: duration(1000 * seconds),
        say="median and 95th percentile of a turn's latency",
    )
