"""The documented figures of a forecast, computed from arrays: slow, without code of the product."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # type: ignore[import-untyped]  # scipy ships no types

Numbers = npt.NDArray[np.float64]
TINY = 1e-12


class ForecastOracle:
    """What the figures of turns (session, a, o, cell, group) and items (turn, run, w, y) must be."""

    def __init__(
        self,
        turns: Sequence[tuple[Any, ...]],
        items: Sequence[tuple[Any, ...]],
        *,
        deterministic: bool = False,
        has_change: bool = True,
    ) -> None:
        self.session, self.a, self.old, self.cell, self.group = map(
            np.array, zip(*turns, strict=True)
        )
        at, self.run, self.w, y = map(np.array, zip(*items, strict=True))
        self.at, self.y, self.old = at, y.astype(float), self.old.astype(float)
        self.deterministic = deterministic
        names = np.unique(self.session)
        full = np.ones(len(self.a), bool)
        self.kept: dict[Any, float] = {}
        self.r = {c: self._cell_rate(c, full) for c in np.unique(self.cell)}
        self.kept = self.r
        self.rate, self.old_rate = self._rate(full)
        self.change = self.rate - self.old_rate
        without = np.array([self._rate(self.session != name) for name in names if len(names) > 1])
        n = len(names)
        rates = without[:, 0] if n > 1 else np.zeros(0)
        changes = rates - without[:, 1] if n > 1 else rates
        self.variance = (n - 1) / n * ((rates - self.rate) ** 2).sum()
        self.variance_of_change = (n - 1) / n * ((changes - self.change) ** 2).sum()
        self._layers(names)
        r = np.array([self.r[c] for c in self.cell])
        self.interval = self._interval(self.rate, r - self.rate, self.variance, 0.0)
        difference = r - self.old - self.change
        self.change_interval = self._interval(
            self.change, difference, self.variance_of_change, -1.0
        )
        if has_change and len(np.unique(self.old)) == 1:
            self.change_interval = self._with_unseen(*self.change_interval)
        self.traffic = self._traffic(r - self.rate)

    def _with_unseen(self, low: float, high: float) -> tuple[float, float]:
        """Add the reach of the old rate: an estimate, with π for cells and groups."""
        turns = [(s, a, self.old_rate, a, a) for s, a in zip(self.session, self.a, strict=True)]
        items = [(place, 0, a, self.old_rate) for place, a in enumerate(self.a)]
        ends = ForecastOracle(turns, items, has_change=False).interval
        return (
            max(-1.0, float(self.change - np.hypot(self.change - low, ends[1] - self.old_rate))),
            min(1.0, float(self.change + np.hypot(high - self.change, self.old_rate - ends[0]))),
        )

    def _cell_rate(self, cell: Any, turns: npt.NDArray[np.bool_]) -> float:
        here = (self.cell[self.at] == cell) & turns[self.at]
        if not here.any():
            return self.kept[cell]
        return float((self.w * self.y)[here].sum() / self.w[here].sum())

    def _rate(self, turns: npt.NDArray[np.bool_]) -> tuple[float, float]:
        whole = self.a[turns].sum()
        rate = sum(
            self.a[turns & (self.cell == c)].sum() / whole * self._cell_rate(c, turns)
            for c in np.unique(self.cell[turns])
        )
        return float(rate), float((self.a * self.old)[turns].sum() / whole)

    def _jackknife(self, names: Any, weights: Numbers, residuals: Numbers) -> float:
        clusters = np.unique(names)
        if len(clusters) < 2:
            return 0.0
        whole = weights.sum()
        terms = [
            (weights * residuals)[names == one].sum() / (whole - weights[names == one].sum())
            for one in clusters
        ]
        found = (len(clusters) - 1) / len(clusters) * float((np.array(terms) ** 2).sum())
        return found if found > 1e-24 else 0.0

    def _layers(self, names: Any) -> None:
        cell, group, session = self.cell[self.at], self.group[self.at], self.session[self.at]
        share = {c: self.a[self.cell == c].sum() / self.a.sum() for c in np.unique(self.cell)}
        drawn = {c: self.w[cell == c].sum() for c in np.unique(cell)}
        omega = np.array([share[c] * w / drawn[c] for c, w in zip(cell, self.w, strict=True)])
        r = np.array([self.r[c] for c in cell])
        self.layers: list[dict[str, float]] = []
        for g in np.unique(group):
            here = group == g
            o, w, y, mine = omega[here].sum(), omega[here], self.y[here], session[here]
            by_turn = np.array([w[self.at[here] == t].sum() for t in np.unique(self.at[here])])
            by_session = [w[mine == one].sum() for one in np.unique(mine)]
            p = float((w * y).sum() / o)
            one = {
                "share": o, "p": p, "s2": float((w * r[here] * (1 - r[here])).sum() / o),
                "v": self._jackknife(mine, w, y - r[here]), "k": o**2 / (by_turn**2).sum(),
                "n": len(by_turn), "C": len(by_session), "whole": o**2 / (np.array(by_session) ** 2).sum(),
                "rare": min(
                    sum(y[mine == s].max() > 0.5 for s in np.unique(mine)),
                    sum(y[mine == s].min() < 0.5 for s in np.unique(mine)),
                ),
                "population": self.a[self.group == g].sum(),
                "own": self._own(mine, self.run[here], w * (y - r[here]) / o),
            }  # fmt: skip
            spread = p * (1 - p)
            one["gain"] = (
                max(1.0, spread / one["s2"]) if spread > TINY and one["s2"] > TINY else 1.0
            )
            self.layers.append(one)
        usable = [one for one in self.layers if one["s2"] > TINY and one["C"] > 1]
        found = sum(one["share"] ** 2 * one["v"] for one in usable)
        simple = sum(one["share"] ** 2 * one["s2"] / one["k"] for one in usable)
        self.deff = max(1.0, found / simple) if usable else None
        turn_weights = np.array([omega[self.at == t].sum() for t in np.unique(self.at)])
        of = np.array([self.session[t] for t in np.unique(self.at)])
        m = np.array([turn_weights[of == one].sum() for one in np.unique(of)])
        q = np.array([(turn_weights[of == one] ** 2).sum() for one in np.unique(of)])
        excess = (m**2).sum() / q.sum() - 1
        rho = 1.0 if self.deff is None else 0.0
        if self.deff is not None and excess > TINY:
            rho = float(np.clip((self.deff - 1) / excess, 0, 1))
        a = (1 - rho) * q + rho * m**2
        self.sessions = float(a.sum() ** 2 / (a**2).sum())
        self.t = float(scipy.stats.t.ppf(0.975, max(self.sessions - 1, 1)))
        for one in self.layers:
            self._size(one)

    def _own(self, names: Any, runs: Any, terms: Numbers) -> float:
        """The agent's own part of v, before it is divided by v."""
        number = int(self.run.max()) + 1
        if number == 1:
            return np.inf
        total = 0.0
        for one in np.unique(names):
            z = np.array(
                [terms[(names == one) & (runs == r)].sum() * number for r in range(number)]
            )
            total += ((z - z.mean()) ** 2).sum() / (number * (number - 1))
        return total

    def _size(self, one: dict[str, float]) -> None:
        p, spread = one["p"], one["p"] * (1 - one["p"])
        base = min(one["k"], one["C"]) if self.deff is None else one["k"] * one["gain"] / self.deff
        m = base
        if spread > TINY and one["v"] > 0:
            own = spread / one["v"]
            lean = 0.2 / max(1, one["rare"])
            own = 1 / ((1 - lean) / own + lean / min(own, one["whole"]))
            m = min(own, one["n"] * one["gain"])
            m = m if one["C"] >= 10 else min(m, base)
        t = self.t
        centre = (p + t * t / 2 / m) / (1 + t * t / m)
        half = t * np.sqrt(spread / m + t * t / 4 / m / m) / (1 + t * t / m)
        one["m"], one["within"] = m, one["share"] ** 2 * spread / m
        one["below"] = 0.0 if p <= TINY else one["share"] * (p - (centre - half))
        one["above"] = 0.0 if p >= 1 - TINY else one["share"] * (centre + half - p)
        own = 0.0 if self.deterministic else min(1.0, one["own"] / one["v"]) if one["v"] else 1.0
        one["phi"] = 1 - min(1.0, one["n"] / one["population"]) * (1 - own)

    def _combined(
        self,
        value: float,
        factor: float,
        b: float,
        part: Callable[[dict[str, float]], float],
        least: float,
    ) -> tuple[float, float]:
        below = sum(part(one) * one["below"] ** 2 for one in self.layers) + self.t**2 * b
        above = sum(part(one) * one["above"] ** 2 for one in self.layers) + self.t**2 * b
        return (
            max(least, value - float(np.sqrt(factor * below))),
            min(1.0, value + float(np.sqrt(factor * above))),
        )

    def _interval(
        self, value: float, residuals: Numbers, variance: float, least: float
    ) -> tuple[float, float]:
        b = self._jackknife(self.session, self.a, residuals)
        known = sum(one["within"] for one in self.layers) + b
        factor = max(1.0, variance / known) if known > 1e-20 else 1.0
        return self._combined(value, factor, b, lambda _: 1.0, least)

    def _traffic(self, residuals: Numbers) -> tuple[float, float]:
        b = 0.0
        for name in np.unique(self.session):
            mine = self.session == name
            p1 = 1 / self.a[mine][0]
            b += (1 - p1) * ((self.a * residuals)[mine].sum() / self.a.sum()) ** 2
        return self._combined(self.rate, 1.0, b, lambda one: one["phi"], 0.0)
