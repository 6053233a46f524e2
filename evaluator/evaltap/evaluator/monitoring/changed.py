"""Which slices of the traffic explain a change: they got worse, or there is more of them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

from evaltap.evaluator.monitoring.model import Changed
from evaltap.evaluator.monitoring.turns import WatchedTurn
from evaltap.evaluator.stats.several import benjamini_hochberg

SHOWN: Final = 3
_SURE: Final = 0.1
_NEARLY_ALL: Final = 0.95


class Candidate(NamedTuple):
    """A slice, what it changed, and how likely that is by chance."""

    changed: Changed
    size: float
    """By how much more its rate rose than that of the others, or its share."""
    p_value: float


class _Turn(NamedTuple):
    session: int
    weight: float
    bad: bool
    values: frozenset[str]


class _Ratio(NamedTuple):
    """A ratio of sums over sessions, with its variance; None of nothing."""

    value: float | None
    variance: float


def changed_slices(
    before: Sequence[WatchedTurn], after: Sequence[WatchedTurn], by: str, *, good: bool
) -> list[Candidate]:
    """Return the values of a slice with the effect that each has on the bad share of all turns.

    Kitagawa's parts (1955): the rate in the slice rose, share after times the rise; or its share did, the
    rise of the share times how much worse it is than all.  A slice whose rate rose no more than that of the
    others explains nothing.  Errors are by sessions.  `good`: show the opposite of the bad share.
    """
    ones, others = _whole(before), _whole(after)
    values = sorted({value for turn in (*ones, *others) for value in turn.values})
    found: list[Candidate] = []
    for value in values:
        found += _candidates(ones, others, by, value, good=good)
    return found


def explaining(candidates: Sequence[Candidate]) -> tuple[Changed, ...]:
    """Return the changes that are sure among all, those that explain most with the largest change first.

    A slice that merely contains the one that changed has its effect, too, but changed less.
    """
    q_values = benjamini_hochberg([one.p_value for one in candidates])
    sure = [
        one
        for one, q in zip(candidates, q_values, strict=True)
        if q <= _SURE and one.changed.effect > 0 and one.size > 0
    ]
    sure.sort(key=lambda one: -one.changed.effect * one.size)
    return tuple(one.changed for one in sure[:SHOWN])


def _candidates(
    before: Sequence[_Turn], after: Sequence[_Turn], by: str, value: str, *, good: bool
) -> list[Candidate]:
    shares = [_share(turns, value) for turns in (before, after)]
    share, share_now = (one.value or 0.0 for one in shares)
    if min(share, share_now) > _NEARLY_ALL:
        return []  # it is all of the traffic, which explains nothing
    usual = _rate(before).value or 0.0
    inside = [_rate(turns, value, inside=True) for turns in (before, after)]
    outside = [_rate(turns, value, inside=False) for turns in (before, after)]
    # What is new is held against all that was there before.
    rate = usual if inside[0].value is None else inside[0].value
    rate_now = rate if inside[1].value is None else inside[1].value
    rise, elsewhere = rate_now - rate, _rise(outside)
    shown, shown_now = (1 - rate, 1 - rate_now) if good else (rate, rate_now)
    effect, mixed = share_now * rise, (share_now - share) * (rate - usual)
    worse = Changed(by, value, "rate", share, share_now, shown, shown_now, effect)
    more = Changed(by, value, "mix", share, share_now, shown, shown_now, mixed)
    noise = sum(one.variance for one in (*inside, *outside))
    return [
        Candidate(worse, rise - elsewhere, _two_sided(rise - elsewhere, noise)),
        Candidate(
            more,
            abs(share_now - share),
            _two_sided(share_now - share, sum(one.variance for one in shares)),
        ),
    ]


def _rise(pair: Sequence[_Ratio]) -> float:
    before, after = pair
    return 0.0 if before.value is None or after.value is None else after.value - before.value


def _whole(rows: Iterable[WatchedTurn]) -> list[_Turn]:
    """Return each turn once; one with several tools has a row for each."""
    first: dict[tuple[int, str], WatchedTurn] = {}
    values: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for row in rows:
        key = (row.session, row.turn)
        first.setdefault(key, row)
        if row.value is not None:
            values[key].add(row.value)
    return [
        _Turn(row.session, row.weight, row.bad, frozenset(values[key]))
        for key, row in first.items()
    ]


def _share(turns: Sequence[_Turn], value: str) -> _Ratio:
    return _ratio(
        (turn.session, turn.weight * (value in turn.values), turn.weight) for turn in turns
    )


def _rate(turns: Sequence[_Turn], value: str = "", *, inside: bool | None = None) -> _Ratio:
    return _ratio(
        (turn.session, turn.weight * turn.bad, turn.weight)
        for turn in turns
        if inside is None or (value in turn.values) == inside
    )


def _ratio(parts: Iterable[tuple[int, float, float]]) -> _Ratio:
    sums: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for session, top, bottom in parts:
        sums[session][0] += top
        sums[session][1] += bottom
    whole = sum(bottom for _, bottom in sums.values())
    if not whole:
        return _Ratio(None, 0.0)
    value = sum(top for top, _ in sums.values()) / whole
    spread = sum((top - value * bottom) ** 2 for top, bottom in sums.values()) / whole**2
    # Where no session differs from the others, one more might: a share of one in n + 2.
    return _Ratio(value, max(spread, 1 / (len(sums) + 2) ** 2))


def _two_sided(value: float, spread: float) -> float:
    return 2 * (1 - NormalDist().cdf(abs(value) / math.sqrt(spread))) if spread else 1.0
