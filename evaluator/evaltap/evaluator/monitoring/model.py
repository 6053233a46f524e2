"""The result of evaluating the watches: plain frozen data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, Literal

from evaltap.schemas.formats.model import Json
from evaltap.schemas.text import utc_text

_TIMES: Final = ("at", "since", "silenced_until")
Status = Literal["firing", "resolved", "ok", "learning", "no_data"]


@dataclass(frozen=True, slots=True)
class Changed:
    """A slice that explains part of a change; shares and rates are of the watched share or its complement."""

    by: str
    value: str
    kind: Literal["rate", "mix"]
    """rate: the slice got worse; mix: its share grew, so the users changed and not the agent."""
    share_before: float
    share_after: float
    rate_before: float
    rate_after: float
    effect: float
    """How much the bad share of all turns rose because of the slice."""


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm that begins or ends, or the state of a watch without alarms."""

    watch: str
    slice: Mapping[str, str]
    status: Status
    at: datetime | None
    """UTC, without a time zone: when the alarm began or ended, or when the watch was last evaluated."""
    since: datetime | None = None
    """The time since which the share is higher; for silence, the last turn before it."""
    rate_before: float | None = None
    rate_after: float | None = None
    most: float | None = None
    """The maximum share on a usual day; for a pass rate, the minimum; for a fixed limit, the limit."""
    evidence: float | None = None
    """The evidence for a change, divided by the threshold of the alarm."""
    changed: tuple[Changed, ...] = ()
    cases: tuple[str, ...] = ()
    """Eval ids of examples."""
    cases_filter: str = ""
    """The filter with which `evaltap cases` lists the cases."""
    low: float | None = None
    """For alarms that fire, and for a fixed limit: the 95 % interval of `rate_after`."""
    high: float | None = None
    quantile: float | None = None
    """For slow, costly and long: the rates are shares of turns above this quantile of the baseline."""
    turns: int | None = None
    """The number of turns behind the interval: since the change, or in the window of a limit."""
    sessions: int | None = None
    silenced_until: datetime | None = None
    """UTC, without a time zone: until then, receivers are not notified about this watch."""
    measure: str = ""
    """What is watched, for those who only know the watch's name: `pass_rate of helpful`."""

    @property
    def stream(self) -> tuple[object, ...]:
        """Identifies a stream of sessions: a watch, with its slice and quantile."""
        return self.watch, *self.slice.items(), self.quantile

    @property
    def of_limit(self) -> bool:
        """Whether the watch has a fixed limit instead of a learned baseline."""
        return self.rate_before is None and self.rate_after is not None

    def data(self) -> dict[str, Json]:
        """Return the event as JSON data."""
        return {**asdict(self), **{name: _rfc3339(getattr(self, name)) for name in _TIMES}}


def _rfc3339(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)


def event_of(data: Mapping[str, Json], cases: Sequence[str] = ()) -> Event:
    """Return an event from its JSON data, with example cases."""
    times = {name: _moment(data.get(name)) for name in _TIMES}
    given = {**data, "cases": tuple(cases), **times}
    return Event(**{**given, "changed": tuple(Changed(**one) for one in data["changed"])})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)
