"""Pairs of runs with known truth: how often a comparison reports a regression, and how often it could have.

Compared with the product's test: common rules ("any drop", "more than 5 points"), and the likelihood ratio
test that also exchanges trials, but knows how many cases fall and how far, though not which.  Like the
product's test, it reports no regression if the overall pass rate did not fall.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from evaltap.evaluator.analysis.stats.difference import difference, mean_rate
from evaltap.evaluator.analysis.stats.exchange import Pair, Trials, drop_p_value
from evaltap.evaluator.analysis.stats.rate import Rate
from support.proofs.estimate_coverage import estimated, profiles_of
from support.worlds.traffic import Setting, draw

LEVEL = 0.02
SURE, STEADY, FLAKY = 1.0, 0.95, 0.7
TWENTY = (SURE,) * 12 + (STEADY,) * 4 + (FLAKY,) * 4
"""Twenty cases: twelve that always pass, four that nearly do, four that often do."""


@dataclass(frozen=True)
class Scenario:
    """How often cases pass in base, what happens to them in head, and how often each is tried."""

    base: Sequence[float]
    fallen: int = 0
    """So many cases, the first ones, are touched."""
    falls: Callable[[float], float] = float
    """The new rate of a case that is touched."""
    base_trials: int = 5
    head_trials: int = 5

    @property
    def head(self) -> list[float]:
        """How often cases pass in head."""
        return [self.falls(q) if at < self.fallen else q for at, q in enumerate(self.base)]

    @property
    def drop(self) -> float:
        """The true drop."""
        return (sum(self.base) - sum(self.head)) / len(self.base)

    def draw(self, source: random.Random) -> list[Pair]:
        """Return two runs."""
        return [
            Pair(
                Trials(_passes(one, self.base_trials, source), self.base_trials),
                Trials(_passes(other, self.head_trials, source), self.head_trials),
            )
            for one, other in zip(self.base, self.head, strict=True)
        ]


def _passes(rate: float, trials: int, source: random.Random) -> int:
    return sum(source.random() < rate for _ in range(trials))


SCENARIOS = {
    "nothing changed": Scenario(TWENTY),
    "nothing changed, 20 trials in base": Scenario(TWENTY, base_trials=20),
    "nothing changed, 3 trials": Scenario(TWENTY, base_trials=3, head_trials=3),
    "nothing changed, 80 cases": Scenario(TWENTY * 4),
    "one case broke": Scenario(TWENTY, 1, lambda q: 0.0),
    "three cases at half": Scenario(TWENTY, 3, lambda q: 0.5),
    "sure cases fell to 80 %": Scenario(TWENTY, 12, lambda q: 0.8),
    "all fell by 15 points": Scenario(TWENTY, 20, lambda q: q - 0.15),
    "one case at 40 %, 20 trials in base": Scenario(TWENTY, 1, lambda q: 0.4, base_trials=20),
    "one case broke, 3 trials": Scenario(TWENTY, 1, lambda q: 0.0, 3, 3),
    "one case broke, 10 trials in base, 3 in head": Scenario(TWENTY, 1, lambda q: 0.0, 10, 3),
}


@dataclass(frozen=True)
class Found:
    """Shares of simulated comparisons."""

    any_drop: float
    five_points: float
    product: float
    ideal: float
    covered: float
    """How often the interval of the drop holds the true one."""


def simulate(scenario: Scenario, rounds: int, *, seed: int = 2026, ideal: bool = True) -> Found:
    """Return how often each rule calls a regression."""
    source = random.Random(seed)
    any_drop = five = product = best = covered = 0
    for _ in range(rounds):
        pairs = scenario.draw(source)
        drop = difference(*(mean_rate(list(side)) for side in zip(*pairs, strict=True)))
        any_drop += drop.value > 1e-9
        five += drop.value > 0.05 + 1e-9
        product += drop.value > 1e-9 and drop_p_value(pairs, level=LEVEL) <= LEVEL
        best += ideal and drop.value > 1e-9 and _best_p_value(scenario, pairs) <= LEVEL
        covered += drop.interval.low - 1e-9 <= scenario.drop <= drop.interval.high + 1e-9
    return Found(*(count / rounds for count in (any_drop, five, product, best, covered)))


def _best_p_value(scenario: Scenario, pairs: Sequence[Pair]) -> float:
    """Return the p-value of the likelihood ratio when trials are exchanged within cases."""
    law, observed = {0: 1.0}, 0
    for (base_passes, base), (head_passes, head) in pairs:
        evidence = _evidence(scenario, base, head, base_passes + head_passes)
        observed += evidence[head_passes][0]
        if len(evidence) > 1:
            law = _sum(law, list(evidence.values()))
    return sum(chance for value, chance in law.items() if value >= observed)


def _sum(law: dict[int, float], other: Sequence[tuple[int, float]]) -> dict[int, float]:
    found: defaultdict[int, float] = defaultdict(float)
    for value, chance in law.items():
        for added, factor in other:
            found[value + added] += chance * factor
    return found


@cache
def _evidence(
    scenario: Scenario, base: int, head: int, passes: int
) -> dict[int, tuple[int, float]]:
    """Return the log likelihood ratio of head's passes, in hundredths, and their chance by exchange."""
    share = scenario.fallen / len(scenario.base)
    rate = sum(scenario.base) / len(scenario.base)
    odds = 1.0
    for one, sign in ((scenario.falls(rate), 1), (rate, -1)):
        inner = min(max(one, 0.001), 0.999)
        odds *= (inner / (1 - inner)) ** sign
    reached = range(max(0, passes - base), min(head, passes) + 1)
    chances = {one: math.comb(head, one) * math.comb(base, passes - one) for one in reached}
    every = sum(chances.values())
    fallen = sum(chance * odds**one for one, chance in chances.items()) / every
    return {
        one: (
            round(100 * math.log(1 - share + share * odds**one / fallen + 1e-12)),
            chance / every,
        )
        for one, chance in chances.items()
    }


@dataclass(frozen=True)
class FoundInTraffic:
    """Shares of simulated comparisons of two weeks of traffic."""

    unchanged: float
    """How often the same traffic is called worse."""
    fallen: float
    """How often a fall of five points is found."""
    covered: float
    """How often the interval of the difference holds 0, where nothing changed."""


def simulate_traffic(setting: Setting, rounds: int, *, seed: int = 2026) -> FoundInTraffic:
    """Return how often two weeks of traffic differ by the test, when they are alike and when they are not."""
    rng = np.random.default_rng(seed)
    lower = replace(setting, rate=max(0.01, setting.rate - 0.05))
    unchanged = fallen = covered = 0
    for _ in range(rounds):
        base, same, worse = (_rate(one, rng) for one in (setting, setting, lower))
        found = difference(base, same)
        unchanged += found.p_value <= LEVEL and found.value > 0
        covered += found.interval.low <= 0 <= found.interval.high
        fallen += difference(base, worse).p_value <= LEVEL
    return FoundInTraffic(unchanged / rounds, fallen / rounds, covered / rounds)


def _rate(setting: Setting, rng: np.random.Generator) -> Rate:
    found = estimated(profiles_of(draw(setting, rng), by_turn=setting.by_turn))
    return found.rate
