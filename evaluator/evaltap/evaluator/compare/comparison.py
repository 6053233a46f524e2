"""`compare`: two sides in, what changed out, and whether that is worse."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.compare.differences import differences
from evaltap.evaluator.compare.metrics import improved, metric_changes, regressed
from evaltap.evaluator.compare.model import (
    Comparison,
    MetricChange,
    Rules,
    UsageChange,
    Verdict,
)
from evaltap.evaluator.compare.pairing import (
    PairedCases,
    PairedMetric,
    alike,
    names_of,
    only_one_side,
    pair_cases,
    pair_metrics,
)
from evaltap.evaluator.compare.recordings import Recording
from evaltap.evaluator.compare.sides import Side
from evaltap.evaluator.compare.usage import usage_changes
from evaltap.evaluator.compare.wording import p_value, points
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted, did_you_mean

_FEW_TRIALS: Final = 10


def compare(base: Side, head: Side, rules: Rules | None = None) -> Comparison:
    """Compare two sides case by case.

    Raises InputError where they have no case or no metric version in common, or `rules` name a metric
    that is not there.
    """
    rules = rules or Rules()
    base, head, renamed = alike(base, head, by_id=rules.pair_by_id)
    cases = pair_cases(base, head)
    pairs = pair_metrics(base, head, across=rules.across_metrics)
    _check(rules, pairs)
    names = names_of([*cases.both, *cases.added, *cases.removed, *cases.changed])
    metrics = metric_changes(pairs, {key: names[key] for key in cases.both}, rules)
    usage = usage_changes(base.recordings, head.recordings, cases.both, level=rules.alpha)
    verdict, reasons = _verdict(metrics, usage, rules)
    return Comparison(
        verdict,
        tuple(reasons),
        rules,
        base.name,
        head.name,
        base.runs,
        head.runs,
        metrics,
        usage,
        _named(cases.added, names),
        _named(cases.removed, names),
        _named(cases.changed, names),
        (*renamed, *_notes(base, head, cases, pairs, metrics, rules)),
        differences(base, head, metrics),
    )


def _check(rules: Rules, pairs: Sequence[PairedMetric]) -> None:
    known = [pair.name for pair in pairs]
    for name in rules.fail_on_metrics:
        if name not in known:
            hint = did_you_mean(name, known) or f"in both are {', '.join(known)}"
            raise InputError(f"--fail-on-metrics {name}: not a metric of both sides; {hint}")


def _verdict(
    metrics: Sequence[MetricChange], usage: Sequence[UsageChange], rules: Rules
) -> tuple[Verdict, list[str]]:
    """Return the verdict and why: a regression wins over what is open, that over a pass."""
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
        if limit is not None and use.interval is not None and use.interval.low > limit:
            low, high = use.interval
            yield f"{use.name}: {use.ratio:.2f} times base ({low:.2f} to {high:.2f}), at most {limit:g}"


def _minimum(metric: MetricChange, rules: Rules, *, below: bool) -> Iterator[str]:
    wanted, (low, high) = rules.min_pass_rate, metric.head.interval
    if wanted is None or metric.graded or not metric.head.cases:
        return
    found = f"{metric.metric}: {metric.head.rate:.1%} pass (95 %: {low:.1%} to {high:.1%})"
    if below and high < wanted:
        yield f"{found}, less than {wanted:.1%}"
    elif not below and low < wanted <= high:
        yield f"{found}; more trials would tell whether that is {wanted:.1%} or more"


def _undecided(metric: MetricChange, rules: Rules) -> Iterator[str]:
    yield from (f"{metric.metric}: {reason}" for reason in metric.undecided)
    if rules.max_drop is not None and not metric.interval.high < rules.max_drop:
        yield (
            f"{metric.metric}: a drop of less than {points(rules.max_drop)} is not shown, it may be"
            f" {points(metric.interval.high)}"
        )
    yield from _minimum(metric, rules, below=False)


def _named(keys: Sequence[CaseKey], names: Mapping[CaseKey, str]) -> tuple[str, ...]:
    return tuple(names[key] for key in keys)


def _notes(
    base: Side,
    head: Side,
    cases: PairedCases,
    pairs: Sequence[PairedMetric],
    metrics: Sequence[MetricChange],
    rules: Rules,
) -> Iterator[str]:
    yield from only_one_side(base, head)
    for metric in metrics:
        value = metric.adjusted_p
        if value is not None and value <= rules.alpha and metric.drop <= rules.margin:
            yield (
                f"{metric.metric}: some case got worse ({p_value(value)}), but the pass rate as a whole did"
                f" not fall by more than {points(rules.margin)}"
            )
    for pair in pairs:
        ones, others = pair.base.digest, pair.head.digest
        if ones != others:
            known = ones and others
            yield (
                f"{pair.name}: compared across versions, {ones[:8]} and {others[:8]}"
                if known
                else f"{pair.name}: one side does not say which version of the metric it used"
            )
    for side in (base, head):
        if alike_answers := _repeated(side, cases.both):
            yield (
                f"{side.name}: all trials of {counted(alike_answers, 'case')} have the same answer to the"
                " byte; the agent is deterministic, or something cached it, and repeats say nothing new"
            )
    trials = [metric.base.trials / metric.base.cases for metric in metrics if metric.base.cases]
    if trials and max(trials) < _FEW_TRIALS:
        yield (
            f"base has {counted(round(max(trials)), 'trial')} a case; keep those of the last 10 to 20"
            " runs: more of them find smaller changes at no cost"
        )


def _repeated(side: Side, cases: Sequence[CaseKey]) -> int:
    """Return how many cases have several recordings with one answer, if all of several have."""
    several = [
        answers for key in cases if len(answers := _answers(side.recordings.get(key, ()))) > 1
    ]
    return len(several) if several and all(len(set(one)) == 1 for one in several) else 0


def _answers(recordings: Sequence[Recording]) -> list[str]:
    return [one.answers for one in recordings if one.answers]
