"""Tests of "nothing changed" for two runs over the same cases, by exchanging trials within cases.

The set of cases is fixed.  If nothing changed, it is random which of a case's trials belong to the newer run:
given the total number of passes, the newer run's passes are hypergeometric.  That holds for any cases, so the
level is exact (Welch, Journal of the American Statistical Association 85, 1990).

Statistics are whole numbers, packed into one number per outcome, so that adding numbers adds outcomes.
Distributions of equal cases are convolved into one.  If the total has few enough outcomes, the test
enumerates them; otherwise outcomes are drawn with a fixed seed, and the observed one counts as a draw.
The sum of many differences of which none dominates is normal and not drawn.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from operator import add
from typing import Final, NamedTuple, TypeAlias, TypeVar

DRAWS: Final = 20_000
CLOSE_DRAWS: Final = 200_000
"""The number of draws if the p-value is between half and twice the level."""
_FOLDED: Final = 200_000
"""The maximum number of steps of one convolution, so that a test takes a few seconds at most."""
_SPLITS: Final = 5_000
_LEAST_SPLITS: Final = 100
_ALL_SPLITS: Final = 1_000_000
"""The maximum number of splits of a case's scores, the minimum, and about how many all cases may have."""
_KURTOSIS: Final = 0.02
"""A sum of many terms is taken as normal up to this excess kurtosis, that of a hundred equal differences.

P-values of 0.05 and 0.01 then differ by less than 1.5 % from the exact ones if each term is symmetric,
which is less than drawing changes them."""
_DRAWN: Final = 30
"""Up to so many distributions are drawn from even if their sum is nearly normal; that takes a second."""
_UNIT: Final = 10**9
_ALIKE: Final = 10**3
"""Sums that differ by less, due to rounding, are equal."""
_BITS: Final = 64
_LANES: Final = 3
_FALLEN: Final = math.log(0.05)
"""The logarithm of the factor on the odds of passing when a case falls sharply."""
_LEAST: Final = 1e-300
"""Smaller p-values are replaced by this one, so that their roots exist."""

Name = TypeVar("Name", bound=Hashable)
Law: TypeAlias = Mapping[int, float]
"""Outcomes with their probabilities."""


class Trials(NamedTuple):
    """The number of trials of a case, and the number of passes."""

    passes: int
    trials: int

    @property
    def rate(self) -> float:
        """The share that passed."""
        return self.passes / self.trials


class Pair(NamedTuple):
    """A case in both runs; each run has at least one trial."""

    base: Trials
    head: Trials

    @property
    def swapped(self) -> "Pair":
        """The same with base and head exchanged."""
        return Pair(self.head, self.base)


def head_law(pair: Pair) -> Sequence[tuple[int, float]]:
    """Return the distribution of head's passes if nothing changed: pairs of (passes, probability)."""
    (base_passes, base), (head_passes, head) = pair
    passes = base_passes + head_passes
    first, last = max(0, passes - base), min(head, passes)
    # The number of ways is updated step by step, because binomials of thousands are costly.
    ways = math.comb(head, first) * math.comb(base, passes - first)
    every, law = math.comb(base + head, passes), []
    for one in range(first, last + 1):
        law.append((one, ways / every))
        ways = ways * (head - one) * (passes - one) // ((one + 1) * (base - passes + one + 1))
    return law


@lru_cache(maxsize=4096)  # most cases have the same few trials
def worse(pair: Pair) -> float:
    """Return the p-value of one case: the probability of at most these passes of head if nothing changed."""
    return min(1.0, sum(chance for one, chance in head_law(pair) if one <= pair.head.passes))


def drop_p_value(pairs: Iterable[Pair], *, level: float) -> float:
    """Return the p-value of "head is no worse than base", either exact or from draws.

    The least p-value of three statistics is compared with the least in every outcome (Westfall and Young
    1993), so that three tests cost no power: the sum of drops, which detects a small fall of all cases;
    the likelihood ratio of half the cases falling sharply; and Σ p^(-1/2), which detects one broken case.
    The result is 1 if no outcome could differ.
    """
    observed, laws = 0, _Laws()
    for pair, number in Counter(pairs).items():
        outcomes = _outcomes(pair)
        observed += number * outcomes[pair.head.passes][0]
        laws.add(dict(outcomes.values()), number)
    return _p_value(laws.summed(), observed, level, _LANES)


def shift_p_value(
    differences: Sequence[tuple[Sequence[float], Sequence[float]]], *, level: float
) -> float:
    """Return the p-value of "scores did not fall" by exchanging trials within cases.

    Each case has the scores of base and of head; the statistic is the sum of differences of their means.
    With one trial each, this flips signs across cases, and applies to the population of such cases.
    """
    observed, laws = 0, _Laws()
    splits = max(_LEAST_SPLITS, min(_SPLITS, _ALL_SPLITS // max(1, len(differences))))
    for base, head in differences:
        laws.add(_exchanged(base, head, splits), 1)
        observed += _whole(sum(base) / len(base) - sum(head) / len(head))
    return _p_value(laws.summed(), observed, level, 1)


def sign_flip_p_value(values: Sequence[float], *, level: float) -> float:
    """Return the two-sided p-value of "these differences are around 0", by flipping their signs."""
    pairs = [((value,), (0.0,)) for value in values]
    higher = shift_p_value(pairs, level=level)
    lower = shift_p_value([(head, base) for base, head in pairs], level=level)
    return min(1.0, 2 * min(higher, lower))


def least_possible(pairs: Iterable[Pair]) -> float:
    """Return the probability, if nothing changed, of head failing every trial.

    It takes base's passes as all passes: no p-value of these cases can be much lower.
    """
    failing = (Pair(base, Trials(0, head.trials)) for base, head in pairs if base.passes)
    return math.prod(dict(head_law(pair))[0] for pair in failing)


def broken(pairs: Mapping[Name, Pair], *, level: float) -> list[Name]:
    """Return the cases that are worse, most certain first, at a family-wise error rate of `level`.

    Step-down: the least p-value among the remaining cases is compared with its exact distribution, 1 - Π(1 -
    P(p_j ≤ least)).
    """
    values = {name: worse(pair) for name, pair in pairs.items()}
    order = sorted(values, key=values.__getitem__)
    # A p-value is the probability of at most itself.
    laws = {
        pair: list(accumulate(chance for _, chance in head_law(pair))) for pair in pairs.values()
    }
    left = Counter(pairs.values())
    found = []
    for name in order:
        none = math.prod(
            (1 - _at_most(laws[pair], values[name])) ** number for pair, number in left.items()
        )
        if 1 - none > level:
            break
        found.append(name)
        left[pairs[name]] -= 1
    return found


def _at_most(values: Sequence[float], value: float) -> float:
    return min(1.0, max((one for one in values if one <= value * (1 + 1e-9)), default=0.0))


def _outcomes(pair: Pair) -> Mapping[int, tuple[int, float]]:
    """Return, for each number of head's passes, the statistics and the probability if nothing changed.

    The three statistics are packed one above the other; each is at least 0.
    """
    (base_passes, base), (head_passes, head) = pair
    found, value = {}, 0.0
    law = head_law(pair)
    for (passes, chance), fell in zip(law, _falls(law), strict=True):
        value = min(1.0, max(value + chance, _LEAST))
        drop = 1 + (base_passes + head_passes - passes) / base - passes / head
        lanes = (drop, fell, value**-0.5)
        packed = sum(_whole(one) << (_BITS * place) for place, one in enumerate(lanes))
        found[passes] = (packed, chance)
    return found


def _falls(law: Sequence[tuple[int, float]]) -> Sequence[float]:
    """Return ln(1 + r) for each outcome; r is its likelihood with fallen odds, relative to unchanged odds."""
    known = [passes * _FALLEN + math.log(chance) for passes, chance in law if chance > 0]
    largest = max(known)
    every = largest + math.log(math.fsum(math.exp(one - largest) for one in known))
    ratios = [passes * _FALLEN - every for passes, _ in law]
    return [max(one, 0.0) + math.log1p(math.exp(-abs(one))) for one in ratios]


def _whole(value: float) -> int:
    return round(value * _UNIT)


def _exchanged(base: Sequence[float], head: Sequence[float], splits: int) -> Law:
    """Return the law of the difference of means when a case's scores are exchanged.

    If there are more than `splits` ways, so many are drawn.
    """
    every = [*base, *head]
    total, count = sum(every), len(head)
    if math.comb(len(every), count) <= splits:
        parts: Iterable[Sequence[float]] = list(combinations(every, count))
    else:
        draw = random.Random(0)
        parts = [head, *(draw.sample(every, count) for _ in range(splits))]
    sums = Counter(_whole((total - sum(p)) / len(base) - sum(p) / count) for p in parts)
    number = sum(sums.values())
    return {value: times / number for value, times in sums.items()}


class _Laws:
    """The laws of cases; those of equal cases are summed together."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[tuple[int, float], ...]] = Counter()

    def add(self, law: Law, number: int) -> None:
        """Add so many cases of a law."""
        self._numbers[tuple(sorted(law.items()))] += number

    def summed(self) -> list[Law]:
        """Return the laws whose sum is that of all cases."""
        return [
            part
            for law, number in sorted(self._numbers.items())
            for part in _power(dict(law), number)
        ]


def _fold(one: Law, other: Law) -> Law:
    found: defaultdict[int, float] = defaultdict(float)
    for value, chance in one.items():
        for added, factor in other.items():
            found[value + added] += chance * factor
    return found


def _power(law: Law, number: int) -> list[Law]:
    """Return the distribution of a sum of equal cases, in parts if it would have too many outcomes."""
    if len(law) <= 2:
        return [_binomial(law, number)]
    folded, terms = law, 1
    while terms < number and len(folded) * len(law) <= _FOLDED // 4:
        folded, terms = _fold(folded, law), terms + 1
    whole, rest = divmod(number, terms)
    return [folded] * whole + (_power(law, rest) if rest else [])


def _binomial(law: Law, number: int) -> Law:
    """Return the distribution of a sum of equal cases that have one or two outcomes.

    Folding would take time with the square of their number.
    """
    if len(law) == 1:
        return {value * number: 1.0 for value in law}
    (one, chance), (other, other_chance) = law.items()
    ways, log, log_other = math.lgamma(number + 1), math.log(chance), math.log(other_chance)
    return {
        one * times + other * (number - times): math.exp(
            ways
            - math.lgamma(times + 1)
            - math.lgamma(number - times + 1)
            + times * log
            + (number - times) * log_other
        )
        for times in range(number + 1)
    }


def _p_value(laws: Sequence[Law], observed: int, level: float, lanes: int) -> float:
    whole: Law = {0: 1.0}
    rest = sorted(laws, key=len if lanes > 1 else lambda law: min(law) - max(law))
    while rest and len(whole) * len(rest[0]) <= _FOLDED:
        whole = _fold(whole, rest.pop(0))
    if not rest:
        return _least(whole, observed, lanes)
    if lanes == 1 and len(rest) > _DRAWN and (normal := _normal(rest)) is not None:
        tails = (chance * normal.tail(observed - value) for value, chance in whole.items())
        return min(1.0, max(_LEAST, math.fsum(tails)))
    value = _least(_drawn([whole, *rest], observed, DRAWS), observed, lanes)
    if level / 2 <= value <= 2 * level:
        value = _least(_drawn([whole, *rest], observed, CLOSE_DRAWS), observed, lanes)
    return value


class _Normal(NamedTuple):
    mean: float
    variance: float

    def tail(self, value: float) -> float:
        """Return the probability of at least `value`."""
        return math.erfc((value - self.mean) / math.sqrt(2 * self.variance)) / 2


def _normal(laws: Sequence[Law]) -> _Normal | None:
    """Return the distribution of the laws' sum if it is nearly normal; None if not."""
    mean = variance = excess = 0.0
    for law in laws:
        centre = math.fsum(value * chance for value, chance in law.items())
        square, fourth = (
            math.fsum((value - centre) ** power * chance for value, chance in law.items())
            for power in (2, 4)
        )
        mean += centre
        variance += square
        excess += abs(fourth - 3 * square**2)
    is_normal = variance > 0 and excess <= _KURTOSIS * variance**2
    return _Normal(mean, variance) if is_normal else None


def _drawn(laws: Sequence[Law], observed: int, draws: int) -> Law:
    """Return the distribution of the drawn outcomes, including the observed one."""
    draw = random.Random(0)
    totals: Sequence[int] = [0] * draws
    for law in laws:
        values = sorted(law)
        weights = list(accumulate(law[value] for value in values))
        totals = list(map(add, totals, draw.choices(values, cum_weights=weights, k=draws)))
    counts = Counter(totals)
    counts[observed] += 1
    return {value: number / (draws + 1) for value, number in counts.items()}


def _least(law: Law, observed: int, lanes: int) -> float:
    """Return the probability that the least p-value of the statistics is at most the observed one."""
    outcomes, chances = [*law, observed], [*law.values(), 0.0]
    tails = [_tails(outcomes, chances, lane, lanes) for lane in range(lanes)]
    *least, limit = map(min, zip(*tails, strict=True))
    reached = limit * (1 + 1e-9)
    return min(
        1.0, sum(chance for chance, one in zip(chances, least, strict=False) if one <= reached)
    )


def _tails(
    outcomes: Sequence[int], chances: Sequence[float], lane: int, lanes: int
) -> Iterable[float]:
    """Return the probability of the value that a statistic has by each outcome, or of a larger one."""
    shift = _BITS * lane
    # The last lane may have any size.
    mask = (1 << _BITS) - 1 if lane < lanes - 1 else -1
    values = [((outcome >> shift & mask) + _ALIKE // 2) // _ALIKE for outcome in outcomes]
    law: defaultdict[int, float] = defaultdict(float)
    for value, chance in zip(values, chances, strict=True):
        law[value] += chance
    falling = sorted(law, reverse=True)
    tails = accumulate(law[value] for value in falling)
    return map(dict(zip(falling, tails, strict=True)).__getitem__, values)
