"""Turns of a long case, some of which are shown together: where each is, and which failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from evaltap.evaluator.page.request import link
from evaltap.evaluator.reports.model import Cell

TOGETHER: Final = 30
"""So many turns are shown together."""
MOST_FAILING: Final = 12
"""Turns of a range that are named beside it."""
NOT_PASSED: Final = ("failed", "crashed", "error")


class TurnLink(NamedTuple):
    """A turn, from 1, and where it is."""

    place: int
    href: str


@dataclass(frozen=True, slots=True)
class TurnRange:
    """Consecutive turns of a long case, which the page shows together."""

    first: int
    last: int
    href: str
    shown: bool
    failing: tuple[TurnLink, ...]
    """The first turns of it that did not pass."""
    failing_count: int


def first_shown(asked: str, turns: int) -> int:
    """Return the first turn, from 1, of the range that holds the one that is asked for."""
    place = int(asked) if asked.isdecimal() and len(asked) < 10 else 1
    return (max(1, min(place, turns)) - 1) // TOGETHER * TOGETHER + 1


class TurnPlaces(NamedTuple):
    """Where the turns of a case are: on this page, or on another with its other turns."""

    parameters: Mapping[str, str]
    first: int
    turns: int

    def shows(self, place: int) -> bool:
        """Return whether a turn is on this page."""
        return self.first <= place < self.first + TOGETHER

    def of(self, place: int) -> TurnLink:
        """Return a turn with its link."""
        anchor = f"#t{place}"
        if self.shows(place):
            return TurnLink(place, anchor)
        return TurnLink(place, link("/case", **self.parameters, turn=place) + anchor)

    def ranges(self, cells: Sequence[Cell]) -> tuple[TurnRange, ...]:
        """Return the ranges, with the turns that some metric does not pass; none for a short case."""
        if self.turns <= TOGETHER:
            return ()
        failing = sorted(
            {turn.turn for cell in cells for turn in cell.turns if turn.status in NOT_PASSED}
        )
        made = []
        for first in range(1, self.turns + 1, TOGETHER):
            last = min(first + TOGETHER - 1, self.turns)
            inside = [place for place in failing if first <= place <= last]
            made.append(
                TurnRange(
                    first, last, link("/case", **self.parameters, turn=first if first > 1 else None),
                    first == self.first, tuple(map(self.of, inside[:MOST_FAILING])), len(inside),
                )
            )  # fmt: skip
        return tuple(made)
