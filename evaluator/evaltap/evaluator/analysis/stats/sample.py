"""A sample for estimators: sessions, and the probabilities that their turns were recorded and scored.

A turn is *recorded* or not (the first draw), and if so *scored* or not (the second).  The inverse of its
inclusion probability, which is the product of both probabilities, is its *weight*: the number of turns of the
traffic that it represents. Turns of a session resemble each other and share draws; they are summed into
cells, and equal sessions into one profile, so that a million turns become a few hundred profiles.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MOST_STRATA: Final = 8
"""With more distinct inclusion probabilities (due to rate limits), they are rounded to powers of 2."""


_ROUNDING: Final = 1e-9


class Cell(NamedTuple):
    """The turns of a session with equal probabilities, summed.  Scores are 0 to 1; a pass is 1."""

    recorded: float
    """The probability that these turns were recorded, in (0, 1]; one draw for the session."""
    turns: int
    total: float
    """The sum of their scores."""
    squares: float
    """The sum of the squares of their scores; for pass or fail it equals the total."""
    scored: float = 1.0
    """The probability that a recorded turn was scored, in (0, 1]."""
    by_turn: bool = False
    """Whether each turn had its own second draw; otherwise the session had one."""

    @property
    def probability(self) -> float:
        """The inclusion probability."""
        return self.recorded * self.scored


class Profile(NamedTuple):
    """Sessions with the same cells, and their number."""

    cells: tuple[Cell, ...]
    sessions: int = 1


@dataclass(slots=True)
class Part:
    """Weighted sums over some turns of a session: w is the weight of a turn, y its score."""

    turns: int = 0
    weight: float = 0.0
    """Sum of w."""
    squares: float = 0.0
    """Sum of w²."""
    total: float = 0.0
    """Sum of w·y."""

    def add(self, cell: Cell) -> None:
        """Add the turns of a cell."""
        weight = 1 / cell.probability
        self.turns += cell.turns
        self.weight += weight * cell.turns
        self.squares += weight * weight * cell.turns
        self.total += weight * cell.total


@dataclass(slots=True)
class Stratum:
    """The turns with equal inclusion probability, and each profile's share of them."""

    profiles: list[tuple[int, Part, list[Cell]]] = field(default_factory=list)
    """The number of sessions, the sums of one of them, and its cells."""
    sessions: int = 0
    all: Part = field(default_factory=Part)

    def add(self, sessions: int, cells: list[Cell]) -> Part:
        """Add sessions with these cells; return the sums of one of them."""
        part = Part()
        for cell in cells:
            part.add(cell)
        self.profiles.append((sessions, part, cells))
        self.sessions += sessions
        self.all.turns += sessions * part.turns
        self.all.weight += sessions * part.weight
        self.all.squares += sessions * part.squares
        self.all.total += sessions * part.total
        return part

    @property
    def mean(self) -> float:
        """The mean score in the stratum; equal weights cancel out."""
        return min(max(self.all.total / self.all.weight, 0.0), 1.0)

    @property
    def kish(self) -> float:
        """The effective number of equally weighted turns (Kish): (Σw)²/Σw²."""
        return self.all.weight**2 / self.all.squares

    @property
    def whole_sessions(self) -> float:
        """The effective number of equally weighted sessions: (Σw)²/Σ_s(Σ_s w)²."""
        return self.all.weight**2 / sum(n * part.weight**2 for n, part, _ in self.profiles)

    @property
    def sessions_with_rarer(self) -> int:
        """The number of sessions with the rarer verdict (pass or fail), at least 1."""
        passes = sum(n for n, part, _ in self.profiles if part.total > _ROUNDING * part.weight)
        failures = sum(
            n for n, part, _ in self.profiles if part.weight - part.total > _ROUNDING * part.weight
        )
        return max(1, min(passes, failures))


@dataclass(frozen=True, slots=True)
class Sample:
    """Scored turns in strata and sessions."""

    strata: tuple[Stratum, ...]
    profiles: tuple[tuple[Profile, Mapping[int, Part]], ...]
    """Each profile with the sums of one of its sessions, by the index of the stratum."""
    places: Mapping[float, int]
    """The index of the stratum of each inclusion probability."""

    @property
    def turns(self) -> int:
        """The number of scored turns."""
        return sum(stratum.all.turns for stratum in self.strata)

    @property
    def sessions(self) -> int:
        """The number of sessions of the scored turns."""
        return sum(profile.sessions for profile, _ in self.profiles)

    @property
    def weight(self) -> float:
        """The number of turns of the traffic that the scored turns represent."""
        return sum(stratum.all.weight for stratum in self.strata)


def sample_of(profiles: Iterable[Profile]) -> Sample:
    """Sort profiles into strata of equal inclusion probability."""
    ordered = sorted(one._replace(cells=tuple(sorted(one.cells))) for one in profiles)
    places = _places({cell.probability for profile in ordered for cell in profile.cells})
    strata = tuple(Stratum() for _ in set(places.values()))
    split = []
    for profile in ordered:
        cells: defaultdict[int, list[Cell]] = defaultdict(list)
        for cell in profile.cells:
            cells[places[cell.probability]].append(cell)
        parts = {at: strata[at].add(profile.sessions, found) for at, found in cells.items()}
        split.append((profile, parts))
    return Sample(strata, tuple(split), places)


def _places(probabilities: Iterable[float]) -> Mapping[float, int]:
    """Return the index of the stratum of each inclusion probability."""
    found: Sequence[float] = sorted(probabilities)
    if len(found) <= MOST_STRATA:
        return {probability: number for number, probability in enumerate(found)}
    powers = {one: round(math.log2(one)) for one in found}
    numbers = {power: number for number, power in enumerate(sorted(set(powers.values())))}
    return {one: numbers[power] for one, power in powers.items()}
