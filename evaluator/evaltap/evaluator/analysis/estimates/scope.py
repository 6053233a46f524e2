"""The subject of an estimate: which turns, by which slices, and which signal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from evaltap.evaluator.store.queries import sql_text
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known


class Join(StrEnum):
    """Tables that are only joined to the turns if a slice, signal or condition needs them."""

    CASES = "cases"
    CALLS = "calls"
    FEEDBACK = "feedback"
    LANGUAGES = "languages"


class Dimension(NamedTuple):
    """A property by which turns can be sliced."""

    expression: str
    """SQL over a turn; a list for a dimension with many values."""
    join: Join | None = None
    many: bool = False
    """Whether a turn can have several values, and is in the slice of each."""
    whole_cases: bool = True
    """Whether whole cases have the dimension too."""


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
"""Dimensions that are time windows, the finest first; a week is named by its Monday."""


class Cluster(NamedTuple):
    """What resemble each other, and count as one for an interval: turns of a session, trials of a case, …"""

    name: str
    parts: tuple[str, ...]
    """SQL over a turn; turns of one cluster have all of them in common."""
    join: Join | None = None

    @property
    def key(self) -> str:
        """SQL for the cluster of a turn: 64 bits of a hash."""
        return f"hash({', '.join(self.parts)})"

    def of(self, turn: object) -> tuple[str, ...]:
        """Return the cluster of a turn that has the parts as attributes."""
        return tuple(getattr(turn, name) for name in self.parts)


SESSION: Final = Cluster("session", ("app", "eval_set_id", "eval_id"))
WITHOUT_RECORDING: Final = """
CASE WHEN eval_set_id = recording THEN ''
     WHEN recording <> '' AND ends_with(eval_set_id, '@' || recording)
       THEN left(eval_set_id, -(length(recording) + 1))
     ELSE regexp_replace(eval_set_id, '@[^@]*$', '') END"""
"""SQL for the eval set that a `recording`, `<version>@<run>`, is of; '' without one of its own."""
CASE: Final = Cluster("case", ("app", WITHOUT_RECORDING, "eval_id"))
"""A case across its repeats: recordings of a run or version, which are in sets of their own."""
USER: Final = Cluster(
    "user", ("app", "coalesce(user_id, eval_set_id || chr(31) || eval_id)"), Join.CASES
)
"""The sessions of a user; one whose user is unknown stands alone."""
LABEL: Final = Cluster("label", (*SESSION.parts, "invocation_id"))
"""Each labelled turn on its own."""


class Signal(NamedTuple):
    """A share of turns: the condition for turns with the signal, and the condition for counted turns."""

    has: str
    counts: str
    of_metric: bool = False
    """Whether there is one share for each metric version; otherwise one for all turns."""
    join: Join | None = None
    limit: str = ""
    """The column whose weighted 95th percentile over all stored turns is $limit."""
    votes: bool = False
    """Whether the signal reads the samples of judges."""


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
"""The values of `--signal`; slow, costly and long mean above the 95th percentile of all stored turns."""


class Unit(StrEnum):
    """The unit that is counted."""

    TURN = "turn"
    CASE = "case"
    """Whole sessions, by the scores of cases; one draw, with the largest probability of its turns."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The selection of scored turns; by default, all landed turns with their latest scores."""

    metric: str = ""
    digests: tuple[str, ...] = ()
    run_id: str | None = None
    """The run whose scores are used; by default, the latest scores."""
    files: bool = False
    """Whether to include turns that were scored from files and never landed, each once.  They have no time,
    so they are in no window."""
    since: datetime | None = None
    """Aware; selects turns that started at this time or later."""
    until: datetime | None = None
    """Aware; selects turns that started before this time."""
    where: str = ""
    """An SQL condition over a turn's columns (`turns.COLUMNS`)."""
    traffic: bool = False
    """Whether to leave out runs on cases where traffic has landed, too (`without_runs`)."""

    @property
    def with_files(self) -> bool:
        """Whether turns that never landed are included."""
        return self.files and self.since is None and self.until is None and not self.where

    @property
    def window(self) -> dict[str, datetime | None]:
        """The window in the form of times in tables: UTC, without a time zone."""
        return {
            "since": self.since and stored_time(self.since),
            "until": self.until and stored_time(self.until),
        }


def check_by(by: Sequence[str], unit: Unit) -> None:
    """Raise InputError for a slice that is unknown, that cases do not have, or that is repeated."""
    known = [name for name, one in DIMENSIONS.items() if one.whole_cases or unit is Unit.TURN]
    for name in by:
        check_known(name, known, f"--by {name}: unknown slice")
    if len(set(by)) < len(by):
        raise InputError(f"--by {','.join(by)}: names something twice; name each once")


SLICES: Final = tuple(name for name in DIMENSIONS if name not in TIMES)
"""Dimensions that are not time windows."""


def condition(name: str, value: str, *, where: str) -> str:
    """Return the SQL condition that a turn is in a slice; raise InputError that mentions `where`."""
    check_known(name, SLICES, f"{where}: traffic has no {name!r}")
    dimension = DIMENSIONS[name]
    if dimension.many:
        return f"list_contains({dimension.expression}, {sql_text(value)})"
    return f"{dimension.expression} = {sql_text(value)}"


def check_signal(name: str) -> Signal:
    """Return a signal; raise InputError for an unknown one."""
    check_known(name, SIGNALS, f"--signal {name}: unknown signal")
    return SIGNALS[name]
