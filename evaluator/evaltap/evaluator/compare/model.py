"""What a comparison holds: plain frozen data, the same for every format it is shown in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final, Literal

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.stats.exchange import Trials
from evaltap.evaluator.stats.intervals import Interval

Verdict = Literal["regression", "below_minimum", "inconclusive", "improvement", "pass"]
EXIT_CODES: Final[dict[Verdict, int]] = {
    "regression": 1,
    "below_minimum": 1,
    "inconclusive": 3,
    "improvement": 0,
    "pass": 0,
}

Change = Literal[
    "regressed", "suspect", "improved", "flaky", "newly_flaky", "same", "missing", "not_evaluated"
]
"""What repeats say of a case: regressed is certain among all cases, suspect by itself (p <= 0.05) only."""

Outcome = Literal["newly_failing", "newly_passing", "still_failing", "flaky", "passing", "unknown"]
"""How a case does now: flaky passes and fails, without a significant change."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides the verdict."""

    alpha: float = 0.02
    """How often a comparison of equal runs may call a regression."""
    margin: float = 0.0
    """A drop of this much, from 0 to 1, is no regression."""
    max_drop: float | None = None
    """Harmless must be shown: the interval of the drop must end below this."""
    min_pass_rate: float | None = None
    """The pass rate of head: below it when its interval is, above it when its interval is."""
    max_cost_ratio: float | None = None
    max_latency_ratio: float | None = None
    fail_on_metrics: tuple[str, ...] = ()
    """Those that decide; empty: all that pass or fail."""
    across_metrics: bool = False
    """Compare scores of different versions of a metric."""
    by: tuple[str, ...] = ()
    """Also compare within these slices, which decides nothing."""
    pair_by_id: bool = False
    """Pair cases by their eval ids alone: trials lie in eval sets, or apps, of different names."""


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case under one metric."""

    key: CaseKey
    name: str
    """The eval id; with the eval set and the app before it where ids repeat."""
    base: Trials
    head: Trials
    p_value: float | None
    """Of "head passes no less often", in this case alone; None without a verdict on a side."""
    change: Change
    outcome: Outcome
    rate: float | None = None
    """Of head's trials, for flaky cases."""
    interval: Interval | None = None
    passing: str = ""
    """A trial of base that passed, else any."""
    failing: str = ""
    """A trial of head that did not pass."""


@dataclass(frozen=True, slots=True)
class Totals:
    """One side under one metric."""

    cases: int
    trials: int
    rate: float
    """The mean of the cases' pass rates; of a metric with scores only, of their mean scores."""
    interval: Interval
    missing: int = 0
    """Trials without a verdict."""
    mean_score: float | None = None


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric over the cases that both sides have."""

    metric: str
    graded: bool
    """It has scores only; its drop is of the mean score."""
    decides: bool
    """The verdict looks at it."""
    base: Totals
    head: Totals
    drop: float
    """Base less head."""
    interval: Interval
    """Of the drop, 95 %."""
    p_value: float | None
    """Of "no worse"; None where too few cases allow no test."""
    p_improvement: float | None
    detectable: float | None
    """The drop that would be found in 80 of 100 such comparisons."""
    adjusted_p: float | None = None
    """By Holm, among the metrics that decide."""
    adjusted_p_improvement: float | None = None
    q_value: float | None = None
    """By Benjamini and Hochberg, among the others."""
    undecided: tuple[str, ...] = ()
    """Why nothing can be said of it."""
    cases: tuple[CaseChange, ...] = ()
    unit: Literal["case", "session"] = "case"
    """What `Totals.cases` counts; sessions of traffic are not paired, and their trials are turns."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """A metric within a slice of the cases or of the traffic."""

    by: str
    value: str
    metric: MetricChange
    """Its adjusted p-value allows for all slices (Holm)."""


@dataclass(frozen=True, slots=True)
class UsageChange:
    """Cost or latency over the cases that both sides recorded it of."""

    name: Literal["cost", "latency"]
    unit: str
    cases: int
    base: float
    """Geometric mean over cases."""
    head: float
    ratio: float
    """Head by base."""
    interval: Interval | None
    """Of the ratio, 95 %; None with one case."""
    p_value: float
    """Two-sided, by flipping signs over cases."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What was recorded of a case on both sides."""

    name: str
    outcome: Outcome
    lines: tuple[str, ...]
    """The calls, `-` base only, `+` head only, and answers where they differ."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from base to head."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """What led to the verdict, in words."""
    rules: Rules
    base_name: str
    head_name: str
    base_runs: int
    head_runs: int
    metrics: tuple[MetricChange, ...]
    """Those that decide first."""
    usage: tuple[UsageChange, ...] = ()
    added: tuple[str, ...] = ()
    """Cases of head only."""
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Cases whose input or expectation differs; they are not compared."""
    notes: tuple[str, ...] = ()
    differences: Sequence[Difference] = field(default_factory=tuple)
    strata: tuple[Stratum, ...] = ()
    """The surest first."""

    @property
    def exit_code(self) -> int:
        """0 pass, 1 worse or below the bar, 3 inconclusive."""
        return EXIT_CODES[self.verdict]

    @property
    def leading(self) -> MetricChange:
        """The metric that the headline is about: of those that decide the one with the least p-value."""
        better = self.verdict == "improvement"
        return min(self.metrics, key=lambda one: _certainty(one, better=better))


def _certainty(metric: MetricChange, *, better: bool) -> tuple[bool, float, float]:
    """Return the order of a metric among those that got worse, or better: the surest first."""
    adjusted = metric.adjusted_p_improvement if better else metric.adjusted_p
    value = (metric.p_improvement if better else metric.p_value) if adjusted is None else adjusted
    drop = 0.0 if isnan(metric.drop) else metric.drop
    return not metric.decides, 1.0 if value is None else value, drop if better else -drop
