"""What a watch measures: a share of turns, or a mean of their values, each in its unit."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.scope import SIGNALS, Signal
from evaltap.evaluator.analysis.stats.detector import BadTurns, share_of
from evaltap.evaluator.analysis.stats.rate import t95, wilson_of
from evaltap.evaluator.reports.figures import money
from evaltap.schemas.formats.monitor import Watch

MEANS: Final[Mapping[str, Signal]] = {
    "mean_score": Signal("score", "score IS NOT NULL", of_metric=True),
    "mean_cost": Signal("cost_usd", "cost_usd IS NOT NULL"),
    "mean_latency": Signal("latency_ms", "latency_ms IS NOT NULL"),
    "mean_tokens": Signal(
        "input_tokens + output_tokens", "input_tokens + output_tokens IS NOT NULL"
    ),
}
"""Means that only watches know; `has` is the value of a turn."""
_UNITS: Final = {
    "mean_score": "score",
    "mean_cost": "usd",
    "mean_latency": "ms",
    "mean_tokens": "tokens",
}
CAP_SHARE: Final = 0.99
CAP_TIMES: Final = 3.0
"""In a learned mean, a turn counts up to so many times this quantile of the baseline: the test needs bounds.

The quantile itself misses a few turns that cost twenty times as much; ten times the quantile hardly ever
lets an alarm resolve.
"""


class Found(NamedTuple):
    """A share or mean, with its 95 % interval, and what it is of."""

    value: float
    low: float
    high: float
    turns: int
    sessions: int


def signal_of(watch: Watch) -> Signal:
    """Return the signal of a watch, other than one of silence."""
    return MEANS.get(watch.signal) or SIGNALS[watch.signal]


def unit_of(watch: Watch) -> str:
    """Return the unit of a watched mean: usd, ms, tokens or score; empty for a share."""
    return _UNITS.get(watch.signal, "")


def is_good(watch: Watch) -> bool:
    """Return whether the share or mean must not fall, instead of not rise."""
    return watch.signal in ("pass_rate", "mean_score")


def shown(value: float, unit: str) -> str:
    """Return a share or mean as text."""
    if unit == "usd":
        return money(value)
    if unit == "score":
        return f"{value:.3f}"
    return f"{value:,.0f} {unit}" if unit else f"{value:.1%}"


def mean_of(
    sessions: Iterable[tuple[float, float, int]], largest: float, *, fewest: float = 0.0
) -> Found | None:
    """Return the mean over sessions, each given by its weighted sum, its weight and its turns.

    None without turns, or with fewer effective sessions.  No value is above `largest`; the interval is
    Wilson's for the mean as a part of it, with the trials that the variance between sessions leaves, and
    Student's t.
    """
    given = [one for one in sessions if one[2]]
    weights = [weight for _, weight, _ in given]
    effective = sum(weights) ** 2 / sum(one**2 for one in weights) if given else 0.0
    if not given or effective < fewest:
        return None
    scale = largest or 1.0
    mean, spread = share_of([BadTurns(total / scale, weight) for total, weight, _ in given])
    spread *= len(given) / max(1, len(given) - 1)
    mean = min(1.0, max(0.0, mean))
    part = mean * (1 - mean)
    trials = part / spread if spread > 0 and part > 0 else effective
    low, high = wilson_of(mean, max(1.0, trials), t95(max(1.0, effective - 1)))
    return Found(mean * scale, low * scale, high * scale, sum(n for *_, n in given), len(given))
