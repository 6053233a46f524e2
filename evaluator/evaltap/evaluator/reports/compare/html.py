"""A comparison as HTML: its metrics and cases, as the page and the report show them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.metrics import improved, regressed
from evaltap.evaluator.reports.compare.model import Comparison, MetricChange, Rules
from evaltap.evaluator.reports.html.rendering import templates
from evaltap.evaluator.reports.html.report import plain_page

OUTCOMES: Final = {
    "newly_failing": ("✕", "broken", "failed"),
    "still_failing": ("✕", "still failing", "failed"),
    "newly_passing": ("✓", "fixed", "passed"),
    "flaky": ("≈", "flaky", "error"),
    "passing": ("=", "passes", "passed"),
    "unknown": ("–", "no verdict on one side", "not_evaluated"),
}
"""Sign, label and colour of an outcome."""
_VERDICTS: Final = ("worse", "undecided", "better", "no significant change")
"""The order of the metrics."""


@dataclass(frozen=True, slots=True)
class MetricLine:
    metric: MetricChange
    rates: tuple[str, str]
    difference: str
    certainty: str
    evidence: str
    verdict: str
    """better, worse, no significant change or undecided."""
    href: str


def metric_lines(found: Comparison, to: Callable[[str], str]) -> tuple[MetricLine, ...]:
    """Return the metrics with their links, those that got worse first."""
    lines = [_metric_line(one, found.rules, to(one.metric)) for one in found.metrics]
    return tuple(sorted(lines, key=lambda one: _VERDICTS.index(one.verdict)))


def _metric_line(metric: MetricChange, rules: Rules, href: str) -> MetricLine:
    if metric.undecided or metric.p_value is None:
        verdict = "undecided"
    elif regressed(metric, rules):
        verdict = "worse"
    else:
        verdict = "better" if improved(metric, rules) else "no significant change"
    return MetricLine(
        metric,
        (wording.rate(metric, metric.base), wording.rate(metric, metric.head)),
        wording.difference(metric),
        wording.certainty(metric),
        wording.evidence(metric),
        verdict,
        href,
    )


def comparison_section(found: Comparison, *, level: int = 2) -> Markup:
    """Return the section of a report, with a heading of a level; it only needs the style."""
    template = templates().get_template("comparison.html.j2")
    text = template.render(
        found=found,
        level=level,
        headline=wording.headline(found),
        sides=wording.sides(found),
        lines=metric_lines(found, lambda _: ""),
        usage=[(f"{one.name}, {one.ratio.n} cases", wording.usage(one)) for one in found.usage],
        groups=list(wording.groups(found)),
        listed=list(wording.listed(found)),
        outcomes=OUTCOMES,
        wording=wording,
    )
    return Markup(text)


def comparison_page(found: Comparison) -> str:
    """Return the section as a self-contained page; it loads nothing and runs no script."""
    return plain_page(wording.headline(found), "compare", comparison_section(found, level=1))
