"""Find the slices of the traffic that explain a change: they got worse, or their share grew."""

import math
from collections.abc import Sequence
from datetime import datetime
from statistics import NormalDist
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.analysis.stats.difference import benjamini_hochberg
from evaltap.evaluator.monitoring.model import Changed

SHOWN: Final = 3
_SURE: Final = 0.1
_NEARLY_ALL: Final = 0.95


class Candidate(NamedTuple):
    """A slice, its effect, and the probability of that effect by chance."""

    changed: Changed
    size: float
    """How much more its rate, or its share, rose than that of the others."""
    p_value: float


class Ratio(NamedTuple):
    """A ratio of sums over sessions, with the sums that its variance needs."""

    sessions: int
    top: float
    bottom: float
    tops: float
    """The sum of squares."""
    products: float
    bottoms: float
    """The sum of squares."""

    @property
    def value(self) -> float | None:
        """The ratio; None without data."""
        return self.top / self.bottom if self.sessions and self.bottom > 0 else None

    @property
    def variance(self) -> float:
        """The variance of the ratio, by sessions."""
        if (value := self.value) is None:
            return 0.0
        spread = self.tops - 2 * value * self.products + value**2 * self.bottoms
        # If all observed sessions agree, an unobserved one might differ: a share of one in n + 2.
        return max(spread / self.bottom**2, 1 / (self.sessions + 2) ** 2)


class Side(NamedTuple):
    """A slice before or after a change: the share of bad turns inside and outside it, and its own share."""

    inside: Ratio
    outside: Ratio
    share: Ratio
    """The slice's turns as a share of all turns."""


NONE: Final = Ratio(0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Spans(NamedTuple):
    """What is compared: the turns before `begins`, when the baseline ended, with those from `since` on.

    Times are UTC, without a time zone.
    """

    begins: datetime
    since: datetime
    until: datetime = datetime.max


def changed_slices(
    turns: Turns, spans: Spans, *, good: bool, scale: float = 1.0, within: str | None = None
) -> list[Candidate]:
    """Return the values of the turns' slice with the effect of each on the bad share of all turns.

    `good`: turns with the signal are not bad.  Values are parts of `scale`.  `within`: only turns with this
    value of the turns' second slice count.

    The effects are Kitagawa's components (1955): if the rate in the slice rose, the share after times the
    rise; if its share rose, the rise of the share times how much worse it is than all.  A slice whose rate
    rose no more than that of the others explains nothing.  Errors are by sessions.
    """
    given = {**spans._asdict(), "good": good, "scale": scale}
    chosen = ""
    if within is not None:
        given["within"], chosen = within, "AND by_1 = $within"
    wholes = {before: Ratio(*sums) for before, *sums in turns.rows(_WHOLE, given, chosen=chosen)}
    usual = wholes.get(True, NONE).value or 0.0
    sides: dict[str, dict[bool, Side]] = {}
    for value, before, *sums in turns.rows(_SIDES, given, chosen=chosen):
        sides.setdefault(value, {})[before] = Side(
            Ratio(*sums[:6]), Ratio(*sums[6:12]), Ratio(*sums[12:])
        )
    found: list[Candidate] = []
    for value, pair in sorted(sides.items()):
        both = [pair.get(before) or _absent(wholes.get(before, NONE)) for before in (True, False)]
        found += _candidates(turns.by[0], value, both, usual, good=good, scale=scale)
    return found


def _absent(whole: Ratio) -> Side:
    """Return the side of a value that no turn has."""
    return Side(NONE, whole, whole._replace(top=0.0, tops=0.0, products=0.0))


def explaining(candidates: Sequence[Candidate]) -> tuple[Changed, ...]:
    """Return the changes that are significant among all, sorted by effect, then by size.

    A slice that merely contains the changed one has its effect too, but changed less.
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
    by: str, value: str, sides: Sequence[Side], usual: float, *, good: bool, scale: float
) -> list[Candidate]:
    share, share_now = (one.share.value or 0.0 for one in sides)
    if min(share, share_now) > _NEARLY_ALL:
        return []  # it is almost all of the traffic, which explains nothing
    inside, outside = [one.inside for one in sides], [one.outside for one in sides]
    # New values are compared with all earlier traffic.
    rate = usual if inside[0].value is None else inside[0].value
    rate_now = rate if inside[1].value is None else inside[1].value
    rise, elsewhere = rate_now - rate, _rise(outside)
    shown, shown_now = (scale * (1 - one if good else one) for one in (rate, rate_now))
    effect, mixed = (
        scale * one for one in (share_now * rise, (share_now - share) * (rate - usual))
    )
    worse = Changed(by, value, "rate", share, share_now, shown, shown_now, effect)
    more = Changed(by, value, "mix", share, share_now, shown, shown_now, mixed)
    noise = sum(one.variance for one in (*inside, *outside))
    spread = sum(one.share.variance for one in sides)
    return [
        Candidate(worse, rise - elsewhere, _two_sided(rise - elsewhere, noise)),
        Candidate(more, abs(share_now - share), _two_sided(share_now - share, spread)),
    ]


def _rise(pair: Sequence[Ratio]) -> float:
    before, after = pair
    return 0.0 if before.value is None or after.value is None else after.value - before.value


def _two_sided(value: float, spread: float) -> float:
    return 2 * (1 - NormalDist().cdf(abs(value) / math.sqrt(spread))) if spread else 1.0


_TURNS: Final = """
WITH chosen AS (
  SELECT by_0 AS value, session, invocation_id, 1 / probability AS weight,
         if($good, 1 - has::DOUBLE / $scale, has::DOUBLE / $scale) / probability AS bad,
         started_at < $begins AS before
  FROM {turns}
  WHERE counts AND (started_at < $begins OR started_at >= $since) AND started_at < $until {chosen}
),
-- A turn that calls several tools has a row for each.
whole AS (
  SELECT before, session, sum(weight) AS weight, sum(bad) AS bad
  FROM (SELECT DISTINCT before, session, invocation_id, weight, bad FROM chosen)
  GROUP BY ALL
)
"""
_WHOLES: Final = """
SELECT before, count(*) AS sessions, sum(bad) AS tops, sum(weight) AS bottoms, sum(bad * bad) AS tops_2,
       sum(bad * weight) AS products, sum(weight * weight) AS bottoms_2
FROM whole GROUP BY before
"""
_WHOLE: Final = f"{_TURNS} {_WHOLES}"

# Outside a slice are the sums of all sessions; sessions that are partly in it count without its
# turns.
_SIDES: Final = f"""{_TURNS}, wholes AS ({_WHOLES}),
inside AS (
  SELECT before, value, session, sum(weight) AS weight, sum(bad) AS bad
  FROM chosen WHERE value IS NOT NULL GROUP BY ALL
),
pairs AS (
  SELECT before, value, i.weight AS i_weight, i.bad AS i_bad, w.weight AS w_weight, w.bad AS w_bad,
         w.weight - i.weight AS o_weight, w.bad - i.bad AS o_bad
  FROM inside i JOIN whole w USING (before, session)
)
SELECT value, before,
       count(*), sum(i_bad), sum(i_weight),
       sum(i_bad * i_bad), sum(i_bad * i_weight), sum(i_weight * i_weight),
       sessions - count(*) FILTER (o_weight <= 1e-9), tops - sum(i_bad), bottoms - sum(i_weight),
       tops_2 + sum(o_bad * o_bad - w_bad * w_bad),
       products + sum(o_bad * o_weight - w_bad * w_weight),
       bottoms_2 + sum(o_weight * o_weight - w_weight * w_weight),
       sessions, sum(i_weight), bottoms, sum(i_weight * i_weight), sum(i_weight * w_weight), bottoms_2
FROM pairs JOIN wholes USING (before)
GROUP BY value, before, sessions, tops, bottoms, tops_2, products, bottoms_2
"""
