"""What an estimate is about: which turns, sliced by what, and which share of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known


class Join(StrEnum):
    """What is joined to the turns only when a slice, signal or condition looks at it."""

    CASES = "cases"
    CALLS = "calls"
    FEEDBACK = "feedback"
    LANGUAGES = "languages"


class Dimension(NamedTuple):
    """What turns may be sliced by."""

    expression: str
    """SQL over a turn; of a dimension with many values a list."""
    join: Join | None = None
    many: bool = False
    """A turn is in the slice of each of its values."""
    whole_cases: bool = True
    """Cases have it, too."""


DIMENSIONS: Final[Mapping[str, Dimension]] = {
    "app": Dimension("app"),
    "tool": Dimension("list_sort(list_distinct(tools))", Join.CALLS, many=True, whole_cases=False),
    "tool_path": Dimension("array_to_string(tools, ' > ')", Join.CALLS, whole_cases=False),
    "model": Dimension("list_sort(list_distinct(models))", many=True, whole_cases=False),
    "service": Dimension("service", Join.CASES),
    "agent": Dimension("agent_name", whole_cases=False),
    "version": Dimension("version", whole_cases=False),
    "language": Dimension("coalesce(language, 'und')", Join.LANGUAGES, whole_cases=False),
    "environment": Dimension("environment", whole_cases=False),
    "tag": Dimension("list_sort(list_distinct(tags))", many=True, whole_cases=False),
    "run": Dimension("run", whole_cases=False),
    "hour": Dimension("strftime(date_trunc('hour', started_at), '%Y-%m-%dT%H:00:00Z')"),
    "day": Dimension("strftime(started_at, '%Y-%m-%d')"),
    "week": Dimension("strftime(date_trunc('week', started_at), '%Y-%m-%d')"),
}
TIMES: Final = ("hour", "day", "week")
"""Dimensions that are windows of time, the finest first; a week is named by its Monday."""


class Signal(NamedTuple):
    """A share of turns: of those that count, how many have it."""

    has: str
    counts: str
    of_metric: bool = False
    """One share for each metric version, else one for all turns."""
    join: Join | None = None
    limit: str = ""
    """The column whose weighted 95th percentile over all stored turns is $limit."""
    votes: bool = False
    """It looks at the samples of judges."""


SIGNALS: Final[Mapping[str, Signal]] = {
    "pass_rate": Signal(
        "verdict = 'passed'", "verdict IN ('passed', 'failed', 'crashed')", of_metric=True
    ),
    "not_scored": Signal("verdict IN ('not_evaluated', 'error')", "TRUE", of_metric=True),
    "judge_disagreement": Signal(
        "votes_passed NOT IN (0, votes)", "votes > 1", of_metric=True, votes=True
    ),
    "error_rate": Signal("status = 'error'", "status IS NOT NULL"),
    "tool_error_rate": Signal("coalesce(failed_calls, 0) > 0", "TRUE", join=Join.CALLS),
    "slow_rate": Signal("latency_ms > $limit", "latency_ms IS NOT NULL", limit="latency_ms"),
    "costly_rate": Signal("cost_usd > $limit", "cost_usd IS NOT NULL", limit="cost_usd"),
    "long_rate": Signal("tool_count > $limit", "TRUE", limit="tool_count"),
    "negative_feedback": Signal("coalesce(complaints, 0) > 0", "TRUE", join=Join.FEEDBACK),
}
"""What `--signal` knows; slow, costly and long is more than 95 % of all stored turns are."""


class Unit(StrEnum):
    """What is counted."""

    TURN = "turn"
    CASE = "case"
    """Whole sessions, by the scores of cases; one draw, with the largest probability of its turns."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which scored turns: by default all landed ones with their latest scores."""

    metric: str = ""
    digests: tuple[str, ...] = ()
    run_id: str | None = None
    """The scores of one run; else the latest ones."""
    files: bool = False
    """Also turns that were scored from files and never landed, of which each counts once; they have no time,
    and are in no window."""
    since: datetime | None = None
    """Aware; turns that started then or later."""
    until: datetime | None = None
    """Aware; turns that started before."""
    where: str = ""
    """An SQL condition over a turn's columns (`turns.COLUMNS`)."""

    @property
    def with_files(self) -> bool:
        """Whether turns that never landed are in it."""
        return self.files and self.since is None and self.until is None and not self.where

    @property
    def window(self) -> dict[str, datetime | None]:
        """The window as the tables hold times: UTC, without a zone."""
        return {
            "since": self.since and stored_time(self.since),
            "until": self.until and stored_time(self.until),
        }


def check_by(by: Sequence[str], unit: Unit) -> None:
    """Raise InputError for a slice that there is not, or that cases do not have, or that is named twice."""
    known = [name for name, one in DIMENSIONS.items() if one.whole_cases or unit is Unit.TURN]
    for name in by:
        check_known(name, known, f"--by {name}: unknown slice")
    if len(set(by)) < len(by):
        raise InputError(f"--by {','.join(by)}: names something twice; name each once")


def check_signal(name: str) -> Signal:
    """Return a signal; raise InputError for one that there is not."""
    check_known(name, SIGNALS, f"--signal {name}: unknown signal")
    return SIGNALS[name]
