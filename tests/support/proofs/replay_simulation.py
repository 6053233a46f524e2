"""Simulated traffic of agents, recorded and replayed with a changed agent, against the known truth.

A turn passes with a probability that depends on its first tool and on its session.  Old and new agent share
most of what makes a session hard, and answer independently of each other given that.  Sessions with an error
are kept, the others 1 in 5.  A fork makes the rest of the session unfaithful.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evaltap.evaluator.analysis.forecast.draw import draw_sessions
from evaltap.evaluator.analysis.forecast.forecast import forecast
from evaltap.evaluator.analysis.forecast.model import Forecast, Options, ReplayedTurn

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Agent:
    """An agent in production: sessions of 1 to `longest` turns."""

    name: str
    sessions: int
    longest: int
    tools: Sequence[float]
    """The shares of the tools by which turns begin; the last is that of turns without one."""
    logits: Sequence[float]
    """By tool: how easy it is."""
    spread: float
    """How much sessions differ, as a standard deviation of logits."""


AGENTS: Final = (
    Agent("support, 91 %", 900, 4, (0.36, 0.3, 0.14, 0.1, 0.1), (2.8, 3.4, 1.8, 2.2, 4.0), 1.0),
    Agent("search, 99 %", 1900, 1, (0.5, 0.36, 0.14), (4.8, 5.5, 4.6), 0.5),
    Agent("code, 59 %", 200, 10, (0.4, 0.3, 0.14, 0.16), (0.2, 0.8, -0.3, 1.2), 1.3),
    Agent("shop, 80 %", 380, 6, (0.3, 0.3, 0.14, 0.1, 0.16), (1.3, 2.2, 0.9, 1.6, 2.6), 1.0),
    Agent("booking, 96 %", 340, 3, (0.46, 0.2, 0.14, 0.2), (3.6, 3.0, 3.2, 5.0), 0.8),
)


@dataclass(frozen=True)
class Change:
    """How the new agent differs, in logits."""

    name: str
    everywhere: float = 0.0
    one_tool: float = 0.0
    """For the second tool."""


CHANGES: Final = (
    Change("unchanged"),
    Change("a little worse", everywhere=-0.4),
    Change("a tool breaks", one_tool=-3.0),
    Change("better", everywhere=0.5),
)


@dataclass(frozen=True)
class Turns:
    """Turns with the probabilities that they passed, and that they pass with the new agent."""

    session: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    tool: npt.NDArray[np.int64]
    hardness: Numbers
    """Of the session, positive for easy ones."""
    passed: Numbers
    passes: Numbers


def turns_of(agent: Agent, change: Change, sessions: int, rng: np.random.Generator) -> Turns:
    """Return new traffic."""
    lengths = rng.integers(1, agent.longest + 1, sessions)
    session = np.repeat(np.arange(sessions), lengths)
    tool = rng.choice(len(agent.tools), len(session), p=agent.tools)
    common = rng.normal(0, agent.spread, sessions)
    own = 0.9 * common + np.sqrt(1 - 0.9**2) * rng.normal(0, agent.spread, sessions)
    base = np.array(agent.logits)[tool]
    shift = change.everywhere + change.one_tool * (tool == 1)
    return Turns(
        session,
        lengths[session],
        tool,
        common[session],
        _chance(base + common[session]),
        _chance(base + shift + own[session]),
    )


def _chance(logit: Numbers) -> Numbers:
    found: Numbers = 1 / (1 + np.exp(-logit))
    return found


@dataclass(frozen=True)
class Seen:
    """What a fork may depend on."""

    turns: Turns
    old: Mask
    new: Mask
    old_class: npt.NDArray[np.int64]
    """0: failed, 1: passed in a session that failed, 2: in one that passed."""


@dataclass(frozen=True)
class Forks:
    """Where the new agent makes a call that was not recorded: the chance of it, at a turn."""

    name: str
    by_tool_and_class: float = 0.0
    renamed: bool = False
    """The third tool has a new name."""
    where_it_fails: float = 0.02
    where_it_passes: float = 0.02
    """Unlike the others, these two and the last depend on how the new agent would have done."""
    in_hard_sessions: float = 0.0

    def chance(self, seen: Seen) -> Numbers:
        """Return the chance of a fork at each turn."""
        turns = seen.turns
        if self.by_tool_and_class:
            of_tool = np.array([1.0, 0.5, 2.0, 1.0, 0.3])[turns.tool]
            of_class = np.array([2.0, 1.5, 1.0])[seen.old_class]
            # As much of the traffic forks in long sessions as in short ones.
            of_session = self.by_tool_and_class * 2 / (1 + turns.length)
            found: Numbers = np.minimum(of_session * of_tool * of_class, 0.95)
            return found
        if self.renamed:
            return np.where(turns.tool == 2, 1.0, 0.01)
        of_verdict = np.where(seen.new, self.where_it_passes, self.where_it_fails)
        return of_verdict + np.where(turns.hardness < -0.5, self.in_hard_sessions, 0.0)

    @property
    def is_told(self) -> bool:
        """Whether cells account for the forks, so that the estimate must hold."""
        return 0 < self.by_tool_and_class < 0.5


FORKS: Final = (
    Forks("tool and old class, few", by_tool_and_class=0.03),
    Forks("tool and old class, many", by_tool_and_class=0.25),
    Forks("tool and old class, most", by_tool_and_class=0.75),
    Forks("a tool that is renamed", renamed=True),
    Forks("turns that fail", where_it_fails=0.4),
    Forks("turns that pass", where_it_passes=0.2),
    Forks("hard sessions", in_hard_sessions=0.35),
)


@dataclass(frozen=True)
class Truth:
    """Rates of an agent and its change, over all traffic that there could be."""

    old: float
    new: float


@cache
def truth_of(agent: Agent, change: Change, sessions: int = 400_000) -> Truth:
    """Return the rates, from the probabilities of many turns."""
    turns = turns_of(agent, change, sessions, np.random.default_rng(1))
    return Truth(float(turns.passed.mean()), float(turns.passes.mean()))


@dataclass(frozen=True)
class Design:
    """How a replay is done."""

    sample: int | None = None
    """The number of recorded sessions to replay; None: all."""
    runs: int = 1
    deterministic: bool = False


@dataclass(frozen=True)
class Replay:
    """The rows of a replay, and the truth of its traffic."""

    rows: Sequence[ReplayedTurn]
    recorded: int
    traffic: float
    """The rate of the new agent over the actual traffic, recorded or not."""


def replay_of(
    agent: Agent, change: Change, forks: Forks, design: Design, rng: np.random.Generator
) -> Replay:
    """Record new traffic of an agent and replay it with the changed one."""
    turns = turns_of(agent, change, agent.sessions, rng)
    count = len(turns.session)
    old = rng.random(count) < turns.passed
    new = rng.random((1 if design.deterministic else design.runs, count)) < turns.passes
    new = np.broadcast_to(new, (design.runs, count))
    failed = np.isin(turns.session, turns.session[~old])
    old_class = np.where(old, np.where(failed, 1, 2), 0)
    # The same luck in all runs: a fork is a matter of the turn.
    luck = rng.random(count)
    faithful = np.stack(
        [_before_fork(turns, luck < forks.chance(Seen(turns, old, one, old_class))) for one in new]
    )
    flagged = rng.random(count) < np.where(old, 0.03, 0.7)
    kept = np.isin(turns.session, turns.session[flagged])
    recorded = kept | (rng.random(agent.sessions) < 0.2)[turns.session]
    p1 = np.where(kept, 1.0, 0.2)
    p2 = _second_draw(turns, recorded, p1, design, rng)
    rows = [
        ReplayedTurn(
            session=f"{turns.session[at]:06}",
            first_tool=None if turns.tool[at] == len(agent.tools) - 1 else f"tool_{turns.tool[at]}",
            weight=1 / float(p1[at]),
            replayed=None if np.isnan(p2[at]) else 1 / float(p1[at] * p2[at]),
            old=bool(old[at]),
            new=tuple(
                bool(y) if f else None for y, f in zip(new[:, at], faithful[:, at], strict=True)
            ),
            length=int(turns.length[at]),
        )
        for at in np.flatnonzero(recorded)
    ]
    of_traffic = new[0].mean() if design.deterministic else turns.passes.mean()
    return Replay(rows, len({row.session for row in rows}), float(of_traffic))


def _before_fork(turns: Turns, forks: Mask) -> Mask:
    """Return the turns of each session before its first fork."""
    so_far = np.cumsum(forks)
    begins = np.searchsorted(turns.session, turns.session)
    found: Mask = so_far - so_far[begins] + forks[begins] == 0
    return found


def _second_draw(
    turns: Turns, recorded: Mask, p1: Numbers, design: Design, rng: np.random.Generator
) -> Numbers:
    """Return p2 of each turn, NaN where it is not replayed."""
    if design.sample is None:
        return np.where(recorded, 1.0, np.nan)
    salt = int(rng.integers(1 << 40))
    of_session = {int(turns.session[at]): float(p1[at]) for at in np.flatnonzero(recorded)}
    drawn = draw_sessions({f"{salt}-{one}": p for one, p in of_session.items()}, design.sample)
    found = {one: drawn.get(f"{salt}-{one}", np.nan) for one in of_session}
    return np.array([found.get(int(one), np.nan) for one in turns.session])


HELD: Final = ("estimate", "difference", "traffic", "bounds", "difference_bounds", "faithful")


class Tally:
    """What became of the forecasts of many replays."""

    def __init__(
        self,
        agent: Agent,
        change: Change,
        forks: Forks,
        *,
        rounds: int,
        seed: int,
        design: Design | None = None,
        spoil: Callable[[int, ReplayedTurn], ReplayedTurn] | None = None,
    ) -> None:
        design = design or Design()
        self.rounds = rounds
        self.truth = truth_of(agent, change)
        self.sessions = self.forked = self.withheld = self.decided = self.wrong = 0.0
        self.at_truth = {"worse": 0.0, "not_worse": 0.0}
        """How often each is said if the margin is exactly the drop that there is."""
        self.errors: list[float] = []
        held: dict[str, list[bool]] = {name: [] for name in HELD}
        rng = np.random.default_rng([seed, *map(ord, agent.name + change.name + forks.name)])
        for _ in range(rounds):
            replay = replay_of(agent, change, forks, design, rng)
            rows = replay.rows
            if spoil:
                rows = [spoil(place, row) for place, row in enumerate(rows)]
            found = forecast(rows, Options(deterministic=design.deterministic))
            self.sessions += replay.recorded
            self._add(found, replay.traffic, held)
        # Counts, divided once: 40 times 1/40 is a little more than 1.
        self.forked, self.sessions = self.forked / rounds, self.sessions / rounds
        self.withheld, self.decided = self.withheld / rounds, self.decided / rounds
        self.wrong /= rounds
        self.at_truth = {said: count / rounds for said, count in self.at_truth.items()}
        self.held = {name: float(np.mean(one)) if one else None for name, one in held.items()}

    def _add(self, found: Forecast, traffic: float, held: dict[str, list[bool]]) -> None:
        new, drop = self.truth.new, self.truth.new - self.truth.old
        assert found.faithful is not None
        self.forked += 1 - found.faithful.value
        self.withheld += found.estimate is None
        if found.estimate is not None:
            self.errors.append(found.estimate.rate.value - new)
            held["estimate"].append(_holds(found.estimate.rate.interval, new))
            held["difference"].append(_holds(found.estimate.difference.interval, drop))
            held["traffic"].append(_holds(found.estimate.traffic, traffic))
        if found.new is not None:
            held["faithful"].append(_holds(found.new.interval, new))
        held["bounds"].append(_holds(found.bounds_interval, new))
        held["difference_bounds"].append(_holds(found.difference_bounds_interval, drop))
        right = "worse" if drop < -found.margin else "not_worse"
        self.decided += found.enough
        self.wrong += found.enough and found.verdict != right
        at_truth = replace(found, margin=-drop)
        if at_truth.enough:
            self.at_truth[at_truth.verdict] += 1

    @property
    def bias(self) -> float | None:
        """The mean error of the estimate."""
        return float(np.mean(self.errors)) if self.errors else None


def _holds(interval: Any, truth: float) -> bool:
    return bool(interval[0] - 1e-12 <= truth <= interval[1] + 1e-12)
