"""Derive the verdict from the figures of a comparison."""

from collections.abc import Iterator, Sequence

from evaltap.evaluator.reports.compare.metrics import improved, regressed
from evaltap.evaluator.reports.compare.model import MetricChange, Rules, UsageChange, Verdict
from evaltap.evaluator.reports.compare.wording import p_value, points


def verdict_of(
    metrics: Sequence[MetricChange], usage: Sequence[UsageChange], rules: Rules
) -> tuple[Verdict, list[str]]:
    """Return the verdict and its reasons: a regression overrides inconclusive, which overrides passing."""
    deciding = [metric for metric in metrics if metric.decides]
    if worse := [*_worse(deciding, usage, rules)]:
        return "regression", worse
    below = [reason for metric in deciding for reason in _minimum(metric, rules, below=True)]
    if below:
        return "below_minimum", below
    undecided = [reason for metric in deciding for reason in _undecided(metric, rules)]
    if undecided:
        return "inconclusive", undecided
    better = [
        f"{one.metric}: better by {points(-one.drop)}, {p_value(one.adjusted_p_improvement or 0.0)}"
        for one in deciding
        if improved(one, rules)
    ]
    return ("improvement", better) if better else ("pass", [])


def _worse(
    metrics: Sequence[MetricChange], usage: Sequence[UsageChange], rules: Rules
) -> Iterator[str]:
    for metric in metrics:
        if regressed(metric, rules):
            yield f"{metric.metric}: worse by {points(metric.drop)}, {p_value(metric.adjusted_p or 0.0)}"
    limits = {"cost": rules.max_cost_ratio, "latency": rules.max_latency_ratio}
    for use in usage:
        limit = limits[use.name]
        low, high = use.ratio.interval
        if limit is not None and low > limit:
            yield f"{use.name}: {use.ratio.value:.2f} times base ({low:.2f} to {high:.2f}), at most {limit:g}"


def _minimum(metric: MetricChange, rules: Rules, *, below: bool) -> Iterator[str]:
    wanted, rate = rules.min_pass_rate, metric.head.rate
    if wanted is None or metric.graded or rate is None:
        return
    low, high = rate.interval
    found = f"{metric.metric}: {rate.value:.1%} pass (95 %: {low:.1%} to {high:.1%})"
    if below and high < wanted:
        yield f"{found}, below the required {wanted:.1%}"
    elif not below and low < wanted <= high:
        yield f"{found}; more trials are needed to tell whether the rate reaches {wanted:.1%}"


def _undecided(metric: MetricChange, rules: Rules) -> Iterator[str]:
    yield from (f"{metric.metric}: {reason}" for reason in metric.undecided)
    if rules.max_drop is not None and not metric.interval.high < rules.max_drop:
        yield (
            f"{metric.metric}: the drop may be as large as {points(metric.interval.high)}; the limit is"
            f" {points(rules.max_drop)}"
        )
    yield from _minimum(metric, rules, below=False)
