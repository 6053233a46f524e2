"""Forecast the pass rate that the traffic would have with a new agent, from a replay of recorded sessions.

A turn is faithful if the new agent only made calls for which the recording has a result, in it and in the
turns before it; only then is there a new verdict.  The bounds take everything else as failed, or as passed,
and decide (Manski, American Economic Review 80, 1990).  The estimate takes it to be like the faithful turns
of its cell, and never decides.  docs/explanation/replay.md has the formulas and the simulation.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.analysis.forecast.machine import Figure, Item, Turn, calculate
from evaltap.evaluator.analysis.forecast.model import (
    Estimated,
    Forecast,
    Options,
    ReplayedTurn,
    Unsupported,
)
from evaltap.evaluator.analysis.stats.estimate import estimate_items
from evaltap.evaluator.analysis.stats.rate import Interval

Key: TypeAlias = tuple[str | int, ...]

LEAST_FAITHFUL: Final = 0.5
"""With a smaller share of faithful turns, there is no estimate."""
FORKED_SESSIONS: Final = 3
FORKED_SHARE: Final = 0.01
SPOKEN_FOR: Final = 0.2
"""Nothing speaks for a tool with so many forked sessions that have more than this share of the traffic, if
less than the last share of its sessions are faithful."""
NO_TOOL: Final = "(no tool)"
_FAITHFUL: Final = (True, False)


def forecast(turns: Iterable[ReplayedTurn], options: Options | None = None) -> Forecast:
    """Return the forecast under one metric; the turns of each session are in their order."""
    options = options or Options()
    rows = _sorted(one for one in turns if one.old is not None)
    failing, passing = newly(rows)
    if options.chosen_by_outcome:
        return Forecast(
            options.margin, newly_failing=failing, newly_passing=passing, chosen_by_outcome=True
        )
    old = estimate_items(
        ((one.session, 1 / one.weight, float(bool(one.old))) for one in rows),
        {one.session: one.sessions for one in rows},
    )
    if old is None:
        return Forecast(options.margin)
    replay = _Replay(rows)
    if not replay.runs:
        bounds = Interval(-old.rate.value, 1 - old.rate.value)
        nothing = Unsupported(1.0, ())
        return Forecast(options.margin, old.rate, unsupported=nothing, difference_bounds=bounds)
    share = replay.figure(_FAITHFUL).rate
    low, high = replay.figure((True,)), replay.figure((True, None))
    unsupported = _unsupported(rows, share.value)
    found = Forecast(
        options.margin,
        old.rate,
        share,
        unsupported=unsupported,
        bounds=Interval(low.rate.value, high.rate.value),
        bounds_interval=Interval(low.rate.interval.low, high.rate.interval.high),
        difference_bounds=Interval(low.difference.value, high.difference.value),
        difference_bounds_interval=Interval(
            low.difference.interval.low, high.difference.interval.high
        ),
        cells=replay.cells,
        newly_failing=failing,
        newly_passing=passing,
        most_forks=_most_forks(rows),
    )
    if not any(run.verdict in _FAITHFUL for run in replay.runs):
        return found
    new = replay.faithful_figure()
    found = replace(found, new=new.rate, difference=new.difference)
    if unsupported:
        return found
    return replace(found, estimate=replay.estimate(deterministic=options.deterministic))


def faithful_share(turns: Iterable[ReplayedTurn]) -> Figure | None:
    """Return the share of the traffic that was replayed faithfully, also of turns without an old verdict.

    The `new` verdict of a faithful run is True.  None: nothing was replayed.
    """
    replay = _Replay(_sorted(turns))
    return replay.figure(_FAITHFUL) if replay.runs else None


def newly(turns: Sequence[ReplayedTurn]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sessions that passed and now fail in most of their runs, and the opposite.

    A run has failed with a turn that did, and passed if all turns did; any other is no evidence.
    """
    sessions: defaultdict[str, list[ReplayedTurn]] = defaultdict(list)
    for row in turns:
        sessions[row.session].append(row)
    failing, passing = [], []
    for session, own in sessions.items():
        old = [row.old for row in own]
        runs = zip(*(row.new for row in own), strict=False)
        balance = sum(-1 if False in one else all(one) for one in runs)
        if all(old) and balance < 0:
            failing.append(session)
        elif False in old and balance > 0:
            passing.append(session)
    return tuple(failing), tuple(passing)


def _sorted(turns: Iterable[ReplayedTurn]) -> Sequence[ReplayedTurn]:
    return sorted(turns, key=lambda one: one.session)


class _Run(NamedTuple):
    turn: int
    number: int
    weight: float
    verdict: bool | None

    def item(self, *, passed: bool) -> Item:
        return Item(self.turn, self.number, self.weight, passed)


class _Replay:
    """Recorded turns in cells and groups, and the runs of those that were replayed.

    Cells and groups depend on what was recorded and what is faithful, never on the new verdicts.
    """

    def __init__(self, rows: Sequence[ReplayedTurn]) -> None:
        self.runs = [
            _Run(place, number, row.replayed / len(verdicts), verdict)
            for place, row in enumerate(rows)
            if row.replayed is not None
            for verdicts in [row.new or (None,)]
            for number, verdict in enumerate(verdicts)
        ]
        cells = _merged(rows, _keys_of(rows))
        groups = _merged(rows, [(int(bool(row.old)), _power(row.weight)) for row in rows])
        self.cells = len(set(cells))
        self._turns = [
            Turn(row.session, row.weight, bool(row.old), cell, group, row.sessions)
            for row, cell, group in zip(rows, cells, groups, strict=True)
        ]

    def figure(self, verdicts: Collection[bool | None]) -> Figure:
        """Return the figure from all runs, faithful or not, of which those with these verdicts pass."""
        return calculate(
            self._turns, [run.item(passed=run.verdict in verdicts) for run in self.runs]
        )

    def estimate(self, *, deterministic: bool) -> Estimated:
        """Return what the faithful runs say about all recorded turns."""
        figure = calculate(self._turns, self._faithful, deterministic=deterministic)
        assert figure.traffic is not None
        return Estimated(figure.rate, figure.difference, figure.traffic)

    def faithful_figure(self) -> Figure:
        """Return the figure of the faithful traffic alone."""
        weights: defaultdict[int, float] = defaultdict(float)
        for item in self._faithful:
            weights[item.turn] += item.weight
        places = {turn: place for place, turn in enumerate(weights)}
        turns = [self._turns[turn]._replace(weight=weight) for turn, weight in weights.items()]
        return calculate(turns, [item._replace(turn=places[item.turn]) for item in self._faithful])

    @property
    def _faithful(self) -> list[Item]:
        return [run.item(passed=run.verdict) for run in self.runs if run.verdict is not None]


def _keys_of(rows: Sequence[ReplayedTurn]) -> list[Key]:
    """Return what turns of a cell have in common: first tool, intent, old class, weight, length."""
    failed = {row.session for row in rows if row.old is False}
    return [
        (
            row.first_tool or "",
            row.intent or "",
            int(bool(row.old)) * (1 if row.session in failed else 2),
            _power(row.weight),
            (row.length > 1) + (row.length > 3),
        )
        for row in rows
    ]


def _power(weight: float) -> int:
    return round(math.log2(weight))


def _merged(rows: Sequence[ReplayedTurn], keys: Sequence[Key]) -> list[int]:
    """Return the cell of each turn, such that each cell has sessions enough with a new verdict."""
    sessions: defaultdict[Key, set[str]] = defaultdict(set)
    for row, key in zip(rows, keys, strict=True):
        known = row.replayed is not None and any(one is not None for one in row.new)
        sessions[key].update([row.session] if known else [])
    cells = cells_of(sessions)
    return [cells[key] for key in keys]


def _unsupported(rows: Sequence[ReplayedTurn], faithful: float) -> Unsupported | None:
    """Return why there can be no estimate: tools that almost always fork, or too little that is faithful."""
    replayed: defaultdict[str, set[str]] = defaultdict(set)
    spoken_for: defaultdict[str, set[str]] = defaultdict(set)
    forked: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.replayed is None:
            continue
        tool, runs = row.first_tool or NO_TOOL, row.new or (None,)
        replayed[tool].add(row.session)
        if any(one is not None for one in runs):
            spoken_for[tool].add(row.session)
        if missing := sum(one is None for one in runs):
            of = forked[tool]
            of[row.session] = of.get(row.session, 0.0) + row.replayed * missing / len(runs)
    whole = sum(row.replayed or 0.0 for row in rows)

    def almost_always_forks(tool: str) -> bool:
        often = sum(forked[tool].values()) > FORKED_SHARE * whole
        alone = len(spoken_for[tool]) < SPOKEN_FOR * len(replayed[tool])
        return len(forked[tool]) >= FORKED_SESSIONS and often and alone

    tools = tuple(filter(almost_always_forks, sorted(forked)))
    if faithful < LEAST_FAITHFUL:
        return Unsupported(1 - faithful, tools)
    if not tools:
        return None
    weights = [(row.weight * row.sessions, row.first_tool or NO_TOOL) for row in rows]
    share = sum(weight for weight, tool in weights if tool in tools)
    return Unsupported(share / sum(weight for weight, _ in weights), tools)


def _most_forks(rows: Sequence[ReplayedTurn]) -> str | None:
    """Return the tool at which the sessions with the largest weight fork."""
    weights: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row.replayed is not None and row.fork:
            weights[row.fork] += row.replayed
    return max(sorted(weights), key=weights.__getitem__, default=None)


ENOUGH_SESSIONS: Final = 10
"""The number of sessions with a new verdict that a cell needs."""


@dataclass(frozen=True, slots=True)
class _Group:
    keys: tuple[Key, ...]
    """Sorted; the first is its name."""
    sessions: frozenset[str]

    @property
    def rank(self) -> tuple[int, Key]:
        return len(self.sessions), self.keys[0]


def cells_of(sessions: Mapping[Key, Collection[str]]) -> dict[Key, int]:
    """Return the number of the cell of each key, given the sessions with a new verdict under it.

    Keys of equal length form a tree.  From the leaves upwards, the group with the fewest sessions of its
    parent is joined with the next smallest until all have enough; a group that stays alone and small moves
    up a level.
    """
    groups = [_Group((key,), frozenset(found)) for key, found in sorted(sessions.items())]
    merged = sorted(_joined(groups, 0), key=lambda one: one.keys[0])
    return {key: number for number, group in enumerate(merged) for key in group.keys}


def _joined(groups: Sequence[_Group], depth: int) -> Sequence[_Group]:
    """Return the groups below a node of the tree, whose keys agree in their first `depth` parts."""
    if len(groups) < 2:
        return groups
    children: defaultdict[str | int, list[_Group]] = defaultdict(list)
    for one in groups:
        children[one.keys[0][depth]].append(one)
    found = [one for child in children.values() for one in _joined(child, depth + 1)]
    while len(found) > 1:
        found.sort(key=lambda one: one.rank)
        first, second, *rest = found
        if len(first.sessions) >= ENOUGH_SESSIONS:
            break
        joined = _Group(tuple(sorted(first.keys + second.keys)), first.sessions | second.sessions)
        found = [joined, *rest]
    return found
