"""What goes into a forecast and what comes out: replayed turns, and figures with a verdict."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from evaltap.evaluator.analysis.forecast.machine import Change
from evaltap.evaluator.analysis.stats.rate import Interval, Rate

Verdict: TypeAlias = Literal["worse", "not_worse", "not_enough"]


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """A recorded turn, and the new agent's verdicts on it under one metric."""

    session: str
    """Unique among the sessions; it stands in `newly_failing`."""
    first_tool: str | None
    """The first recorded tool."""
    weight: float
    """a = 1/p1, the inverse of the probability that it was recorded."""
    replayed: float | None
    """w = 1/(p1·p2), the inverse of the probability that it was recorded and replayed; None: not replayed."""
    old: bool | None
    """Whether it passed; None: without a verdict, so that it counts nowhere."""
    new: tuple[bool | None, ...] = ()
    """For each run whether it passes; None: not faithful (forked, off script, invalid), or no verdict."""
    length: int = 1
    """The number of turns of the session."""
    intent: str | None = None
    sessions: int = 1
    """For how many sessions with such turns it stands; for one if it was replayed."""
    fork: str | None = None
    """The tool of the call without a recorded result, if this is the turn at which the session forks."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of a forecast."""

    margin: float = 0.02
    """The largest drop of the rate that is accepted."""
    deterministic: bool = False
    """Whether the agent always answers a turn in the same way; only for the interval of this traffic."""
    chosen_by_outcome: bool = False
    """Whether the sessions were chosen by how they ended, so that nothing can be forecast: answers vary, and
    of the sessions that failed some pass the second time by themselves."""


class Estimated(NamedTuple):
    """The rate if what is not faithful behaves like the faithful turns of its cell."""

    rate: Rate
    difference: Change
    traffic: Interval
    """The 95 % interval for the actual traffic."""


class Unsupported(NamedTuple):
    """Why there is no estimate."""

    share: float
    """The share of the traffic for which nothing speaks."""
    tools: tuple[str, ...]
    """First tools that are almost never replayed faithfully."""


_ANY_RATE: Final = Interval(0.0, 1.0)
_ANY_CHANGE: Final = Interval(-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a replay says about the traffic, under one metric."""

    margin: float
    old: Rate | None = None
    """None: no turn has an old verdict."""
    faithful: Rate | None = None
    """The share of the traffic that was replayed faithfully; None if nothing was replayed."""
    new: Rate | None = None
    """Of the faithful traffic alone."""
    difference: Change | None = None
    """Of the faithful traffic alone, both verdicts on the same turns."""
    estimate: Estimated | None = None
    unsupported: Unsupported | None = None
    """Why the estimate is None."""
    bounds: Interval = _ANY_RATE
    """The rate if everything that is not faithful fails, or passes."""
    bounds_interval: Interval = _ANY_RATE
    """Both ends are those of 95 % intervals."""
    difference_bounds: Interval = _ANY_CHANGE
    difference_bounds_interval: Interval = _ANY_CHANGE
    cells: int = 0
    newly_failing: tuple[str, ...] = ()
    """Sessions whose turns all passed and that are faithful and fail in most runs."""
    newly_passing: tuple[str, ...] = ()
    most_forks: str | None = None
    """The tool at which most of the traffic forks."""
    chosen_by_outcome: bool = False
    """Whether there are only lists of sessions."""

    @property
    def verdict(self) -> Verdict:
        """Whether the rate drops by more than the margin; only the bounds decide."""
        low, high = self.difference_bounds_interval
        if low > -self.margin:
            return "not_worse"
        return "worse" if high < -self.margin else "not_enough"

    @property
    def enough(self) -> bool:
        """Whether the replay decides."""
        return self.verdict != "not_enough"

    @property
    def advice(self) -> str | None:
        """What would help to decide; None if it is decided."""
        if self.enough:
            return None
        if self.chosen_by_outcome:
            return "sessions that are not chosen by how they ended would help"
        low, high = self.difference_bounds
        known = self.estimate.difference if self.estimate else self.difference
        change = known.value if known else 0.0
        if high - low <= self.margin + abs(change):
            return "more sessions would help"
        if self.most_forks:
            return f"fewer forks would help, above all at {self.most_forks}"
        return "more sessions that can be replayed faithfully to their end would help"

    def data(self) -> dict[str, Any]:
        estimated, why = self.estimate, self.unsupported
        return {
            "old": _rate_data(self.old),
            "faithful": self.faithful
            and {"share": self.faithful.value, "interval": [*self.faithful.interval]},
            "new": _rate_data(self.new),
            "difference": self.difference
            and {**_change_data(self.difference), "p": self.difference.p},
            "estimate": estimated
            and {
                "rate": estimated.rate.value,
                "interval": [*estimated.rate.interval],
                "difference": _change_data(estimated.difference),
            },
            "traffic_interval": estimated and [*estimated.traffic],
            "unsupported": why and {"share": why.share, "tools": [*why.tools]},
            "bounds": [*self.bounds],
            "bounds_interval": [*self.bounds_interval],
            "difference_bounds": [*self.difference_bounds],
            "difference_bounds_interval": [*self.difference_bounds_interval],
            "verdict": self.verdict,
            "margin": self.margin,
            "enough": self.enough,
            "advice": self.advice,
            "cells": self.cells,
            "newly_failing": [*self.newly_failing],
            "newly_passing": [*self.newly_passing],
        }


def _rate_data(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else {"rate": rate.value, "interval": [*rate.interval]}


def _change_data(change: Change) -> dict[str, Any]:
    return {"value": change.value, "interval": [*change.interval]}
