"""The result of evaluating the watches: plain frozen data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import MEDIAN
from evaltap.evaluator.monitoring.measures import shown
from evaltap.schemas.data import Json
from evaltap.schemas.text import counted, some_of, utc_text

_TIMES: Final = ("at", "since", "silenced_until")
Status = Literal["firing", "resolved", "ok", "learning", "waiting", "no_data"]
"""`waiting`: there are turns, but no session has ended."""


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
class Joined:
    """An alarm that is part of another one, because both have one cause."""

    subject: str
    at: datetime | None
    """UTC, without a time zone: when it would have begun, or has ended."""
    rate_before: float | None
    rate_after: float | None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RateAt:
    """A watched share or mean in a span of time."""

    at: datetime
    """UTC, without a time zone: the beginning of the span."""
    value: float | None
    """None without turns."""


class BadSpan(NamedTuple):
    """The bad turns behind an alarm, to be compared with those of others."""

    begins: datetime
    """They are all bad turns of the alarm since then."""
    turns: Mapping[tuple[int, str], datetime]
    """By session and invocation id, when they started."""


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
    unit: str = ""
    """usd, ms, tokens or score, of which the rates are means; empty if they are shares."""
    progress: str = ""
    """How far a watch is that learns, such as `day 2 of 14, 31 sessions`."""
    also: tuple[Joined, ...] = ()
    """Alarms that are part of this one: slices first, then by how much they got worse."""
    part_of: str = ""
    """The subject of the alarm that this one is part of."""
    rates: tuple[RateAt, ...] = ()
    """For an alarm that begins: the share or mean until then, in equal spans of time."""
    bad: BadSpan | None = field(default=None, compare=False, repr=False)
    """For an alarm that begins: its bad turns; not part of the data."""

    @property
    def stream(self) -> tuple[object, ...]:
        """Identifies a stream of sessions: a watch, with its slice and quantile."""
        return self.watch, *self.slice.items(), self.quantile

    @property
    def of_limit(self) -> bool:
        """Whether the watch has a fixed limit instead of a learned baseline."""
        return self.rate_before is None and self.rate_after is not None

    def data(self) -> dict[str, Json]:
        found = asdict(replace(self, bad=None))
        del found["bad"]
        found["also"] = [{**asdict(one), "at": _rfc3339(one.at)} for one in self.also]
        found["rates"] = [{"at": _rfc3339(one.at), "value": one.value} for one in self.rates]
        return {**found, **{name: _rfc3339(getattr(self, name)) for name in _TIMES}}


def _rfc3339(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)


def event_of(data: Mapping[str, Json], cases: Sequence[str] = ()) -> Event:
    """Return an event from its JSON data, with example cases."""
    times = {name: _moment(data.get(name)) for name in _TIMES}
    also = tuple(Joined(**{**one, "at": _moment(one["at"])}) for one in data.get("also", ()))
    rates = tuple(
        RateAt(datetime.fromisoformat(one["at"]).replace(tzinfo=None), one["value"])
        for one in data.get("rates", ())
    )
    given = {**data, "cases": tuple(cases), "also": also, "rates": rates, **times}
    return Event(**{**given, "changed": tuple(Changed(**one) for one in data["changed"])})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)


_NAMED: Final = 3
UNKNOWN: Final = "no longer known: late turns came, or the watch was changed or has no baseline now"
"""The state of an alarm that ended without a rate to compare with."""


def subject(event: Event) -> str:
    """Return the subject of an event: the watch, what it measures, its slice and its quantile."""
    measure = event.measure if event.measure != event.watch else ""
    above = "turns above the median" if event.quantile == MEDIAN else ""
    remarks = ", ".join(filter(None, (measure, above)))
    slice_ = "".join(f" {by}={value}" for by, value in event.slice.items())
    return f"{event.watch}{f' ({remarks})' if remarks else ''}{slice_}"


def summary(event: Event) -> str:
    """Return the state of a watch as a sentence."""
    more = some_of([one.subject for one in event.also], _NAMED)
    return f"{_summary(event)}; also {more}" if more else _summary(event)


def joined_text(one: Joined) -> str:
    """Return an alarm that is part of another one."""
    rates = [
        shown(rate, one.unit) for rate in (one.rate_before, one.rate_after) if rate is not None
    ]
    return f"also {one.subject}{': ' if rates else ''}{' -> '.join(rates)}"


def _summary(event: Event) -> str:
    name = subject(event)
    if event.of_limit:
        return f"{name} is {'back ' if event.status == 'resolved' else ''}at {of_limit(event)}"
    if event.rate_before is None or event.rate_after is None:
        return f"{name}: {UNKNOWN if ended_unknown(event) else _of_silence(event)}"
    before, after = event.rate_before, event.rate_after
    if event.status == "resolved":
        return f"{name} is back at {shown(after, event.unit)} (usual: {shown(before, event.unit)})"
    verb = "fell" if after < before else "rose"
    since = "" if event.since is None else f" since {event.since:%Y-%m-%d}"
    said = f"{name} {verb} from {shown(before, event.unit)} to {shown(after, event.unit)}"
    said += f"{interval(event)}{since}"
    if event.most is not None:
        said += f" (limit of a normal day: {shown(event.most, event.unit)})"
    return "; ".join([said, *(explanation(one, event) for one in event.changed[:1])])


def ended_unknown(event: Event) -> bool:
    """Return whether an alarm ended without a rate: its watch was changed, removed or rebased."""
    return event.status == "resolved" and event.rate_after is None and event.since is None


def interval(event: Event) -> str:
    """Return the interval and evidence of the current rate, as a suffix; empty if there is none."""
    if event.low is None or event.high is None:
        return ""
    behind = ""
    if event.turns is not None and event.sessions is not None:
        behind = f", {counted(event.turns, 'turn')} in {counted(event.sessions, 'session')}"
    low, high = (shown(one, event.unit) for one in (event.low, event.high))
    return f" (95 %: {low} to {high}{behind})"


def of_limit(event: Event) -> str:
    """Return the rate of a window with its fixed limit."""
    rate, most = (shown(one or 0.0, event.unit) for one in (event.rate_after, event.most))
    return f"{rate}{interval(event)}, limit {most}"


def explanation(one: Changed, event: Event) -> str:
    """Return how a slice explains an alarm."""
    if one.kind == "mix":
        shares = f"{one.share_before:.1%} -> {one.share_after:.1%} of the turns"
        return f"{one.by} {one.value}: {shares}; the mix of traffic changed, not the agent"
    rates = f"{shown(one.rate_before, event.unit)} -> {shown(one.rate_after, event.unit)}"
    before, after = event.rate_before or 0.0, event.rate_after or 0.0
    if before == after:
        return f"{one.by} {one.value}: {rates}"
    # If other slices improved, one slice may explain more than the whole change.
    part = min(1.0, one.effect / abs(after - before))
    return f"{one.by} {one.value}: {rates}, explains {part:.0%} of the {'drop' if after < before else 'rise'}"


def _of_silence(event: Event) -> str:
    if event.status == "firing":
        since = "" if event.since is None else f" since {event.since:%Y-%m-%d %H:%M} UTC"
        return f"no turn{since}"
    return "turns again" if event.status == "resolved" else event.status
