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
    """A slice that explains part of a change; shares and rates of the watched share or its opposite."""

    by: str
    value: str
    kind: Literal["rate", "mix"]
    """rate: the slice got worse; mix: there is more of it, so users changed and not the agent."""
    share_before: float
    share_after: float
    rate_before: float
    rate_after: float
    effect: float
    """By how much the bad share of all turns rose for it."""


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm that begins or ends, or the state of a watch that raised none."""

    watch: str
    slice: Mapping[str, str]
    status: Status
    at: datetime | None
    """UTC, without a zone: when it began, ended, or was looked at last."""
    since: datetime | None = None
    """Since when the share is higher; of silence, the last turn before it."""
    rate_before: float | None = None
    rate_after: float | None = None
    most: float | None = None
    """What a usual day may have; of a pass rate, the least.  Of a fixed limit, the limit."""
    evidence: float | None = None
    """What speaks for a change, over what raises the alarm."""
    changed: tuple[Changed, ...] = ()
    cases: tuple[str, ...] = ()
    """Eval ids to look at."""
    cases_filter: str = ""
    """What `evaltap cases` is asked for them."""
    low: float | None = None
    """Where an alarm fires, and of a fixed limit: the 95 % interval of `rate_after`."""
    high: float | None = None
    quantile: float | None = None
    """Of slow, costly and long: the rates are shares of turns above this quantile of the baseline."""
    turns: int | None = None
    """Where there is an interval: the turns behind it, since the change or in the window of a limit."""
    sessions: int | None = None
    silenced_until: datetime | None = None
    """UTC, without a zone: until then nobody is notified of its watch."""

    @property
    def stream(self) -> tuple[object, ...]:
        """Tell the streams of sessions apart: a watch, with its slice and quantile."""
        return self.watch, *self.slice.items(), self.quantile

    @property
    def of_limit(self) -> bool:
        """Whether its watch has a fixed limit, and nothing that is usual."""
        return self.rate_before is None and self.rate_after is not None

    def data(self) -> dict[str, Json]:
        """Return the event as JSON data."""
        return {**asdict(self), **{name: _rfc3339(getattr(self, name)) for name in _TIMES}}


def _rfc3339(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)


def event_of(data: Mapping[str, Json], cases: Sequence[str] = ()) -> Event:
    """Return an event from its JSON data, with the cases to look at."""
    times = {name: _moment(data.get(name)) for name in _TIMES}
    given = {**data, "cases": tuple(cases), **times}
    return Event(**{**given, "changed": tuple(Changed(**one) for one in data["changed"])})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)
