"""The interval of a weighted mean of turns in layers and sessions: steps 3 to 9 of an estimate.

A layer is a stratum of equal inclusion probability (`estimate`), or a group of turns of a forecast.  The
numbers of the steps are those of docs/explanation/estimates.md.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.rate import Interval, t95, wilson_of

ENOUGH_SESSIONS: Final = 10
"""With fewer sessions in a layer, its own variance alone is not reliable."""
LEAN: Final = 0.2
"""Set by simulation: docs/benchmarks/estimates.py."""
FEW_BELOW: Final = 4
"""With so many sessions whose scores are not all 1 (or 0), half of what the variance of the scores gains is
believed; set by simulation, so that intervals of a mean near 1 cover as often as they say."""
_NO_VARIANCE: Final = 1e-24


class SessionSum(NamedTuple):
    """A weighted sum over the turns of a session, with the sum of their weights."""

    sessions: int
    """The number of sessions with these sums."""
    total: float
    weight: float


class SessionWeight(NamedTuple):
    """The sums of the weights of a session's turns and of their squares."""

    sessions: int
    weight: float
    squares: float


class Layer(NamedTuple):
    """Turns whose uncertainty is computed together."""

    share: float
    """W, their share of the traffic."""
    mean: float
    """p"""
    variance: float
    """v, the variance of the mean, leaving out one session at a time."""
    spread: float
    """The variance of a single score around what is expected of it; p(1 - p) if nothing is expected."""
    kish: float
    """k, the effective number of equally weighted turns: (Σw)²/Σw²."""
    turns: int
    sessions: int
    whole_sessions: float
    """The effective number of equally weighted sessions: (Σw)²/Σ_s(Σ_s w)²."""
    sessions_with_rarer: int
    """The number of sessions with the rarer verdict (pass or fail), at least 1."""

    @property
    def plain_spread(self) -> float:
        """The variance of a single score if nothing is expected of it, p(1 - p)."""
        return self.mean * (1 - self.mean)

    @property
    def gain(self) -> float:
        """How many times as much a turn says because something is expected of it, at least 1."""
        known = self.spread > 0 and self.plain_spread > 0
        return max(1.0, self.plain_spread / self.spread) if known else 1.0

    def default_trials(self, deff: float | None) -> float:
        """Return the effective size as the other layers and the weights suggest it."""
        if deff is None:
            return min(self.kish, self.sessions)
        return self.kish * self.gain / deff

    def trials(self, deff: float | None, *, scores: bool) -> float:
        """Return m, the effective size (step 5)."""
        default = self.default_trials(deff)
        if not (self.plain_spread > 0 and self.variance > 0):
            return default
        own = self._with_few_rare(self.plain_spread / self.variance, scores=scores)
        if not scores:
            own = min(own, self.turns * self.gain)
        return own if self.sessions >= ENOUGH_SESSIONS else min(own, default)

    def _with_few_rare(self, own: float, *, scores: bool) -> float:
        """Return the effective size of a layer in which few sessions have the rarer verdict.

        Only these sessions show how similar the turns of a session are, and a single one shows almost
        nothing.  So the variance is shifted towards that of sessions whose turns are all alike; the more such
        sessions there are, the smaller the shift.  Of scores, it is the sessions that are not all
        1 (or 0) that count: the worst of them may be missing from the sample.
        """
        rare = self.sessions_with_rarer
        lean = 1 / (1 + (rare / FEW_BELOW) ** 2) if scores else LEAN / rare
        return 1 / ((1 - lean) / own + lean / min(own, self.whole_sessions))


class Reach:
    """How far the interval of a mean over layers extends."""

    def __init__(
        self, layers: Sequence[Layer], weights: Sequence[SessionWeight], *, scores: bool = False
    ) -> None:
        self._layers = layers
        self.design_effect = _design_effect(layers, scores=scores)
        """The variance relative to that of independent turns; None if all scores are equal."""
        self.effective_sessions = _effective_sessions(weights, self.design_effect)
        """The number of sessions of equal weight with the same information."""
        self.t = t95(max(self.effective_sessions - 1, 1))
        trials = [one.trials(self.design_effect, scores=scores) for one in layers]
        self._within = sum(
            one.share**2 * one.plain_spread / m for one, m in zip(layers, trials, strict=True)
        )
        self._ends = [wilson_of(one.mean, m, self.t) for one, m in zip(layers, trials, strict=True)]

    @property
    def default_trials(self) -> float:
        """The sum of the layers' effective sizes as weights and design effect suggest them."""
        return sum(one.default_trials(self.design_effect) for one in self._layers)

    def factor(self, variance: float, between: float) -> float:
        """Return by how much the variance of the whole exceeds that of its parts, at least 1 (step 8)."""
        known = self._within + between
        return max(1.0, variance / known) if known > 0 else 1.0

    def interval(
        self,
        value: float,
        factor: float,
        between: float,
        *,
        thinned: Sequence[float] | None = None,
        least: float = 0.0,
    ) -> Interval:
        """Combine the layers' intervals and the variance between them by square and add (step 9).

        `thinned` scales the part of each layer.  The result is cut to `least` and 1.
        """
        below = above = self.t**2 * between
        shares = thinned or [1.0] * len(self._layers)
        for one, end, share in zip(self._layers, self._ends, shares, strict=True):
            below += share * (one.share * (one.mean - end.low)) ** 2
            above += share * (one.share * (end.high - one.mean)) ** 2
        low, high = value - math.sqrt(factor * below), value + math.sqrt(factor * above)
        return Interval(max(least, low), min(1.0, high))


def leaving_one_out(sums: Iterable[SessionSum], weight: float) -> float:
    """Return (C-1)/C · Σ_s (Σ_s we / (Σw - Σ_s w))² of C sessions, with `weight` = Σw (step 3)."""
    count, total = 0, 0.0
    for one in sums:
        count += one.sessions
        rest = weight - one.weight
        if rest > 0:
            total += one.sessions * (one.total / rest) ** 2
    # The rounding error of sessions that are all alike is not variance.
    return (count - 1) / count * total if count > 1 and total > _NO_VARIANCE else 0.0


def _design_effect(layers: Iterable[Layer], *, scores: bool) -> float | None:
    """Return step 4: the variance of the mean within layers over that of independent turns."""
    found = simple = 0.0
    for one in layers:
        if one.spread > 0 and one.sessions > 1:
            found += one.share**2 * one.variance
            simple += one.share**2 * one.spread / one.kish
    if not found:
        return None if scores or not simple else 1.0
    return found / simple if scores else max(1.0, found / simple)


def _effective_sessions(weights: Sequence[SessionWeight], design_effect: float | None) -> float:
    """Return (Σa)²/Σa²; a is a session's part of the variance if its turns correlate by r (step 6).

    a = (1-r)·Σw² + r·(Σw)²; r follows from the design effect.
    """
    clustered = sum(one.sessions * one.weight**2 for one in weights)
    excess = clustered / sum(one.sessions * one.squares for one in weights) - 1
    if design_effect is None:
        correlation = 1.0
    elif excess > 1e-12:
        correlation = min(max((design_effect - 1) / excess, 0.0), 1.0)
    else:
        correlation = 0.0
    own = [
        (one.sessions, (1 - correlation) * one.squares + correlation * one.weight**2)
        for one in weights
    ]
    return sum(n * a for n, a in own) ** 2 / sum(n * a * a for n, a in own)
