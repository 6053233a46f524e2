"""Ranges of turns in a long case: the links to each range, and the failed turns in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from evaltap.evaluator.page.request import link
from evaltap.evaluator.reports.model import Cell

TOGETHER: Final = 30
"""The number of turns shown together."""
MOST_FAILING: Final = 12
"""The maximum number of failed turns listed for a range."""
NOT_PASSED: Final = ("failed", "crashed", "error")


class TurnLink(NamedTuple):
    """A turn, counted from 1, with its link."""

    place: int
    href: str


@dataclass(frozen=True, slots=True)
class TurnRange:
    """Consecutive turns of a long case that are shown together."""

    first: int
    last: int
    href: str
    shown: bool
    failing: tuple[TurnLink, ...]
    """The first turns in the range that did not pass."""
    failing_count: int


def first_shown(asked: str, turns: int) -> int:
    """Return the first turn, counted from 1, of the range that contains the requested one."""
    place = int(asked) if asked.isdecimal() and len(asked) < 10 else 1
    return (max(1, min(place, turns)) - 1) // TOGETHER * TOGETHER + 1


class TurnPlaces(NamedTuple):
    """The locations of a case's turns: on this page, or on the page of another range."""

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
        """Return the ranges, with the turns that did not pass some metric; empty for a short case."""
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
