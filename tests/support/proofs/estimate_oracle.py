"""The documented estimate of a rate, computed turn by turn: slow, and without code of the product."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # type: ignore[import-untyped]  # scipy ships no types

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
TINY = 1e-12


@dataclass
class Stratum:
    """Turns with one inclusion probability."""

    here: Mask
    share: float
    mean: float
    kish: float
    turns: int
    sessions: int
    variance: float
    trials: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def differs(self) -> bool:
        return TINY < self.mean < 1 - TINY


class Oracle:
    """What the estimate of some turns must be."""

    def __init__(
        self,
        session: Any,
        recorded: Any,
        scored: Any,
        score: Any,
        *,
        by_turn: bool = True,
        binary: bool = True,
    ) -> None:
        self.session = np.asarray(session)
        self.p1, self.p2 = np.asarray(recorded, float), np.asarray(scored, float)
        self.y, self.by_turn, self.binary = np.asarray(score, float), by_turn, binary
        self.pi = self.p1 * self.p2
        self.w = 1 / self.pi
        self.estimated_turns = self.w.sum()
        self.rate = float((self.w * self.y).sum() / self.estimated_turns)
        self.strata = self._strata()
        self.design_effect = self._design_effect()
        self._sizes()
        self.effective_sessions = self._effective_sessions()
        self.t = float(scipy.stats.t.ppf(0.975, max(self.effective_sessions - 1, 1)))
        for one in self.strata:
            one.low, one.high = self._wilson(one.mean, one.trials)
        self._intervals()

    def _strata(self) -> list[Stratum]:
        key = self.pi
        if len(np.unique(self.pi)) > 8:
            key = 2.0 ** np.round(np.log2(self.pi))
        found = []
        for value in np.unique(key):
            here = key == value
            w, weight = self.w[here], self.w[here].sum()
            mean = float((w * self.y[here]).sum() / weight)
            sessions = len(np.unique(self.session[here]))
            variance = self._leave_one_out(self.y - mean, here)
            kish = weight**2 / (w**2).sum()
            share = weight / self.estimated_turns
            found.append(Stratum(here, share, mean, kish, int(here.sum()), sessions, variance))
        return found

    def _leave_one_out(self, e: Numbers, here: Mask) -> float:
        """J(e) over the turns here."""
        names, weight = np.unique(self.session[here]), self.w[here].sum()
        if len(names) < 2:
            return 0.0
        total = 0.0
        for name in names:
            mine = here & (self.session == name)
            total += ((self.w * e)[mine].sum() / weight / (1 - self.w[mine].sum() / weight)) ** 2
        # What rounding leaves of sessions that are all alike is no variance.
        return float((len(names) - 1) / len(names) * total) if total > 1e-24 else 0.0

    def _design_effect(self) -> float | None:
        usable = [one for one in self.strata if one.differs and one.sessions >= 2]
        found = sum(one.share**2 * one.variance for one in usable)
        simple = sum(one.share**2 * one.mean * (1 - one.mean) / one.kish for one in usable)
        if not usable:
            return None
        return max(1.0, found / simple) if self.binary else (found / simple or None)

    def _default(self, one: Stratum) -> float:
        if self.design_effect is None:
            return min(one.kish, one.sessions)
        return one.kish / self.design_effect

    def _sizes(self) -> None:
        for one in self.strata:
            one.trials = self._default(one)
            if one.differs and one.variance > 0:
                own = one.mean * (1 - one.mean) / one.variance
                own = self._leaning(one, own)
                own = min(own, one.turns) if self.binary else own
                one.trials = own if one.sessions >= 10 else min(own, one.trials)

    def _leaning(self, one: Stratum, own: float) -> float:
        """Step 5: few sessions with the rarer verdict tell little of how alike turns or scores are."""
        mine, w, y = self.session[one.here], self.w[one.here], self.y[one.here]
        names = np.unique(mine)
        some = sum(y[mine == name].max() > 0 for name in names)
        not_all = sum(y[mine == name].min() < 1 for name in names)
        whole = w.sum() ** 2 / sum(w[mine == name].sum() ** 2 for name in names)
        rare = max(1, min(some, not_all))
        lean = 0.2 / rare if self.binary else 1 / (1 + (rare / 4) ** 2)
        return float(1 / ((1 - lean) / own + lean / min(own, whole)))

    def _effective_sessions(self) -> float:
        names = np.unique(self.session)
        m = np.array([self.w[self.session == name].sum() for name in names])
        q = np.array([(self.w[self.session == name] ** 2).sum() for name in names])
        excess = (m**2).sum() / q.sum() - 1
        rho = 0.0
        if self.design_effect is None:
            rho = 1.0
        elif excess > TINY:
            rho = float(np.clip((self.design_effect - 1) / excess, 0, 1))
        a = (1 - rho) * q + rho * m**2
        return float(a.sum() ** 2 / (a**2).sum())

    def _wilson(self, p: float, n: float) -> tuple[float, float]:
        t = self.t
        centre = (p + t * t / 2 / n) / (1 + t * t / n)
        spread = t * np.sqrt(p * (1 - p) / n + t * t / 4 / n / n) / (1 + t * t / n)
        return (
            0.0 if p <= TINY else float(centre - spread),
            1.0 if p >= 1 - TINY else float(centre + spread),
        )

    def _intervals(self) -> None:
        everything = np.ones(len(self.y), bool)
        mean = np.zeros(len(self.y))
        for one in self.strata:
            mean[one.here] = one.mean
        between = self._leave_one_out(mean - self.rate, everything)
        variance = self._leave_one_out(self.y - self.rate, everything)
        within = sum(one.share**2 * one.mean * (1 - one.mean) / one.trials for one in self.strata)
        self.factor = max(1.0, variance / (within + between)) if within + between > 1e-20 else 1.0
        self.process = self._reach(lambda _: 1.0, self.t**2 * between)
        self.traffic = (self.rate, self.rate)
        if (self.pi < 1).any():
            drawn = self.t**2 * max(0.0, self._drawn(mean - self.rate, everything))
            self.traffic = self._reach(self._thinned, drawn)
        self.effective_turns = (
            self.rate * (1 - self.rate) / variance
            if variance > 0
            else sum(self._default(one) for one in self.strata)
        )

    def _reach(self, part: Callable[[Stratum], float], between: float) -> tuple[float, float]:
        below = sum(part(one) * one.share**2 * (one.mean - one.low) ** 2 for one in self.strata)
        above = sum(part(one) * one.share**2 * (one.high - one.mean) ** 2 for one in self.strata)
        low = self.rate - np.sqrt(self.factor * (below + between))
        high = self.rate + np.sqrt(self.factor * (above + between))
        return float(max(low, 0)), float(min(high, 1))

    def _thinned(self, one: Stratum) -> float:
        """φ of a stratum."""
        e, weight = self.y - one.mean, self.w[one.here].sum()
        residuals = [
            ((self.w * e)[one.here & (self.session == name)].sum() / weight) ** 2
            for name in np.unique(self.session[one.here])
        ]
        if sum(residuals) > 1e-20 and one.differs:
            return float(min(1.0, max(0.0, self._drawn(e, one.here)) / sum(residuals)))
        w, pi = self.w[one.here], self.pi[one.here]
        return float((w**2 * (1 - pi)).sum() / (w**2).sum())

    def _drawn(self, e: Numbers, here: Mask) -> float:
        """D(e) over the turns here: every pair of turns of a session."""
        weight, total = self.w[here].sum(), 0.0
        for name in np.unique(self.session[here]):
            at = np.flatnonzero(here & (self.session == name))
            z = self.w[at] * e[at] / weight
            p2 = self.p2[at]
            q = np.multiply.outer(p2, p2) if self.by_turn else np.minimum.outer(p2, p2)
            np.fill_diagonal(q, p2)
            both = np.minimum.outer(self.p1[at], self.p1[at]) * q
            pi = self.pi[at]
            total += float(((1 - np.multiply.outer(pi, pi) / both) * np.multiply.outer(z, z)).sum())
        return total
