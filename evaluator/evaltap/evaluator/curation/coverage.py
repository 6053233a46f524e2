"""Find values that occur in production but not in eval sets, as shares of the traffic with intervals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.analysis.estimates.scope import SESSION
from evaltap.evaluator.analysis.stats.estimate import Estimate, estimate_items
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.values import Seen, values_of

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
    text: str = ""
    """The user's message in the turn that represents an intent."""

    def data(self) -> dict[str, object]:
        return {
            "value": self.value,
            **({"text": self.text} if self.text else {}),
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
    text: str = ""
    """The user's message in the turn that represents an intent."""

    def data(self) -> dict[str, object]:
        return {
            "value": self.value,
            **({"text": self.text} if self.text else {}),
            "share": self.rate,
            "turns": self.turns,
            "cases": self.cases,
        }


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of the traffic that has cases, in one dimension."""

    by: str
    covered: Estimate | None
    """The share of turns whose value has enough cases; None without turns."""
    gaps: tuple[Gap, ...]
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
            "gaps": [gap.data() for gap in self.gaps],
            "covered_values": [one.data() for one in self.covered_values],
            "unseen": list(self.unseen),
        }


def coverage(
    by: str, seen: Sequence[Seen], cases: Sequence[Seen], *, fewest: int = 1, fold: bool = False
) -> Coverage:
    """Return the coverage of the seen turns by values with at least `fewest` cases."""
    values, of_cases = values_of(by, seen, cases, fold=fold)
    counts = Counter(
        value for value, _ in {(value, turn.key.eval_id) for turn, value in _pairs(cases, of_cases)}
    )
    pairs = _pairs(seen, values)
    covered = {value for value, count in counts.items() if count >= fewest}
    by_value: dict[str, list[Seen]] = defaultdict(list)
    for turn, value in pairs:
        by_value[value].append(turn)
    texts = {turn.key.name: turn.text for turn in seen} if by == "intent" else {}
    gaps = []
    weights = {
        value: sum(1 / turn.probability for turn in turns) for value, turns in by_value.items()
    }
    heaviest = sorted(by_value, key=lambda value: (-weights[value], value))
    for value in [one for one in heaviest if one not in covered][:SHOWN_GAPS]:
        share = share_of(pairs, {value})
        assert share is not None  # the value has at least one turn
        turns = by_value[value]
        gaps.append(Gap(value, share.rate, len(turns), _examples(turns), texts.get(value, "")))
    total = sum(weights.values())
    covered_values = [
        CoveredValue(one, weights[one] / total, len(by_value[one]), counts[one], texts.get(one, ""))
        for one in heaviest
        if one in covered
    ]
    unseen = tuple(sorted(counts.keys() - by_value.keys()))
    return Coverage(
        by, share_of(pairs, covered), tuple(gaps), tuple(covered_values[:SHOWN_GAPS]), unseen
    )


def _pairs(turns: Sequence[Seen], values: Sequence[Iterable[str]]) -> list[tuple[Seen, str]]:
    return [(turn, value) for turn, found in zip(turns, values, strict=True) for value in found]


def _examples(turns: Iterable[Seen]) -> tuple[TurnKey, ...]:
    by_case = {turn.key[:3]: turn.key for turn in reversed([*turns])}
    return tuple([*reversed(by_case.values())][:EXAMPLES])


def share_of(pairs: Sequence[tuple[Seen, str]], wanted: set[str]) -> Estimate | None:
    """Return the share of turns with one of some values; sessions are clusters."""
    return estimate_items(
        (SESSION.of(turn.key), turn.probability, float(value in wanted)) for turn, value in pairs
    )
