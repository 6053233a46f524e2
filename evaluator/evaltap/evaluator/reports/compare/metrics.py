"""Compare one metric over the cases of both sides: the test, the drop with its interval, and each case."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from statistics import fmean, stdev
from typing import Final, Literal

from evaltap.evaluator.analysis.stats.difference import (
    benjamini_hochberg,
    detectable_drop,
    difference,
    fisher,
    holm,
    mean_rate,
)
from evaltap.evaluator.analysis.stats.exchange import (
    Pair,
    Trials,
    broken,
    drop_p_value,
    least_possible,
    shift_p_value,
    sign_flip_p_value,
    worse,
)
from evaltap.evaluator.analysis.stats.rate import Interval, Rate, t95
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.model import (
    SUSPECT,
    CaseChange,
    Change,
    MetricChange,
    Outcome,
    Rules,
    Stratum,
    Totals,
    UsageChange,
    Verdict,
)
from evaltap.evaluator.reports.compare.pairing import Members, PairedMetric, with_holm
from evaltap.evaluator.reports.compare.sides import Counts, Recording
from evaltap.evaluator.reports.compare.wording import p_value, points
from evaltap.schemas.text import counted

_LEAST_CASES: Final = 8
"""With one trial per case, a comparison of scores needs at least this many cases."""
MISSING: Final = 0.05
"""The share of missing verdicts, or of base's cases, that leaves a comparison inconclusive."""
_UNEVEN: Final = 0.05


def metric_changes(
    pairs: Sequence[PairedMetric], names: Mapping[CaseKey, str], rules: Rules
) -> tuple[MetricChange, ...]:
    """Compare metrics; deciding metrics are first, with p-values adjusted for their number."""
    pairs = [_within(pair, names.keys()) for pair in pairs]
    wanted = rules.fail_on_metrics or [one.name for one in pairs if not one.graded]
    deciding_names = {*wanted} or {one.name for one in pairs}
    found = [_metric(pair, pair.name in deciding_names, rules) for pair in pairs]
    changes = []
    for one in with_adjusted_p(found):
        if not one.graded:
            pair = next(pair for pair in pairs if pair.name == one.metric)
            base, head = pair.base.cases, pair.head.cases
            is_worse = regressed(one, rules)
            worse = broken(_pairs(base, head), level=rules.alpha) if is_worse else ()
            one = replace(one, cases=case_changes(base, head, names, worse))
        changes.append(one)
    return tuple(changes)


def stratified(
    pairs: Sequence[PairedMetric], slices: Mapping[str, Members], rules: Rules
) -> tuple[Stratum, ...]:
    """Compare metrics within slices of the cases."""
    return with_holm(
        [
            Stratum(by, value, _metric(_within(pair, keys), False, rules))
            for by, members in slices.items()
            for value, keys in members.items()
            for pair in pairs
        ]
    )


def with_adjusted_p(found: Sequence[MetricChange]) -> tuple[MetricChange, ...]:
    """Return the deciding metrics first, with adjusted p-values, then the others with q-values."""
    deciding = [one for one in found if one.decides]
    others = [one for one in found if not one.decides]
    worse = holm([_or_one(one.p_value) for one in deciding])
    better = holm([_or_one(one.p_improvement) for one in deciding])
    q_values = benjamini_hochberg([_or_one(one.p_value) for one in others])
    return (
        *(
            replace(one, adjusted_p=p, adjusted_p_improvement=q)
            for one, p, q in zip(deciding, worse, better, strict=True)
        ),
        *(replace(one, q_value=q) for one, q in zip(others, q_values, strict=True)),
    )


def regressed(metric: MetricChange, rules: Rules) -> bool:
    """Return whether a metric is worse, at the level that the rules require."""
    value = metric.q_value if metric.adjusted_p is None else metric.adjusted_p
    return value is not None and value <= rules.alpha and metric.drop > rules.margin


def improved(metric: MetricChange, rules: Rules) -> bool:
    """Return whether a metric is better, at the level that the rules require."""
    value = metric.adjusted_p_improvement
    return value is not None and value <= rules.alpha and metric.drop < 0


def _within(pair: PairedMetric, names: Set[CaseKey]) -> PairedMetric:
    """Return a metric restricted to the compared cases.

    Cases for which one side has no score at all are missing there, with the number of trials of the other
    side.  Cases that expect nothing of what the metric compares are left out, also if they crashed.
    """
    both = (pair.base.cases, pair.head.cases)
    other = {
        key
        for cases in both
        for key, one in cases.items()
        if one.not_asked and not any(side.get(key, _NONE).passes for side in both)
    }
    base, head = (
        {key: one for key, one in cases.items() if key in names and key not in other}
        for cases in both
    )
    return PairedMetric(
        pair.name,
        replace(pair.base, cases=_absent(base, head) | base),
        replace(pair.head, cases=_absent(head, base) | head),
    )


def _absent(
    cases: Mapping[CaseKey, Counts], others: Mapping[CaseKey, Counts]
) -> dict[CaseKey, Counts]:
    return {
        key: Counts(0, 0, one.trials + one.missing, 0 if one.trials else one.not_evaluated)
        for key, one in others.items()
        if key not in cases
    }


def _metric(pair: PairedMetric, decides: bool, rules: Rules) -> MetricChange:
    return (_graded if pair.graded else _passed)(pair, decides, rules)


def _passed(metric: PairedMetric, decides: bool, rules: Rules) -> MetricChange:
    base, head = metric.base.cases, metric.head.cases
    pairs = list(_pairs(base, head).values())
    gaps = _missing(base, head)
    if not pairs:
        nothing = Totals(None, 0)
        return MetricChange(
            metric.name, False, decides, nothing, nothing, math.nan, Interval(-1.0, 1.0), None, None, None,
            undecided=("no case has a verdict on both sides",)
        )  # fmt: skip
    before, now = (mean_rate(list(trials)) for trials in zip(*pairs, strict=True))
    drop = difference(before, now)
    undecided = [*gaps]
    # From nothing to something is not worse; from nothing to nothing shows only that nothing works.
    mended = before.value == 0 < now.value
    if not mended and (least := least_possible(pairs)) > rules.alpha:
        undecided.append(
            f"too few passing trials in base: even if all failed in head, p would be {least:.2g}"
        )
    return MetricChange(
        metric.name,
        False,
        decides,
        _totals(base, before, [pair.base for pair in pairs]),
        _totals(head, now, [pair.head for pair in pairs]),
        drop.value,
        drop.interval,
        drop_p_value(pairs, level=rules.alpha),
        drop_p_value([pair.swapped for pair in pairs], level=rules.alpha),
        detectable_drop(pairs, rules.alpha),
        undecided=tuple(undecided),
    )


def _graded(metric: PairedMetric, decides: bool, rules: Rules) -> MetricChange:
    base, head = metric.base.cases, metric.head.cases
    both = ((base[key].scores, head[key].scores) for key in base if key in head)
    scores = [pair for pair in both if all(pair)]
    undecided = _missing(base, head)
    p_value = p_improvement = None
    single = all(len(one) == len(other) == 1 for one, other in scores)
    if not scores or (single and len(scores) < _LEAST_CASES):
        undecided.append(
            f"found scores of {len(scores)} cases with one trial each; expected at least {_LEAST_CASES}"
            " cases, or several trials"
        )
    else:
        p_value = shift_p_value(scores, level=rules.alpha)
        p_improvement = shift_p_value([(b, a) for a, b in scores], level=rules.alpha)
    means = [(fmean(one), fmean(other)) for one, other in scores]
    drop = mean_score([one - other for one, other in means])
    base_totals, head_totals = (
        Totals(
            mean_score([mean[place] for mean in means]),
            sum(len(pair[place]) for pair in scores),
            _missing_in(cases),
        )
        for place, cases in enumerate((base, head))
    )
    return MetricChange(
        metric.name, True, decides, base_totals, head_totals, drop.value, drop.interval, p_value,
        p_improvement, None,
        undecided=tuple(undecided)
    )  # fmt: skip


def _missing_in(cases: Mapping[CaseKey, Counts]) -> int:
    return sum(counts.missing for counts in cases.values())


def mean_score(values: Sequence[float]) -> Rate:
    """Return the mean over cases with its interval (Student's); unbounded with one case."""
    count, interval = len(values), Interval(-math.inf, math.inf)
    mean = fmean(values) if values else math.nan
    if count > 1:
        half = t95(count - 1) * stdev(values) / math.sqrt(count)
        interval = Interval(mean - half, mean + half)
    return Rate(mean, interval, count, count, "cases")


def _totals(cases: Mapping[CaseKey, Counts], rate: Rate, trials: Sequence[Trials]) -> Totals:
    scores = [score for counts in cases.values() for score in counts.scores]
    return Totals(
        rate,
        sum(one.trials for one in trials),
        _missing_in(cases),
        fmean(scores) if scores else None,
    )


def _pairs(base: Mapping[CaseKey, Counts], head: Mapping[CaseKey, Counts]) -> dict[CaseKey, Pair]:
    return {
        key: Pair(counts.verdicts, head[key].verdicts)
        for key, counts in base.items()
        if key in head and counts.trials and head[key].trials
    }


def _missing(base: Mapping[CaseKey, Counts], head: Mapping[CaseKey, Counts]) -> list[str]:
    """Return why missing verdicts leave the comparison inconclusive, if they do.

    Cases that neither side could evaluate, because the metric does not apply to them, are not a gap.
    """
    apply = {
        key
        for cases in (base, head)
        for key, one in cases.items()
        if one.trials or one.not_evaluated != one.missing
    }
    gaps, totals = [], []
    for cases in (base, head):
        counts = [cases[key] for key in apply if key in cases]
        gaps.append(sum(one.missing for one in counts))
        totals.append(sum(one.trials + one.missing for one in counts))
    found = []
    for side, gap, total in zip(("base", "head"), gaps, totals, strict=True):
        if gap > MISSING * total:
            found.append(f"{gap:,} of {total:,} trials of {side} have no verdict")
    if not found and fisher(gaps[0], totals[0], gaps[1], totals[1]) < _UNEVEN:
        found.append(
            f"the sides differ in missing verdicts: {gaps[0]:,} of {totals[0]:,} in base, {gaps[1]:,} of"
            f" {totals[1]:,} in head"
        )
    return found


def _or_one(value: float | None) -> float:
    return 1.0 if value is None else value


_NONE: Final = Counts(0, 0)


def case_changes(
    base: Mapping[CaseKey, Counts],
    head: Mapping[CaseKey, Counts],
    names: Mapping[CaseKey, str],
    regressed: Collection[CaseKey],
) -> tuple[CaseChange, ...]:
    """Return the change of each case of either side; `regressed` are the cases that the test named."""
    return tuple(
        _case_change(key, name, base.get(key, _NONE), head.get(key, _NONE), key in regressed)
        for key, name in names.items()
        if key in base or key in head
    )


def _case_change(
    key: CaseKey, name: str, base: Counts, head: Counts, regressed: bool
) -> CaseChange:
    before, now = base.verdicts, head.verdicts
    if not base.trials or not head.trials:
        gaps = base.missing + head.missing
        nothing_tried = gaps and base.not_evaluated + head.not_evaluated == gaps
        is_open = nothing_tried and not base.trials + head.trials
        change: Change = "not_evaluated" if is_open else "missing"
        return CaseChange(key, name, before, now, None, change, "unknown")
    pair = Pair(before, now)
    p_value = worse(pair)
    change = _change(pair, p_value, regressed)
    outcome = _outcome(pair, change)
    flaky = change == "flaky"
    return CaseChange(
        key,
        name,
        before,
        now,
        p_value,
        change,
        outcome,
        Rate.of_counts(*now, "trials") if flaky else None,
        base.passing or base.failing,
        head.failing or head.passing,
    )


def _change(pair: Pair, p_value: float, regressed: bool) -> Change:
    base, head = pair
    if regressed:
        return "regressed"
    if p_value <= SUSPECT:
        return "suspect"
    if worse(pair.swapped) <= SUSPECT:
        return "improved"
    return "flaky" if _mixed(base) or _mixed(head) else "same"


def _outcome(pair: Pair, change: Change) -> Outcome:
    base, head = pair
    if change in ("regressed", "suspect"):
        return "newly_failing"
    if change == "improved":
        return "newly_passing"
    if change == "flaky":
        return "flaky"
    if not head.passes:
        return "newly_failing" if base.passes else "still_failing"
    return "passing" if base.passes else "newly_passing"


def _mixed(trials: Trials) -> bool:
    return 0 < trials.passes < trials.trials


_Recordings = Mapping[CaseKey, Sequence[Recording]]


def usage_changes(
    base: _Recordings, head: _Recordings, cases: Sequence[CaseKey], *, level: float
) -> tuple[UsageChange, ...]:
    """Return cost and latency as ratios of geometric means over the cases with recorded values.

    The value of a case is the geometric mean of its trials; trials that cost nothing are ignored.
    """
    measures: Sequence[tuple[Literal["cost", "latency"], str, Callable[[Recording], float | None]]]
    measures = (
        ("latency", "ms", lambda one: one.latency_ms),
        ("cost", "USD", lambda one: one.cost_usd),
    )
    changes = []
    for name, unit, value in measures:
        sides = [[_mean_log(map(value, of.get(key, ()))) for of in (base, head)] for key in cases]
        logs = [(one, other) for one, other in sides if one is not None and other is not None]
        if not logs:
            continue
        of_one = sum((one is None) != (other is None) for one, other in sides)
        differences = [other - one for one, other in logs]
        found = mean_score(differences)
        low, high = (math.exp(end) for end in found.interval)
        ratio = replace(found, value=math.exp(found.value), interval=Interval(low, high))
        before, now = (math.exp(fmean(side)) for side in zip(*logs, strict=True))
        p_value = sign_flip_p_value(differences, level=level)
        changes.append(UsageChange(name, unit, before, now, ratio, p_value, of_one))
    return tuple(changes)


def _mean_log(values: Iterable[float | None]) -> float | None:
    known = [math.log(value) for value in values if value and value > 0]
    return round(fmean(known), 6) if known else None  # a baseline keeps ten digits of its value


def rates_of_head(pairs: Sequence[PairedMetric]) -> dict[str, Rate]:
    """Return the pass rates of all cases of head, also of those that base does not have."""
    found = {}
    for pair in pairs:
        asked = (one for one in pair.head.cases.values() if one.passes or not one.not_asked)
        trials = [one.verdicts for one in asked if one.trials]
        if trials and not pair.graded:
            found[pair.name] = mean_rate(trials)
    return found


def lost_metric(name: str) -> str:
    """Return why a metric that only base has leaves a comparison inconclusive."""
    return f"{name}: has verdicts in base and none in head (--subset allows that)"


def verdict_of(
    metrics: Sequence[MetricChange],
    usage: Sequence[UsageChange],
    rules: Rules,
    lost: Sequence[str] = (),
    of_head: Mapping[str, Rate] | None = None,
) -> tuple[Verdict, list[str]]:
    """Return the verdict and its reasons: a regression overrides inconclusive, which overrides passing.

    `lost` is why what was not compared leaves it inconclusive; `of_head` are the pass rates of all of head,
    where these are not those of what was compared.
    """
    deciding = [metric for metric in metrics if metric.decides]
    if worse := [*_worse(deciding, usage, rules)]:
        return "regression", worse
    below, unclear = _minimum(deciding, rules, of_head or {})
    if below:
        return "below_minimum", below
    undecided = [
        *lost,
        *(one for metric in deciding for one in _undecided(metric, rules)),
        *_unlimited(usage, rules),
        *unclear,
    ]
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
    limits = _limits(rules)
    for use in usage:
        limit = limits[use.name]
        ratio = use.ratio
        if limit is not None and ratio.interval.low > limit:
            yield f"{use.name}: {ratio.value:.2f} times base ({ratio.interval:.2f}), at most {limit:g}"


def _limits(rules: Rules) -> dict[str, float | None]:
    return {"cost": rules.max_cost_ratio, "latency": rules.max_latency_ratio}


def _unlimited(usage: Sequence[UsageChange], rules: Rules) -> Iterator[str]:
    """Yield why a limit on cost or latency is undecided: what was not recorded keeps no limit."""
    known: dict[str, UsageChange] = {use.name: use for use in usage}
    for name, limit in _limits(rules).items():
        use = known.get(name)
        if limit is None or (use and use.of_one_side <= MISSING * (use.ratio.n + use.of_one_side)):
            continue
        where = (
            f"on one side only, in {counted(use.of_one_side, 'case')}"
            if use
            else "in no case of both sides"
        )
        yield f"{name}: known {where}; --max-{name}-ratio is undecided"


def _minimum(
    metrics: Sequence[MetricChange], rules: Rules, of_head: Mapping[str, Rate]
) -> tuple[list[str], list[str]]:
    """Return which metrics are below the required pass rate, and which may be."""
    below: list[str] = []
    unclear: list[str] = []
    wanted = rules.min_pass_rate
    for metric in metrics:
        rate = of_head.get(metric.metric, metric.head.rate)
        if wanted is None or metric.graded or rate is None:
            continue
        low, high = rate.interval
        share = f"{rate.value:.1%} of head's {counted(rate.n, rate.unit[:-1])} pass"
        found = f"{metric.metric}: {share} (95 %: {rate.interval:.1%})"
        if high < wanted:
            below.append(f"{found}, below the required {wanted:.1%}")
        elif low < wanted:
            unclear.append(
                f"{found}; more trials are needed to tell whether the rate reaches {wanted:.1%}"
            )
    return below, unclear


def _undecided(metric: MetricChange, rules: Rules) -> Iterator[str]:
    yield from (f"{metric.metric}: {reason}" for reason in metric.undecided)
    if rules.max_drop is not None and not metric.interval.high < rules.max_drop:
        yield (
            f"{metric.metric}: the drop may be as large as {points(metric.interval.high)}; the limit is"
            f" {points(rules.max_drop)}"
        )
