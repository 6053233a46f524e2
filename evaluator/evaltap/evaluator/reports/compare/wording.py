"""The wording of a comparison, shared by all formats."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from evaltap.evaluator.reports.compare.model import (
    SUSPECT,
    CaseChange,
    Comparison,
    Difference,
    MetricChange,
    Outcome,
    Stratum,
    Totals,
    UsageChange,
)
from evaltap.evaluator.reports.model import pattern
from evaltap.schemas.text import counted

HEADLINES: Final = {
    "regression": "worse",
    "below_minimum": "below the bar",
    "inconclusive": "inconclusive",
    "improvement": "better",
    "pass": "no significant change",
}
STRATA: Final = "slices (for information only), most certain first"
_GROUPS: Final[Sequence[tuple[Outcome, str]]] = (
    ("newly_failing", "newly failing"),
    ("still_failing", "still failing"),
    ("newly_passing", "newly passing"),
    ("flaky", "flaky"),
    ("unknown", "without a verdict on one side"),
)


class ReasonGroup(NamedTuple):
    """Cases of one outcome whose reasons are alike."""

    reason: str
    """The reason that they share; empty if it is unknown."""
    cases: Sequence[Difference]


class CaseGroup(NamedTuple):
    """The cases with one outcome."""

    outcome: Outcome
    title: str
    number: int
    reasons: Sequence[ReasonGroup]


def headline(found: Comparison) -> str:
    lead = found.leading
    verdict = HEADLINES[found.verdict]
    if not lead.base.cases:
        return f"{verdict}: nothing could be compared"
    return f"{verdict}: {lead.metric} {change(lead)}"


def change(metric: MetricChange) -> str:
    """Return the change of a metric: `93.8 % -> 75.0 %, -18.8 points (95 %: -30.1 to -7.0)`."""
    return f"{rate(metric, metric.base)} -> {rate(metric, metric.head)}, {difference(metric)}"


def rate(metric: MetricChange, side: Totals) -> str:
    """Return a side's pass rate or mean score."""
    if side.rate is None or not side.cases:
        return "-"
    return f"{side.rate.value:.3f}" if metric.graded else f"{side.rate.value:.1%}"


def difference(metric: MetricChange) -> str:
    """Return head minus base with its interval."""
    low, high = -metric.interval.high, -metric.interval.low
    if not (metric.base.cases and metric.head.cases):
        return "not compared"
    if metric.graded:
        return f"{signed(-metric.drop, 3)} (95 %: {signed(low, 3)} to {signed(high, 3)})"
    share = [100 * one for one in (-metric.drop, low, high)]
    shown = [signed(one, 1) for one in share]
    return f"{shown[0]} points (95 %: {shown[1]} to {shown[2]})"


def certainty(metric: MetricChange) -> str:
    """Return the p-value of "no worse", adjusted if applicable; of "no better" if the metric rose."""
    value, adjusted = metric.p_value, metric.adjusted_p
    if value is None:
        return "not tested"
    if metric.drop < 0 and metric.adjusted_p_improvement is not None:
        value, adjusted = metric.p_improvement, metric.adjusted_p_improvement
    if adjusted is not None:
        several = "" if adjusted == value else " (of several metrics)"
        return p_value(adjusted) + several
    return f"{p_value(metric.q_value or 0.0, 'q')}, for information only"


def evidence(metric: MetricChange) -> str:
    """Return the size of the evidence, and the detectable drop."""
    base, head = metric.base, metric.head
    found = f"{counted(base.cases, 'case')}, {base.trials:,} and {head.trials:,} trials"
    if metric.unit == "session":
        found = (
            f"{base.cases:,} and {counted(head.cases, 'session')}, {base.trials:,} and {head.trials:,}"
            " turns"
        )
    if metric.detectable is None or not metric.base.cases:
        return found
    if metric.detectable > 1:
        return f"{found}; too few to detect any drop with 80 % power"
    return (
        f"{found}; can detect a drop of {points(metric.detectable)} with 80 % power, half of that with"
        f" {4 * base.trials:,} and {4 * head.trials:,}"
    )


def stratum(one: Stratum) -> str:
    """Return the change of a metric within a slice, with a p-value adjusted for all slices."""
    metric = one.metric
    if metric.adjusted_p is None or metric.p_value is None:
        return f"{change(metric)}, not tested"
    size = counted(metric.base.cases, metric.unit)
    return f"{change(metric)}, {p_value(metric.adjusted_p)}, {size}"


def stratum_name(found: Comparison, one: Stratum) -> str:
    """Return the slice, with the metric if there are several."""
    several = len(found.metrics) > 1
    return f"{one.by} {one.value or '(none)'}" + (f", {one.metric.metric}" if several else "")


def usage(one: UsageChange) -> str:
    """Return the change of cost or latency, as a ratio."""
    interval = f" (95 %: {one.ratio.interval:.2f})" if one.is_bounded else ""
    amounts = f"{_amount(one.base)} -> {_amount(one.head)} {one.unit}"
    return f"{amounts}, x {one.ratio.value:.2f}{interval}, {p_value(one.p_value)}"


def p_value(value: float, name: str = "p") -> str:
    """Return a p-value with two digits, `p = 0.01`; never 0."""
    if value < 0.0001:
        return f"{name} < 0.0001"
    return f"{name} = {value:.2g}" if value < 0.1 else f"{name} = {value:.2f}"


def points(share: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * share:.1f} points"


def groups(found: Comparison) -> Iterator[CaseGroup]:
    """Yield the cases that did not simply pass, by outcome and reason."""
    for outcome, title in _GROUPS:
        cases = [one for one in found.differences if one.outcome == outcome]
        reasons = [
            _reason_group([*alike])
            for _, alike in groupby(cases, key=lambda one: pattern(one.reason))
        ]
        if cases:
            yield CaseGroup(outcome, title, len(cases), reasons)


def _reason_group(cases: Sequence[Difference]) -> ReasonGroup:
    reasons = {one.reason for one in cases}
    return ReasonGroup(reasons.pop() if len(reasons) == 1 else pattern(cases[0].reason), cases)


def case_line(one: Difference) -> str:
    """Return the figures of a case: `5/5 -> 0/5, regressed (trajectory, answers)`."""
    by_figures: dict[str, list[str]] = {}
    for finding in one.findings:
        by_figures.setdefault(finding.figures, []).append(finding.metric)
    return "; ".join(f"{shown} ({', '.join(names)})" for shown, names in by_figures.items())


def reason_lines(one: Difference) -> Iterator[str]:
    """Yield why a case did not pass; a crash once for all metrics."""
    if one.crash:
        yield f"crashed: {one.crash}"
    told: dict[str, list[str]] = {}
    for finding in one.findings:
        if finding.reason:
            told.setdefault(finding.reason, []).append(finding.metric)
    for reason, metrics in told.items():
        yield f"{', '.join(metrics)}: {reason}"


def figures(case: CaseChange) -> str:
    """Return passes and trials of both sides, and the judgement from the repeats."""
    base, head = case.base, case.head
    counts = f"{base.passes}/{base.trials} -> {head.passes}/{head.trials}"
    if case.p_value is None:
        return f"{counts}, {case.change.replace('_', ' ')}"
    if case.rate is not None:
        share = f"{case.rate.value:.0%} ({case.rate.interval:.0%})"
        return f"{counts}, {case.change.replace('_', ' ')}: {share}"
    certain = f", {p_value(case.p_value)}" if case.p_value <= SUSPECT else ""
    suffix = "" if case.change == "same" else f", {case.change}"
    return f"{counts}{certain}{suffix}"


def listed(found: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the cases that were not compared: a title, and their names."""
    for title, names in (
        ("only in head", found.added),
        ("only in base", found.removed),
        ("different input or reference, not compared", found.changed),
    ):
        if names:
            yield title, names


def sides(found: Comparison) -> str:
    """Return the names of the two sides, and how many cases the verdict does not count."""
    if found.leading.unit == "session":
        return f"{found.base_name} -> {found.head_name}"
    changed = f"; {counted(len(found.changed), 'case')} not compared" if found.changed else ""
    return (
        f"{found.base_name} ({counted(found.base_runs, 'run')}) -> "
        f"{found.head_name} ({counted(found.head_runs, 'run')}){changed}"
    )


def signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # the sum with 0.0 is never -0.0


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
