"""A rate or mean of all traffic from sampled turns, with 95 % intervals that account for sessions and strata.

w = 1/π is the weight of a turn, y its score, h a stratum of equal π; sums are over scored turns.

- Rate: p = Σwy/Σw (Hájek; Särndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992).
- Process interval, for other traffic that the same agent and users could have made: a Wilson interval in
  each stratum, with an effective size that accounts for its sessions (Korn and Graubard, Survey Methodology
  24, 1998).  Strata are added by "square and add" (Newcombe 1998; Zou and Donner, Statistics in Medicine 27,
  2008), since a stratum without observed failures is still uncertain.  Variances leave one session
  out at a time, and Student's t has as many degrees as there are effective sessions (Carter, Schnepel and
  Steigerwald, Review of Economics and Statistics 99, 2017).
- Traffic interval, for the actual turns: the same, with only the variance of the draws.

The steps in the comments are those of docs/explanation/estimates.md.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.layers import (
    Layer,
    Reach,
    SessionSum,
    SessionWeight,
    leaving_one_out,
)
from evaltap.evaluator.analysis.stats.rate import Interval, Rate, Unit

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


@dataclass(frozen=True, slots=True)
class Estimate:
    """A weighted rate or mean in [0, 1], and its uncertainty."""

    rate: Rate
    """Its interval is for the general behaviour of agent and users, its n the number of scored turns."""
    traffic: Interval
    """The 95 % interval for the actual turns; a point if all of them were scored."""
    sessions: int
    """The number of clusters; usually sessions."""
    estimated_turns: float
    """The number of turns of the traffic that the scored turns represent."""
    design_effect: float | None
    """The variance relative to that of independent turns with the same weights; None if all scores are
    equal."""
    effective_sessions: float
    """The number of sessions of equal weight with the same information."""


def estimate(
    profiles: Iterable[Profile], *, scores: bool = False, unit: Unit = "turns"
) -> Estimate | None:
    """Return the estimate of a pass rate or, with `scores`, of a mean score in [0, 1]; None without turns."""
    sample = sample_of(profiles)
    if not sample.turns:
        return None
    count = sample.weight
    layers = [_layer(stratum, count) for stratum in sample.strata]
    rate = min(sum(one.share * one.mean for one in layers), 1.0)
    reach = Reach(layers, _session_weights(sample), scores=scores)
    between = _total_variance(sample, lambda at, part: (layers[at].mean - rate) * part.weight)
    variance = _total_variance(sample, lambda _, part: part.total - rate * part.weight)
    factor = reach.factor(variance, between)
    process = reach.interval(rate, factor, between)
    effective = rate * (1 - rate) / variance if variance > 0 else reach.default_trials
    weighted = abs(count - sample.turns) > 1e-6
    return Estimate(
        Rate(rate, process, sample.turns, effective, unit, weighted),
        _traffic(sample, layers, rate, factor, reach),
        sample.sessions,
        count,
        reach.design_effect,
        reach.effective_sessions,
    )


def kish(profiles: Iterable[Profile]) -> float:
    """Return the effective number of equally weighted turns, (Σw)²/Σw², as if all were independent."""
    cells = [
        (one.sessions * cell.turns, cell.probability) for one in profiles for cell in one.cells
    ]
    return sum(n / p for n, p in cells) ** 2 / sum(n / p**2 for n, p in cells)


def estimate_items(
    items: Iterable[tuple[Hashable, float, float]], clusters: Mapping[Hashable, int] | None = None
) -> Estimate | None:
    """Return the estimate from single items: the cluster, the inclusion probability and the score of each.

    `clusters` says for how many clusters alike a cluster stands, if not for itself alone.
    """
    sums: dict[Hashable, dict[float, list[float]]] = {}
    for cluster, probability, score in items:
        cell = sums.setdefault(cluster, {}).setdefault(probability, [0, 0.0, 0.0])
        for place, value in enumerate((1, score, score * score)):
            cell[place] += value
    alike: Counter[tuple[Cell, ...]] = Counter()
    for cluster, one in sums.items():
        cells = sorted(Cell(p, int(n), total, squares) for p, (n, total, squares) in one.items())
        alike[tuple(cells)] += clusters.get(cluster, 1) if clusters else 1
    return estimate(Profile(cells, count) for cells, count in alike.items())


def rate_of_trials(rows: Sequence[tuple[int, int, int]]) -> Rate | None:
    """Return the share of trials that have something; None without trials.

    A row is a number of trials of a case, how many of them have it, and of how many cases that is so.  Cases
    of one trial each are independent; otherwise the trials of a case are a cluster.
    """
    if all(trials == 1 for trials, *_ in rows):
        having = sum(having * cases for _, having, cases in rows)
        return Rate.of_counts(having, sum(cases for *_, cases in rows), "cases")
    found = estimate(
        (Profile((Cell(1, trials, having, having),), cases) for trials, having, cases in rows),
        unit="trials",
    )
    return found.rate if found else None


def mean_of_cases(values: Iterable[float]) -> Rate | None:
    """Return the mean of a figure in [0, 1] that each case has, with its interval; None without cases."""
    profiles = (
        Profile((Cell(1.0, 1, value, value * value),), cases)
        for value, cases in Counter(values).items()
    )
    found = estimate(profiles, scores=True, unit="cases")
    return found.rate if found else None


def _layer(stratum: Stratum, count: float) -> Layer:
    mean, weight = stratum.mean, stratum.all.weight
    residuals = (
        SessionSum(n, part.total - mean * part.weight, part.weight)
        for n, part, _ in stratum.profiles
    )
    return Layer(
        share=weight / count,
        mean=mean,
        variance=leaving_one_out(residuals, weight),
        spread=mean * (1 - mean),
        kish=stratum.kish,
        turns=stratum.all.turns,
        sessions=stratum.sessions,
        whole_sessions=stratum.whole_sessions,
        sessions_with_rarer=stratum.sessions_with_rarer,
    )


def _traffic(
    sample: Sample, layers: Sequence[Layer], rate: float, factor: float, reach: Reach
) -> Interval:
    """Return step 10: the interval from the draws alone."""
    if all(cell.probability >= 1 for profile, _ in sample.profiles for cell in profile.cells):
        return Interval(rate, rate)

    def residuals(cell: Cell) -> tuple[float, float]:
        residual = layers[sample.places[cell.probability]].mean - rate
        return cell.turns * residual, cell.turns * residual**2

    sessions = ((profile.sessions, profile.cells) for profile, _ in sample.profiles)
    between = drawn_variance(sessions, residuals) / sample.weight**2
    thinned = [_drawn_share(one) for one in sample.strata]
    return reach.interval(rate, factor, between, thinned=thinned)


def _drawn_share(stratum: Stratum) -> float:
    """Return φ: the variance of the draws over the squares of the sessions' residuals, at most 1."""
    mean = stratum.mean

    def residuals(cell: Cell) -> tuple[float, float]:
        squares = cell.squares - 2 * mean * cell.total + mean * mean * cell.turns
        return cell.total - mean * cell.turns, squares

    squared = sum(n * (part.total - mean * part.weight) ** 2 for n, part, _ in stratum.profiles)
    if 0 < mean < 1 and squared > 1e-20 * stratum.all.weight**2:  # more than a rounding error
        drawn = drawn_variance(((n, cells) for n, _, cells in stratum.profiles), residuals)
        return min(1.0, drawn / squared)
    cells = (
        (n * cell.turns, cell.probability) for n, _, found in stratum.profiles for cell in found
    )
    return sum(turns * (1 - p) / (p * p) for turns, p in cells) / stratum.all.squares


def drawn_variance(
    sessions: Iterable[tuple[int, Iterable[Cell]]], residuals: Callable[[Cell], tuple[float, float]]
) -> float:
    """Return Σ_s Σ_ij (1 - π_i π_j / π_ij) w_i e_i w_j e_j over the turns i, j of each session.

    `sessions` are numbers of sessions with the cells of one of them; `residuals` returns Σe and Σe² of a
    cell. π_ij, the chance that both turns are scored, is that of the less likely one if they share a draw,
    and the product if they do not.  The sum is computed by cells, never by pairs of turns.
    """
    total = 0.0
    for count, cells in sessions:
        weighted = own = 0.0
        shared: list[tuple[float, float, float]] = []
        for cell in cells:
            residual, squares = residuals(cell)
            weighted += residual / cell.probability
            if cell.by_turn:
                shared.append((cell.recorded, 1.0, residual / cell.scored))
                own += squares / cell.probability * (1 - 1 / cell.scored)
            else:
                shared.append((cell.recorded, cell.scored, residual))
        total += count * (weighted * weighted - _over_both(shared) - own)
    return max(0.0, total)


def _over_both(cells: Sequence[tuple[float, float, float]]) -> float:
    """Return Σ e e' / (min(p, p')·min(q, q')) over all pairs of (p, q, e), including each with itself.

    Computed by layers of 1/q: a pair contributes to the layers above the smaller of its q.
    """
    levels = sorted({scored for _, scored, _ in cells})
    whole = _over_first([(recorded, residual) for recorded, _, residual in cells])
    total = whole / levels[-1]
    for lower, upper in pairwise(levels):
        above = _over_first([(p, residual) for p, q, residual in cells if q >= upper])
        total += (1 / lower - 1 / upper) * (whole - above)
    return total


def _over_first(cells: Sequence[tuple[float, float]]) -> float:
    """Return Σ e e' / min(p, p') over all pairs of (p, e)."""
    later, total = sum(residual for _, residual in cells), 0.0
    for probability, residual in sorted(cells):
        later -= residual
        total += residual * (residual + 2 * later) / probability
    return total


def _total_variance(sample: Sample, residual: Callable[[int, Part], float]) -> float:
    """Return the variance of Σwe/Σw; `residual` returns Σwe of a session's turns in an indexed stratum."""
    sums = (
        SessionSum(
            profile.sessions,
            sum(residual(at, part) for at, part in parts.items()),
            sum(part.weight for part in parts.values()),
        )
        for profile, parts in sample.profiles
    )
    return leaving_one_out(sums, sample.weight)


def _session_weights(sample: Sample) -> Sequence[SessionWeight]:
    return [
        SessionWeight(
            profile.sessions,
            sum(part.weight for part in parts.values()),
            sum(part.squares for part in parts.values()),
        )
        for profile, parts in sample.profiles
    ]
