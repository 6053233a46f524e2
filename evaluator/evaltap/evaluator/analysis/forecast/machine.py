"""One calculation for all figures of a forecast: a rate of recorded turns from verdicts on some of them.

a = 1/p1 is the weight of a recorded turn, o its old verdict, c its cell; w = 1/(p1·p2) is the weight of an
item, y its verdict.  Turns without an item are taken to be like the items of their cell.  With a rate of its
own for each cell, imputation, inverse propensity and doubly robust estimation are the same number (Bang and
Robins, Biometrics 61, 2005).  The interval is that of `estimate` with groups for strata; if the classes of π
are cells and groups, and every turn is an item, the whole is `estimate`.

The steps in the comments are those of docs/explanation/replay.md.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.estimate import Cell, drawn_variance, estimate_items
from evaltap.evaluator.analysis.stats.layers import (
    Layer,
    Reach,
    SessionSum,
    SessionWeight,
    leaving_one_out,
)
from evaltap.evaluator.analysis.stats.rate import Z95, Interval, Rate


class Turn(NamedTuple):
    """A recorded turn."""

    session: str
    weight: float
    """a, the inverse of the probability that it was recorded."""
    passed: bool
    """o, its old verdict."""
    cell: int
    group: int
    sessions: int = 1
    """For how many sessions with such turns it stands; for one if it has items."""


class Item(NamedTuple):
    """A verdict that speaks for the turns of a cell."""

    turn: int
    """The index of its turn."""
    run: int
    weight: float
    """w, the inverse of the probability that it was recorded and replayed, divided by the number of runs."""
    passed: bool
    """y"""


@dataclass(frozen=True, slots=True)
class Change:
    """The new rate minus the old one, with its 95 % interval."""

    value: float
    interval: Interval
    p: float
    """Two-sided: the end of the interval that is nearer to 0 counts as 1.96 standard errors away."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The result of the calculation."""

    rate: Rate
    """The interval is for other traffic that the agent and its users could have made."""
    difference: Change
    """Compared with the old verdicts on all turns."""
    traffic: Interval | None
    """The 95 % interval of the rate for the actual traffic, if it was asked for."""
    effective_sessions: float
    """The number of sessions of equal weight with the same information."""


def calculate(
    turns: Sequence[Turn], items: Sequence[Item], *, deterministic: bool | None = None
) -> Figure:
    """Return the rate of `turns`, each cell of which must have an item.

    `deterministic`, whether the agent always gives the same answer to a turn, is for the interval of the
    actual traffic; None: there is none.
    """
    sums = _Sums(turns, items)
    groups = _groups_of(turns, items, sums)
    reach = Reach([one.layer() for one in groups], _weights(turns, groups))
    rate = min(sums.rate, 1.0)
    between = sums.between(rate)
    variance, variance_of_change = sums.leaving_one_out()
    effective = rate * (1 - rate) / variance if variance > 0 else reach.default_trials
    interval = reach.interval(rate, reach.factor(variance, between), between)
    number, weighted = len({one.turn for one in items}), any(one.weight > 1.001 for one in turns)
    traffic = None
    if deterministic is not None:
        traffic = _traffic(turns, sums, groups, reach, deterministic=deterministic)
    return Figure(
        Rate(rate, interval, number, effective, "turns", weighted),
        _change(turns, sums, reach, variance_of_change),
        traffic,
        reach.effective_sessions,
    )


def _change(turns: Sequence[Turn], sums: "_Sums", reach: Reach, variance: float) -> Change:
    value = sums.rate - sums.old_rate
    between = sums.between(value, old=1.0)
    interval = reach.interval(value, reach.factor(variance, between), between, least=-1.0)
    interval = _with_unseen(turns, value, interval)
    facing = value - interval.low if value > 0 else interval.high - value
    if facing <= _ROUNDING:
        return Change(value, interval, 1.0 if abs(value) <= _ROUNDING else 0.0)
    return Change(value, interval, 2 * (1 - NormalDist().cdf(abs(value) / facing * Z95)))


def _with_unseen(turns: Sequence[Turn], value: float, interval: Interval) -> Interval:
    """Return the interval with the old rate's own uncertainty, if all old verdicts are equal.

    Turns that ended otherwise, of which none was seen here, may have a new verdict that is not the old one.
    """
    if len({one.passed for one in turns}) > 1:
        return interval
    old = estimate_items(
        ((one.session, 1 / one.weight, float(one.passed)) for one in turns),
        {one.session: one.sessions for one in turns},
    )
    assert old is not None
    low = value - math.hypot(value - interval.low, old.rate.interval.high - old.rate.value)
    high = value + math.hypot(interval.high - value, old.rate.value - old.rate.interval.low)
    return Interval(max(-1.0, low), min(1.0, high))


def _traffic(
    turns: Sequence[Turn],
    sums: "_Sums",
    groups: "Sequence[_Group]",
    reach: Reach,
    *,
    deterministic: bool,
) -> Interval:
    """Return the interval from the draws and the agent's own randomness, without other traffic."""
    sessions: defaultdict[str, list[Cell]] = defaultdict(list)
    for one in turns:
        residual = sums.cells[one.cell].rate - sums.rate
        sessions[one.session].append(Cell(1 / one.weight, 1, residual, 0.0))
    drawn = drawn_variance(
        ((sums.counts[session], cells) for session, cells in sessions.items()),
        lambda cell: (cell.total, 0.0),
    )
    thinned = [one.thinned(deterministic=deterministic) for one in groups]
    return reach.interval(min(sums.rate, 1.0), 1.0, drawn / sums.weight**2, thinned=thinned)


_ROUNDING: Final = 1e-9


@dataclass(slots=True)
class _Part:
    """Sums over the turns of a cell, or over those of one session in it."""

    weight: float = 0.0
    """Σa over its turns."""
    drawn: float = 0.0
    """Σw over its items."""
    passed: float = 0.0
    """Σwy"""

    @property
    def rate(self) -> float:
        return self.passed / self.drawn

    def add(self, part: "_Part", sessions: int) -> None:
        """Add the sums of one of so many sessions alike; only a single one has items."""
        self.weight += part.weight * sessions
        self.drawn += part.drawn
        self.passed += part.passed

    def rate_without(self, part: "_Part") -> float:
        """Return the rate without a session; unchanged if nothing else is left."""
        rest = self.drawn - part.drawn
        return (self.passed - part.passed) / rest if rest > _ROUNDING * self.drawn else self.rate


class _Sums:
    """The sums by cell and session (step 1), and what follows from them (step 5)."""

    def __init__(self, turns: Sequence[Turn], items: Sequence[Item]) -> None:
        self.sessions: defaultdict[str, defaultdict[int, _Part]] = defaultdict(
            lambda: defaultdict(_Part)
        )
        self.counts: dict[str, int] = {}
        """For how many sessions each stands."""
        self._old: defaultdict[str, float] = defaultdict(float)
        for session, weight, passed, cell, _, count in turns:
            self.sessions[session][cell].weight += weight
            self._old[session] += weight * passed
            self.counts[session] = count
        for turn, _, weight, passed in items:
            part = self.sessions[turns[turn].session][turns[turn].cell]
            part.drawn += weight
            part.passed += weight * passed
        self.cells: defaultdict[int, _Part] = defaultdict(_Part)
        for session, parts in self.sessions.items():
            for number, part in parts.items():
                self.cells[number].add(part, self.counts[session])
        self.weight = sum(cell.weight for cell in self.cells.values())
        self.rate = sum(cell.weight * cell.rate for cell in self.cells.values()) / self.weight
        old = sum(self.counts[session] * passed for session, passed in self._old.items())
        self.old_rate = old / self.weight

    def between(self, value: float, *, old: float = 0.0) -> float:
        """Return b, the variance from other traffic: of r_c - old·o around `value`."""
        rates = {number: cell.rate for number, cell in self.cells.items()}
        sums = (
            SessionSum(
                self.counts[session],
                sum(one.weight * (rates[number] - value) for number, one in parts.items())
                - old * self._old[session],
                sum(one.weight for one in parts.values()),
            )
            for session, parts in self.sessions.items()
        )
        return leaving_one_out(sums, self.weight)

    def leaving_one_out(self) -> tuple[float, float]:
        """Return V, of the rate and of the change; a session is left out from turns and items."""
        whole, old = self.rate * self.weight, self.old_rate * self.weight
        rates, changes = [], []
        for session, parts in self.sessions.items():
            weight, total = self.weight, whole
            for number, one in parts.items():
                cell = self.cells[number]
                weight -= one.weight
                total += (cell.weight - one.weight) * cell.rate_without(one)
                total -= cell.weight * cell.rate
            if weight > _ROUNDING * self.weight:
                rate, before = total / weight, (old - self._old[session]) / weight
                count, change = self.counts[session], rate - before
                rates.append(SessionSum(count, rate - self.rate, 0.0))
                changes.append(SessionSum(count, change - self.rate + self.old_rate, 0.0))
        return leaving_one_out(rates, 1.0), leaving_one_out(changes, 1.0)


@dataclass(slots=True)
class _Session:
    weight: float = 0.0
    residual: float = 0.0
    """Σω(y - r)"""
    by_run: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """The same by run."""
    passes: bool = False
    fails: bool = False


@dataclass(slots=True)
class _Group:
    """The items whose uncertainty is computed together; ω is the weight of an item, 1 for all (step 2)."""

    runs: int
    population: float = 0.0
    """Σa over the turns of the group."""
    weight: float = 0.0
    passed: float = 0.0
    spread: float = 0.0
    """Σωr(1 - r)"""
    turns: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Σω by turn."""
    sessions: defaultdict[str, _Session] = field(default_factory=lambda: defaultdict(_Session))

    @property
    def variance(self) -> float:
        """The variance of the mean, leaving out one session at a time."""
        sums = (SessionSum(1, one.residual, one.weight) for one in self.sessions.values())
        return leaving_one_out(sums, self.weight)

    def layer(self) -> Layer:
        sessions = self.sessions.values()
        rarer = min(sum(one.passes for one in sessions), sum(one.fails for one in sessions))
        return Layer(
            share=self.weight,
            mean=min(self.passed / self.weight, 1.0),
            variance=self.variance,
            spread=self.spread / self.weight,
            kish=self.weight**2 / sum(weight**2 for weight in self.turns.values()),
            turns=len(self.turns),
            sessions=len(sessions),
            whole_sessions=self.weight**2 / sum(one.weight**2 for one in sessions),
            sessions_with_rarer=max(1, rarer),
        )

    def thinned(self, *, deterministic: bool) -> float:
        """Return φ, the share of the variance that remains if the traffic is given.

        The agent's own randomness remains.  It can only be told apart by comparing several runs.
        """
        own = 0.0 if deterministic else 1.0
        if not deterministic and self.runs > 1 and (variance := self.variance) > 0:
            found = 0.0
            for one in self.sessions.values():
                mean = one.residual / self.runs
                missing = self.runs - len(one.by_run)
                found += missing * mean**2 + sum((z - mean) ** 2 for z in one.by_run.values())
            # z is here 1/R of what it is in the formula.
            scale = self.runs / (self.runs - 1) / self.weight**2
            own = min(1.0, found * scale / variance)
        return 1 - min(1.0, len(self.turns) / self.population) * (1 - own)


def _groups_of(turns: Sequence[Turn], items: Sequence[Item], sums: _Sums) -> Sequence[_Group]:
    runs = 1 + max(one.run for one in items)
    found: defaultdict[int, _Group] = defaultdict(lambda: _Group(runs))
    scales = {
        number: (cell.weight / sums.weight / cell.drawn, cell.rate)
        for number, cell in sums.cells.items()
    }
    for number, run, drawn, passed in items:
        session, cell, place = turns[number].session, turns[number].cell, turns[number].group
        scale, rate = scales[cell]
        weight = scale * drawn
        residual = weight * (passed - rate)
        group = found[place]
        group.weight += weight
        group.spread += weight * rate * (1 - rate)
        group.turns[number] += weight
        own = group.sessions[session]
        own.weight += weight
        own.residual += residual
        own.by_run[run] += residual
        if passed:
            group.passed += weight
            own.passes = True
        else:
            own.fails = True
    for turn in turns:
        if turn.group in found:
            found[turn.group].population += turn.weight * turn.sessions
    return [group for _, group in sorted(found.items())]


def _weights(turns: Sequence[Turn], groups: Sequence[_Group]) -> Sequence[SessionWeight]:
    """Return Σω and Σω² of each session, the runs of a turn summed first."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for group in groups:
        for turn, weight in group.turns.items():
            own = found[turns[turn].session]
            own[0] += weight
            own[1] += weight**2
    return [SessionWeight(1, weight, squares) for weight, squares in found.values()]
