"""`ReplayResult`: what a replay found, as plain data for every output."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from evaltap.evaluator.analysis.forecast.model import Forecast, Verdict
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.schemas.data import Json

EXIT_CODES: Final[Mapping[Verdict, int]] = {"not_worse": 0, "worse": 1, "not_enough": 3}
_RANK: Final[Sequence[Verdict]] = ("worse", "not_enough", "not_worse")
"""The verdict on several metrics is the first that one of them has."""


@dataclass(frozen=True, slots=True)
class ForkedTool:
    """Sessions that left their recording at a call of one tool."""

    tool: str
    count: int
    """The number of runs of sessions."""
    share: float
    """The share of the traffic that is not faithful because of them: weighted turns, from the call on."""
    arguments: Json = None
    """Those of one of the calls."""
    why: str = ""
    """Why the recording had no result for it: `recorded with other arguments`."""
    sessions: tuple[str, ...] = ()
    """The names of the sessions, each once."""

    def data(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "sessions"}


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A replay of recorded sessions, and its forecasts."""

    sessions: int
    """The number of replayed sessions."""
    turns: int
    """The number of their turns."""
    effective_sessions: float | None
    """The number of sessions of equal weight with the same information; None if nothing was replayed."""
    faithful: Rate | None
    """The share of the traffic that was replayed faithfully."""
    metrics: Mapping[str, Forecast]
    """By the name of the metric."""
    forks: tuple[ForkedTool, ...] = ()
    off_script: int = 0
    """The number of turns that were not run, because the user's next message did not fit any more."""
    invalid: int = 0
    """The number of turns without evidence, such as those with a tool result that was not recorded."""
    runs: int = 1
    recorded: int | None = None
    """The number of recorded sessions that match the filter, if only some were drawn."""
    differences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By session: how its calls and answers differ from the recorded ones, as lines of a diff."""
    drift: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By tool: `hits`, `misses`, `real`, `invented`, `closest`, `unused` (recorded calls that were not made)
    and `changed_arguments`, a list of `difference` and `count`; as in `run --json`."""
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of a metric; without metrics, nothing is known."""
        found = {one.verdict for one in self.metrics.values()} or {"not_enough"}
        return next(one for one in _RANK if one in found)

    @property
    def exit_code(self) -> int:
        """0: no metric is worse, 1: one is, 3: not enough to tell."""
        return EXIT_CODES[self.verdict]

    def data(self) -> dict[str, Any]:
        faithful = self.faithful
        return {
            "sessions": self.sessions,
            "recorded_sessions": self.sessions if self.recorded is None else self.recorded,
            "turns": self.turns,
            "runs": self.runs,
            "effective_sessions": self.effective_sessions,
            "faithful": faithful and {"share": faithful.value, "interval": [*faithful.interval]},
            "forks": [one.data() for one in self.forks],
            "off_script": self.off_script,
            "invalid": self.invalid,
            "metrics": {name: one.data() for name, one in self.metrics.items()},
            "differences": {name: [*lines] for name, lines in self.differences.items()},
            "drift": {name: {**one} for name, one in self.drift.items()},
            "verdict": self.verdict,
            "notes": [*self.notes],
        }
