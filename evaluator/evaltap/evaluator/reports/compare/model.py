"""The data of a comparison: plain and frozen, the same for every output format."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from evaltap.evaluator.analysis.stats.exchange import Trials
from evaltap.evaluator.analysis.stats.rate import Interval, Rate
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.schemas.data import Json

Verdict = Literal["regression", "below_minimum", "inconclusive", "improvement", "pass"]
EXIT_CODES: Final[dict[Verdict, int]] = {
    "regression": 1,
    "below_minimum": 1,
    "inconclusive": 3,
    "improvement": 0,
    "pass": 0,
}

Change = Literal["regressed", "suspect", "improved", "flaky", "same", "missing", "not_evaluated"]
"""The judgement on a case from its repeats: regressed is certain among all cases, suspect only alone (p <=
0.05)."""

Outcome = Literal["newly_failing", "newly_passing", "still_failing", "flaky", "passing", "unknown"]
"""The current outcome of a case; flaky: it passes and fails, without a significant change."""

SUSPECT: Final = 0.05
"""The p-value at which a change of a single case is suspect."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that decide the verdict."""

    alpha: float = 0.02
    """The probability that a comparison of equal runs reports a regression."""
    margin: float = 0.0
    """A drop of at most this much, from 0 to 1, is not a regression."""
    max_drop: float | None = None
    """Requires proof of harmlessness: the interval of the drop must end below this."""
    min_pass_rate: float | None = None
    """The minimum pass rate of head: fails if its interval is below, passes if its interval is above."""
    max_cost_ratio: float | None = None
    max_latency_ratio: float | None = None
    fail_on_metrics: tuple[str, ...] = ()
    """The deciding metrics; empty: all metrics with verdicts."""
    across_metrics: bool = False
    """Compare scores of different versions of a metric."""
    by: tuple[str, ...] = ()
    """Also compare within these slices; they do not affect the verdict."""
    pair_by_id: bool = False
    """Pair cases by their eval ids alone: trials are in eval sets or apps with different names."""
    subset: bool = False
    """Head may lack cases of base; otherwise the verdict is inconclusive if it lacks more than 5 %."""


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case under one metric."""

    key: CaseKey
    name: str
    """The eval id, preceded by the eval set and the app if ids repeat."""
    base: Trials
    head: Trials
    p_value: float | None
    """Of the hypothesis "head passes no less often", for this case alone; None without verdicts on both
    sides."""
    change: Change
    outcome: Outcome
    rate: Rate | None = None
    """The pass rate of head's trials, for flaky cases."""
    passing: str = ""
    """A trial of base that passed, otherwise any trial that passed."""
    failing: str = ""
    """A trial of head that did not pass."""


@dataclass(frozen=True, slots=True)
class Totals:
    """One side under one metric."""

    rate: Rate | None
    """The mean of the cases' pass rates; for a metric with only scores, of their mean scores.  Its n is the
    number of cases, or of sessions.  None without cases."""
    trials: int
    missing: int = 0
    """Trials without a verdict."""
    mean_score: float | None = None

    @property
    def cases(self) -> int:
        """The number of cases, or of sessions."""
        return self.rate.n if self.rate else 0


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric over the cases that both sides have."""

    metric: str
    graded: bool
    """Whether the metric has only scores; its drop is that of the mean score."""
    decides: bool
    """Whether the metric affects the verdict."""
    base: Totals
    head: Totals
    drop: float
    """Base minus head."""
    interval: Interval
    """The 95 % interval of the drop."""
    p_value: float | None
    """Of the hypothesis "no worse"; None if there are too few cases for a test."""
    p_improvement: float | None
    detectable: float | None
    """The drop that 80 of 100 such comparisons would detect."""
    adjusted_p: float | None = None
    """Adjusted among the deciding metrics (Holm)."""
    adjusted_p_improvement: float | None = None
    q_value: float | None = None
    """The q-value among the other metrics (Benjamini and Hochberg)."""
    undecided: tuple[str, ...] = ()
    """Why no conclusion is possible."""
    cases: tuple[CaseChange, ...] = ()
    unit: Literal["case", "session"] = "case"
    """The unit of `Totals.cases`; sessions of traffic are not paired, and their trials are turns."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """A metric within a slice of the cases or of the traffic."""

    by: str
    value: str
    metric: MetricChange
    """The p-value is adjusted for all slices (Holm)."""


@dataclass(frozen=True, slots=True)
class UsageChange:
    """Cost or latency, over the cases for which both sides recorded it."""

    name: Literal["cost", "latency"]
    unit: str
    base: float
    """The geometric mean over cases."""
    head: float
    ratio: Rate
    """Head divided by base; its interval is unbounded with one case."""
    p_value: float
    """Two-sided, by flipping signs across cases."""
    of_one_side: int = 0
    """The cases for which only one side recorded it."""

    @property
    def is_bounded(self) -> bool:
        """Whether there are enough cases for an interval."""
        return self.ratio.n > 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A metric under which a case has an outcome."""

    metric: str
    figures: str
    """Passes and trials of both sides, and the judgement from the repeats."""
    reason: str = ""
    """Why the trial of head did not pass; empty if it passed, or if the side does not tell."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A case with an outcome other than passing on both sides, and what is known about it."""

    name: str
    outcome: Outcome
    findings: tuple[Finding, ...]
    """The metrics with this outcome, those that got worse first."""
    crash: str = ""
    """Why the agent's run failed in head; the metrics then have no reasons of their own."""
    question: str = ""
    """The user's first message, on one line."""
    lines: tuple[str, ...] = ()
    """The calls (`-` expected, or made in base if nothing is expected; `+` made in head) and the answers."""

    @property
    def reason(self) -> str:
        """The first reason; empty if none is known."""
        return self.crash or next((one.reason for one in self.findings if one.reason), "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes from base to head."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """The reasons for the verdict, in words."""
    rules: Rules
    base_name: str
    head_name: str
    base_runs: int
    head_runs: int
    metrics: tuple[MetricChange, ...]
    """Deciding metrics first, those that got worse before others."""
    usage: tuple[UsageChange, ...] = ()
    added: tuple[str, ...] = ()
    """Cases only in head."""
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Cases with different input or expectation; they are not compared."""
    notes: tuple[str, ...] = ()
    differences: Sequence[Difference] = ()
    """One entry per case and outcome: newly failing cases first, then by reason."""
    strata: tuple[Stratum, ...] = ()
    """Most certain first."""

    @property
    def exit_code(self) -> int:
        """0 passed, 1 worse or below the minimum, 3 inconclusive."""
        return EXIT_CODES[self.verdict]

    @property
    def leading(self) -> MetricChange:
        """The metric of the headline: the deciding metric with the smallest p-value."""
        better = self.verdict == "improvement"
        return min(self.metrics, key=lambda one: certainty(one, better=better))


def certainty(metric: MetricChange, *, better: bool = False) -> tuple[bool, float, float]:
    """Return the sort key of a metric among those that got worse, or better: most certain first."""
    adjusted = metric.adjusted_p_improvement if better else metric.adjusted_p
    value = (metric.p_improvement if better else metric.p_value) if adjusted is None else adjusted
    drop = 0.0 if math.isnan(metric.drop) else metric.drop
    return not metric.decides, 1.0 if value is None else value, drop if better else -drop


def comparison_data(found: Comparison) -> dict[str, Json]:
    """Return the comparison as JSON data; the top-level figures are those of the leading metric."""
    lead = found.leading
    return {
        "verdict": found.verdict,
        "exit_code": found.exit_code,
        "reasons": list(found.reasons),
        "alpha": found.rules.alpha,
        "margin": found.rules.margin,
        "metric": lead.metric,
        "p_value": lead.p_value if lead.adjusted_p is None else lead.adjusted_p,
        "drop": _number(lead.drop),
        "low": _number(lead.interval.low),
        "high": _number(lead.interval.high),
        "minimal_detectable_drop": lead.detectable,
        "base": {"name": found.base_name, "runs": found.base_runs, **_totals(lead.base)},
        "head": {"name": found.head_name, "runs": found.head_runs, **_totals(lead.head)},
        "metrics": [_metric(one) for one in found.metrics],
        "cases": [_case(case, one.metric) for one in found.metrics for case in one.cases],
        "usage": [
            {
                "name": one.name,
                "unit": one.unit,
                "cases": one.ratio.n,
                "base": one.base,
                "head": one.head,
                "ratio": one.ratio.value,
                "low": one.ratio.interval.low if one.is_bounded else None,
                "high": one.ratio.interval.high if one.is_bounded else None,
                "p_value": one.p_value,
            }
            for one in found.usage
        ],
        "strata": [
            {"by": one.by, "value": one.value, **_metric(one.metric)} for one in found.strata
        ],
        "added": list(found.added),
        "removed": list(found.removed),
        "changed": list(found.changed),
        "differences": [asdict(one) for one in found.differences],
        "notes": list(found.notes),
    }


def _totals(side: Totals) -> dict[str, Json]:
    return {
        "cases": side.cases,
        "trials": side.trials,
        "rate": side.rate and _number(side.rate.value),
        "low": _number(side.rate.interval.low) if side.rate else 0.0,
        "high": _number(side.rate.interval.high) if side.rate else 1.0,
        "missing": side.missing,
        "mean_score": side.mean_score,
    }


def _metric(metric: MetricChange) -> dict[str, Json]:
    return {
        "metric": metric.metric,
        "kind": "score" if metric.graded else "verdict",
        "unit": metric.unit,
        "decides": metric.decides,
        "p_value": metric.p_value,
        "adjusted_p": metric.adjusted_p,
        "q_value": metric.q_value,
        "p_value_improvement": metric.p_improvement,
        "drop": _number(metric.drop),
        "low": _number(metric.interval.low),
        "high": _number(metric.interval.high),
        "minimal_detectable_drop": metric.detectable,
        "base": _totals(metric.base),
        "head": _totals(metric.head),
        "undecided": list(metric.undecided),
    }


def _case(case: CaseChange, metric: str) -> dict[str, Json]:
    app, eval_set, _ = case.key
    rate = case.rate
    return {
        "eval_id": case.key[2],
        "eval_set_id": eval_set,
        "app_name": app,
        "metric": metric,
        "base": list(case.base),
        "head": list(case.head),
        "p_value": case.p_value,
        "change": case.change,
        "outcome": case.outcome,
        **(
            {"rate": rate.value, "low": rate.interval.low, "high": rate.interval.high}
            if rate
            else {}
        ),
    }


def _number(value: float) -> float | None:
    """Return a number; None for NaN and infinity, which JSON cannot represent and which mean no data."""
    return value if math.isfinite(value) else None
