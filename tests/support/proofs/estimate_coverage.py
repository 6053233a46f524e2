"""Simulated samples compared with their truth: errors of estimates, and coverage of their intervals."""

from collections.abc import Iterable

import numpy as np

from evaltap.evaluator.analysis.stats.estimate import Cell, Estimate, Profile, estimate
from evaltap.evaluator.analysis.stats.rate import wilson_of
from support.worlds.traffic import Drawn, Setting, cells_of, draw


def estimated(profiles: Iterable[Profile], *, scores: bool = False) -> Estimate:
    """Return an estimate that there is."""
    found = estimate(profiles, scores=scores)
    assert found is not None
    return found


def profiles_of(drawn: Drawn, *, by_turn: bool = True) -> list[Profile]:
    """Return drawn turns as estimators see them."""
    return [
        Profile(tuple(Cell(p1, n, y, y, p2, by_turn) for p1, p2, n, y in cells), count)
        for cells, count in cells_of(drawn).items()
    ]


SETTINGS = {
    "all, one turn": Setting(turns=60, rate=0.95),
    "head, long sessions": Setting(turns=2000, longest=20, correlation=0.1, head=0.2),
    "errors kept": Setting(turns=1000, longest=4, correlation=0.2, head=0.2, rule=1),
    "errors kept, sessions": Setting(
        turns=1000, longest=4, correlation=0.2, head=0.2, rule=1, whole=True
    ),
    "near 1": Setting(turns=1500, longest=4, rate=0.98, correlation=0.1, head=0.3, rule=1),
    "near 0": Setting(turns=1500, longest=4, rate=0.02, correlation=0.1, head=0.3, rule=1),
    "two draws": Setting(turns=1500, longest=4, correlation=0.1, head=0.5, rule=1, scored=0.4),
    "rate limit": Setting(turns=1000, longest=4, correlation=0.1, head=0.5, rule=1, limited=True),
    "rare failures, few long sessions": Setting(turns=2000, longest=20, rate=0.98, correlation=0.2, head=0.2),
    "rare passes, few long sessions": Setting(turns=2000, longest=20, rate=0.02, correlation=0.3, head=0.2),
    "unlike sessions, all recorded": Setting(turns=300, longest=8, rate=0.98, correlation=0.2),
}  # fmt: skip


class Tally:
    """Estimates of many samples against their truths."""

    def __init__(self, setting: Setting, rounds: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rounds, self.process, self.traffic, self.kish = rounds, 0, 0, 0
        errors, unweighted, sessions, widths = [], [], [], []
        for _ in range(rounds):
            drawn = draw(setting, rng)
            found = estimated(profiles_of(drawn, by_turn=setting.by_turn))
            self.process += found.rate.interval.low <= setting.rate <= found.rate.interval.high
            self.traffic += found.traffic.low - 1e-9 <= drawn.truth <= found.traffic.high + 1e-9
            errors.append(found.rate.value - setting.rate)
            unweighted.append(float(drawn.passed.mean()) - setting.rate)
            weights = 1 / (drawn.recorded * drawn.scored)
            low, high = wilson_of(found.rate.value, float(weights.sum() ** 2 / (weights**2).sum()))
            self.kish += low <= setting.rate <= high
            sessions.append(found.sessions)
            widths.append(found.rate.interval.high - found.rate.interval.low)
        self.sessions, self.width = float(np.mean(sessions)), float(np.mean(widths))
        self.bias = float(np.mean(errors))
        self.error = float(np.std(errors) / np.sqrt(rounds))
        self.bias_unweighted = float(np.mean(unweighted))
