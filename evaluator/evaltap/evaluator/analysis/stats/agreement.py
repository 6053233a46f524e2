"""Agreement of people who judged the same items: Cohen's kappa and Krippendorff's alpha, nominal.

Intervals are 95 % percentile bootstraps over the judged items, seeded.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from evaltap.evaluator.analysis.stats.rate import Interval, Rate

DRAWS: Final = 1_000
SEED: Final = 20261121

Thing = TypeVar("Thing")
Judgements = Sequence[str]
"""The judgements of several people on one item."""


class Agreement(NamedTuple):
    """Agreement; a figure is None if it is undefined."""

    items: int
    """Items that two or more people judged."""
    share: float | None
    """The share of equal pairs among the pairs of judgements on one item."""
    kappa: Rate | None
    """Cohen (1960), for exactly two people who judged all of the same items."""
    alpha: Rate | None
    """Krippendorff (1970), for any number of people; judgements may be missing."""


def agreement(things: Sequence[Judgements], pairs: Sequence[tuple[str, str]] = ()) -> Agreement:
    """Return the agreement on items; `pairs` are the judgements of two people, in the same order."""
    judged = [one for one in things if len(one) > 1]
    return Agreement(len(judged), _share(judged), _figure(pairs, kappa), _figure(judged, alpha))


def _share(things: Sequence[Judgements]) -> float | None:
    same = total = 0
    for one in things:
        counts = Counter(one)
        total += len(one) * (len(one) - 1)
        same += sum(count * (count - 1) for count in counts.values())
    return same / total if total else None


def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa; None for no pairs, and if both people always give the same judgement."""
    if not pairs:
        return None
    count = len(pairs)
    observed = sum(one == other for one, other in pairs) / count
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    expected = sum(first[value] * second[value] for value in first) / count**2
    return None if expected >= 1 else (observed - expected) / (1 - expected)


def alpha(things: Sequence[Judgements]) -> float | None:
    """Return Krippendorff's alpha for nominal data; None if no disagreement is possible."""
    values: Counter[str] = Counter()
    disagreement = 0.0
    for one in things:
        counts = Counter(one)
        values.update(one)
        different = len(one) ** 2 - sum(count**2 for count in counts.values())
        disagreement += different / (len(one) - 1)
    total = sum(values.values())
    by_chance = total**2 - sum(count**2 for count in values.values())
    if not by_chance:
        return None
    return 1 - (total - 1) * disagreement / by_chance


def _figure(
    things: Sequence[Thing], measure: Callable[[Sequence[Thing]], float | None]
) -> Rate | None:
    """Return a figure of the items; from a single one, its interval is open."""
    value, count = measure(things), len(things)
    if value is None:
        return None
    if count < 2:
        return Rate(value, Interval(-1.0, 1.0), count, count, "items")
    rng = random.Random(SEED)
    drawn = (measure(rng.choices(things, k=count)) for _ in range(DRAWS))
    # A sample in which no disagreement is possible has no value, and counts as agreement.
    found = sorted(1.0 if one is None else one for one in drawn)
    ends = Interval(found[int(0.025 * DRAWS)], found[int(0.975 * DRAWS) - 1])
    return Rate(value, ends, count, count, "items")
