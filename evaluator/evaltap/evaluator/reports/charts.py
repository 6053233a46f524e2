"""The charts of the page: bars, intervals and histograms, with their layout and their texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.model import MetricReport, ReasonGroup, Report, Usage
from evaltap.evaluator.reports.summary import exit_code
from evaltap.schemas.text import counted

STATUS_WORDS: Final = {
    "crashed": "crashed",
    "failed": "failed",
    "error": "error",
    "not_evaluated": "not evaluated",
    "passed": "passed",
}
_ORDER: Final = ("passed", "failed", "crashed", "error", "not_evaluated")
HISTOGRAM_WIDTH: Final = 150
HISTOGRAM_HEIGHT: Final = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle on a line: its start, its length, and the number that it represents."""

    status: str
    start: float
    length: float
    count: int
    label: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline, and the bar below it."""

    status: str
    headline: str
    bars: tuple[Bar, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure with its name and a note."""

    name: str
    value: str
    remark: str


@dataclass(frozen=True, slots=True)
class Column:
    """One bin of a histogram."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of a metric's scores."""

    columns: tuple[Column, ...]
    thresholds: tuple[float, ...]
    description: str
    remark: str


@dataclass(frozen=True, slots=True)
class MetricView:
    """One row of the table of metrics."""

    name: str
    evaluator: str
    threshold: str
    bars: tuple[Bar, ...]
    counts: tuple[tuple[str, str, str], ...]
    """Status, its label, and the number."""
    rate: Rate | None
    histogram: Histogram | None
    mean: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """One reason and its frequency."""

    metric_name: str
    status: str
    word: str
    cases: str
    length: float
    reason: str
    eval_ids: str


def verdict(report: Report) -> Verdict:
    """Return the headline and the bar over all cases."""
    counts = report.case_counts
    total = report.total
    numbers = {status: counts.get(status, 0) for status in _ORDER}
    bars = _bars(numbers, total)
    description = ", ".join(f"{numbers[s]:,} {STATUS_WORDS[s]}" for s in _ORDER if numbers[s])
    if not total:
        return Verdict("not_evaluated", "No scores yet", (), "no cases")
    bad = numbers["failed"] + numbers["crashed"] + numbers["error"]
    if bad:
        status = "error" if bad == numbers["error"] else "failed"
        headline = f"{bad:,} of {total:,} cases did not pass"
        return Verdict(
            status, "The case did not pass" if total == 1 else headline, bars, description
        )
    if exit_code(report.summary):
        return Verdict(
            "not_evaluated", "Nothing failed, but some cases were not evaluated", bars, description
        )
    headline = "The case passed" if total == 1 else f"All {total:,} cases passed"
    return Verdict("passed", headline, bars, description)


def tiles(report: Report) -> list[Tile]:
    """Return the figures of the overview; unknown ones are omitted."""
    counts, total = report.case_counts, report.total
    evaluated = total - counts.get("not_evaluated", 0)
    found = [Tile("cases", f"{total:,}", counted(len(report.metrics), "metric"))]
    if evaluated:
        rate, remark = counts.get("passed", 0) / evaluated, "cases without a failure"
        if report.summary.weighted and report.summary.passing_rate is not None:
            remark = f"of all traffic, {remark}; {rate:.1%} of the recorded ones"
            rate = report.summary.passing_rate
        found.append(Tile("pass rate", f"{rate:.1%}", remark))
    crashed = report.summary.crashed
    if crashed.count and crashed.rate is not None:
        low, high = crashed.rate.interval
        cases = "all traffic" if report.summary.weighted else "the cases"
        remark = f"{crashed.rate.value:.1%} of {cases}, 95 % interval {low:.0%} to {high:.0%}"
        found.append(Tile("crashed", f"{crashed.count:,}", remark))
    gaps = sum(row.not_evaluated for row in report.summary.metrics)
    errors = sum(row.errors for row in report.summary.metrics)
    if errors:
        found.append(Tile("errors", f"{errors:,}", "scores that could not be computed"))
    if gaps:
        found.append(Tile("not evaluated", f"{gaps:,}", "scores; reasons below"))
    found += _use_tiles("agent", report.agent, "turn")
    if report.judge:
        found += _use_tiles("judge", report.judge, "call")
    return found


def _use_tiles(name: str, use: Usage, noun: str) -> list[Tile]:
    found: list[Tile] = []
    if use.latency_p95_ms is not None and use.latency_p50_ms is not None:
        remark = f"median {duration(use.latency_p50_ms)}, {counted(use.with_latency, noun)}{_of_all(use)}"
        found.append(Tile(f"{name} latency, p95", duration(use.latency_p95_ms), remark))
    if use.cost_usd is not None:
        missing = use.count - use.with_cost
        remark = f"unknown for {counted(missing, noun)}" if missing else counted(use.count, noun)
        remark += f", {use.cached:,} from the cache" if use.cached else ""
        if use.recorded is not None and use.recorded.cost_usd is not None:
            remark += f"; all traffic, {money(use.recorded.cost_usd)} of it recorded"
        found.append(Tile(f"{name} cost", money(use.cost_usd), remark))
    if use.input_tokens is not None or use.output_tokens is not None:
        tokens = (use.input_tokens or 0) + (use.output_tokens or 0)
        remark = f"{amount(use.input_tokens or 0)} in, {amount(use.output_tokens or 0)} out{_of_all(use)}"
        found.append(Tile(f"{name} tokens", amount(tokens), remark))
    return found


def _of_all(use: Usage) -> str:
    return "" if use.recorded is None else "; of all traffic"


def metric_views(report: Report) -> list[MetricView]:
    """Return the rows of the table of metrics, the lowest pass rate first."""
    counts = {row.metric_name: row for row in report.summary.metrics}
    views = []
    for metric in report.metrics:
        row = counts[metric.metric_name]
        numbers = {
            "passed": row.passed,
            "failed": row.failed,
            "crashed": row.crashed,
            "error": row.errors,
            "not_evaluated": row.not_evaluated,
        }
        evaluator = metric.evaluator_name if metric.evaluator_name != metric.metric_name else ""
        view = MetricView(
            metric.metric_name,
            evaluator,
            ", ".join(f"{value:g}" for value in metric.thresholds),
            _bars(numbers, sum(numbers.values())),
            tuple((s, STATUS_WORDS[s], f"{numbers[s]:,}") for s in _ORDER if numbers[s]),
            row.rate,
            _histogram(metric),
            "" if row.mean_score is None else f"{row.mean_score:.3f}",
        )
        views.append((2.0 if row.rate is None else row.rate.value, view))
    return [view for _, view in sorted(views, key=lambda pair: pair[0])]


def group_views(groups: Sequence[ReasonGroup]) -> list[GroupView]:
    """Return the reasons with bars relative to the largest."""
    most = max((group.cases for group in groups), default=1)
    return [
        GroupView(
            group.metric_name,
            group.status,
            STATUS_WORDS[group.status],
            f"{group.cases:,}",
            100 * group.cases / most,
            one_line(group.example, 300) or group.pattern,
            ", ".join(group.eval_ids[:3]) + (", …" if group.cases > 3 else ""),
        )
        for group in groups
    ]


def _bars(numbers: dict[str, int], total: int) -> tuple[Bar, ...]:
    bars, start = [], 0.0
    for status, count in numbers.items():
        if count:
            length = 100 * count / total
            label = f"{count:,} {STATUS_WORDS[status]}"
            bars.append(Bar(status, start, length, count, label))
            start += length
    return tuple(bars)


def _histogram(metric: MetricReport) -> Histogram | None:
    most = max(metric.histogram)
    if not most:
        return None
    step = HISTOGRAM_WIDTH / len(metric.histogram)
    columns, description = [], []
    for place, count in enumerate(metric.histogram):
        if count:
            # A single case among thousands must remain visible.
            height = max(1.5, HISTOGRAM_HEIGHT * count / most)
            columns.append(Column(place * step + 1, HISTOGRAM_HEIGHT - height, step - 2, height))
            description.append(f"{count:,} from {place / 10:g} to {(place + 1) / 10:g}")
    remark = f"{metric.outside:,} outside 0 to 1" if metric.outside else ""
    inside = [value for value in metric.thresholds if 0 <= value <= 1]
    return Histogram(
        tuple(columns),
        tuple(value * HISTOGRAM_WIDTH for value in inside),
        "scores: " + ", ".join([*description, *filter(None, [remark])]),
        remark,
    )


def duration(milliseconds: float) -> str:
    """Return a duration for display: `850 ms`, `3.6 s`, `2 min 5 s`."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1_000), 60)
    return f"{minutes} min {seconds} s"


def money(usd: float) -> str:
    """Return an amount in US dollars: in cents, below 10 cents with two significant digits (`$0.000061`)."""
    if usd >= 0.1 or usd == 0:
        return f"${usd:,.2f}"
    places = 1 - math.floor(math.log10(usd))
    return f"${usd:.{places}f}".rstrip("0")


def amount(number: float) -> str:
    """Return a large number in short form: `14.4 M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):,.1f} {unit}"
    return f"{number:,.0f}"
