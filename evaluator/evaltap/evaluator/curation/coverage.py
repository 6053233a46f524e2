"""Find values that occur in production but not in eval sets, as shares of the traffic with intervals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Final

from evaltap.evaluator.analysis.stats.estimate import Estimate
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.values import Seen, pairs_of, shares_of, values_of

SHOWN_GAPS: Final = 20
EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """A value in production with too few cases."""

    value: str
    share: Rate
    """The share of the traffic's turns, estimated from the sample."""
    turns: int
    examples: tuple[TurnKey, ...]
    """The first turns with this value, each of a different case."""

    def data(self) -> dict[str, object]:
        return {
            "value": self.value,
            "share": self.share.value,
            "low": self.share.interval.low,
            "high": self.share.interval.high,
            "turns": self.turns,
            "examples": [key.name for key in self.examples],
        }


@dataclass(frozen=True, slots=True)
class CoveredValue:
    """A value in production with enough cases."""

    value: str
    rate: float
    """The share of the traffic's turns, estimated from the sample."""
    turns: int
    cases: int
    """The number of cases in the sets with this value."""

    def data(self) -> dict[str, object]:
        return {"value": self.value, "share": self.rate, "turns": self.turns, "cases": self.cases}


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of the traffic that has cases, in one dimension."""

    by: str
    covered: Estimate | None
    """The share of turns whose value has enough cases; None if no turn has a known value."""
    unknown: int
    """The number of turns whose value is unknown; they are in no share."""
    gaps: tuple[Gap, ...]
    """The most frequent values without enough cases."""
    more_gaps: int
    """The number of values without enough cases that `gaps` leaves out."""
    covered_values: tuple[CoveredValue, ...]
    unseen: tuple[str, ...]
    """Values of the sets that do not occur in production."""

    @property
    def unit(self) -> str:
        """The unit of shares: turns, or tool uses."""
        return "tool use" if self.by == "tool" else "turn"

    def data(self) -> dict[str, object]:
        found = self.covered
        return {
            "by": self.by,
            "covered": found and found.rate.value,
            "low": found and found.rate.interval.low,
            "high": found and found.rate.interval.high,
            "turns": found.rate.n if found else 0,
            "sessions": found.sessions if found else 0,
            "unknown": self.unknown,
            "gaps": [gap.data() for gap in self.gaps],
            "more_gaps": self.more_gaps,
            "covered_values": [one.data() for one in self.covered_values],
            "unseen": list(self.unseen),
        }


def coverage(
    by: str, seen: Sequence[Seen], cases: Sequence[Seen], *, fewest: int = 1, fold: bool = False
) -> Coverage:
    """Return the coverage of the seen turns by values with at least `fewest` cases."""
    values, of_cases = values_of(by, seen, cases, fold=fold)
    counts = Counter(
        value
        for value, _ in {(value, turn.key.eval_id) for turn, value in pairs_of(cases, of_cases)}
    )
    pairs = pairs_of(seen, values)
    covered = {value for value, count in counts.items() if count >= fewest}
    by_value: dict[str, list[Seen]] = defaultdict(list)
    for turn, value in pairs:
        by_value[value].append(turn)
    weights = {
        value: sum(1 / turn.probability for turn in turns) for value, turns in by_value.items()
    }
    heaviest = sorted(by_value, key=lambda value: (-weights[value], value))
    lacking = [*filterfalse(covered.__contains__, heaviest)]
    whole, *shares = shares_of(pairs, [covered, *({value} for value in lacking[:SHOWN_GAPS])])
    gaps = tuple(
        Gap(value, share.rate, len(by_value[value]), _examples(by_value[value]))
        for value, share in zip(lacking, shares, strict=False)
        if share  # each value has at least one turn
    )
    total = sum(weights.values())
    covered_values = [
        CoveredValue(one, weights[one] / total, len(by_value[one]), counts[one])
        for one in filter(covered.__contains__, heaviest)
    ]
    unseen = tuple(sorted(counts.keys() - by_value.keys()))
    return Coverage(
        by,
        whole,
        0 if by == "tool" else values.count(()),
        gaps,
        len(lacking) - len(gaps),
        tuple(covered_values[:SHOWN_GAPS]),
        unseen,
    )


def _examples(turns: Iterable[Seen]) -> tuple[TurnKey, ...]:
    by_case = {turn.key[:3]: turn.key for turn in reversed([*turns])}
    return tuple([*reversed(by_case.values())][:EXAMPLES])
