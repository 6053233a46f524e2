"""A sample as estimators see it: sessions, and how likely it was that their turns were recorded and scored.

A turn is *recorded* or not (the first draw), and if so *scored* or not (the second).  One over its
inclusion probability, the product of both, is its *weight*: how many turns of the traffic it stands for.
Turns of a session resemble each other and share draws; they are summed into cells, and sessions that look
alike into one profile, so that a million turns are some hundred profiles.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MOST_STRATA: Final = 8
"""With more inclusion probabilities than these (rate limits) they are rounded to powers of 2."""


_ROUNDING: Final = 1e-9


class Cell(NamedTuple):
    """The turns of a session that had equal chances, summed.  Scores are 0 to 1, a pass is 1."""

    recorded: float
    """The probability that these turns were recorded, in (0, 1]; one draw for the session."""
    turns: int
    total: float
    """The sum of their scores."""
    squares: float
    """The sum of the squares of their scores; of passes and fails it is their total."""
    scored: float = 1.0
    """The probability that a recorded turn was scored, in (0, 1]."""
    by_turn: bool = False
    """Whether each turn had a second draw of its own; else the session had one."""

    @property
    def probability(self) -> float:
        """The inclusion probability."""
        return self.recorded * self.scored


class Profile(NamedTuple):
    """Sessions with the same cells, and how many they are."""

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
    """The turns with equal inclusion probability, and what each profile has of them."""

    profiles: list[tuple[int, Part, list[Cell]]] = field(default_factory=list)
    """Number of sessions, the sums of one of them, and its cells."""
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
        """The mean score in the stratum; its weights cancel where they are equal."""
        return min(max(self.all.total / self.all.weight, 0.0), 1.0)

    @property
    def kish(self) -> float:
        """How many turns with equal weights would weigh as evenly (Kish): (Σw)²/Σw²."""
        return self.all.weight**2 / self.all.squares

    @property
    def whole_sessions(self) -> float:
        """How many sessions of equal weight would weigh as evenly: (Σw)²/Σ_s(Σ_s w)²."""
        return self.all.weight**2 / sum(n * part.weight**2 for n, part, _ in self.profiles)

    @property
    def sessions_with_rarer(self) -> int:
        """How many sessions have passes, or failures: whichever fewer have, at least one."""
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
    """Each profile with the sums of one of its sessions, by the numbers of the strata where it has turns."""
    places: Mapping[float, int]
    """The number of the stratum of each inclusion probability."""

    @property
    def turns(self) -> int:
        """How many turns were scored."""
        return sum(stratum.all.turns for stratum in self.strata)

    @property
    def sessions(self) -> int:
        """How many sessions they are from."""
        return sum(profile.sessions for profile, _ in self.profiles)

    @property
    def weight(self) -> float:
        """How many turns of the traffic they stand for."""
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
    """Return the number of the stratum of each inclusion probability."""
    found: Sequence[float] = sorted(probabilities)
    if len(found) <= MOST_STRATA:
        return {probability: number for number, probability in enumerate(found)}
    powers = {one: round(math.log2(one)) for one in found}
    numbers = {power: number for number, power in enumerate(sorted(set(powers.values())))}
    return {one: numbers[power] for one, power in powers.items()}
