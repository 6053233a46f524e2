"""Charts as SVG shapes with their text alternatives: bars and lines over time, stacks, histograms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from evaltap.evaluator.reports.figures import day_time

WIDTH: Final = 640
HEIGHT: Final = 120
"""The box of a chart over time."""
STACKED: Final = ("passed", "failed", "crashed", "error", "not_evaluated")
"""The order of statuses in a bar."""
_TOP: Final = 4
_DASH: Final = 6
_HISTOGRAM_WIDTH: Final = 150
_HISTOGRAM_HEIGHT: Final = 40

Place = Callable[[Any], float]


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, its description, and a link to the cases behind it."""

    name: str
    value: str
    remark: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One bucket of time; None if nothing is known."""

    at: datetime
    value: float | None
    low: float | None = None
    high: float | None = None
    part: float = 0.0
    """For bars: the part of the value that is stacked in another colour."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of the interval, if it has one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket, or one bin of a histogram, as a rectangle."""

    x: float
    y: float
    width: float
    height: float
    part_y: float = 0.0
    part_height: float = 0.0
    title: str = ""
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at a time: its position as a share of the width, and its description."""

    at: float
    title: str

    @property
    def x(self) -> float:
        return round(WIDTH * self.at, 1)


@dataclass(frozen=True, slots=True)
class Chart:
    """The shapes that a template draws, and an equivalent sentence."""

    name: str
    value: str
    """The figure next to the name."""
    sentence: str
    top: str
    """The value at the upper edge."""
    bottom: str
    first: str
    last: str
    bars: tuple[Bar, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    """The class and path of each line."""
    band: str = ""
    dashed: float | None = None
    """The position of a line for comparison."""
    marks: tuple[Mark, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """The same data as a table: its head, and one row for each bucket with data."""
    places: tuple[int, ...] = ()
    """The bucket of each of these rows, from 0."""
    buckets: int = 0


def bars(
    name: str,
    points: Sequence[Point],
    *,
    words: str,
    say: str,
    part: str = "",
    edge: Callable[[float], str] = "{:,.6g}".format,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Draw counts; the last bucket is still incomplete and is drawn differently.

    `words` is the unit; `edge` formats a value.
    """
    most = max((point.value or 0 for point in points), default=0) or 1
    step = WIDTH / max(1, len(points))
    drawn = []
    for place, point in enumerate(points):
        if not point.value:
            continue
        height = max(1.5, (HEIGHT - _TOP) * point.value / most)
        below = min(height, (HEIGHT - _TOP) * point.part / most)
        more = f", {point.part:,.0f} {part}" if part and point.part else ""
        title = f"{day_time(point.at)}: {point.value:,.6g} {words}{more}"
        drawn.append(
            Bar(
                round(place * step + 0.5, 1),
                round(HEIGHT - height, 1),
                round(max(1.0, step - 1), 1),
                round(height, 1),
                round(HEIGHT - below, 1),
                round(below, 1),
                title,
                place == len(points) - 1,
            )
        )
    head = ("time", words, part) if part else ("time", words)
    known = [(n, p) for n, p in enumerate(points) if p.value]
    rows = [(day_time(p.at), edge(p.value or 0), f"{p.part:,.0f}") for _, p in known]
    return Chart(
        name,
        "",
        _with_marks(say, marks),
        edge(most),
        "0",
        *_first_and_last(points),
        tuple(drawn),
        marks=tuple(marks),
        rows=(head, *(row[: len(head)] for row in rows)),
        places=tuple(n for n, _ in known),
        buckets=len(points),
    )


def lines(
    name: str,
    series: Sequence[tuple[str, Sequence[Point]]],
    *,
    say: str,
    value: str = "",
    low: float | None = None,
    high: float | None = None,
    form: Callable[[float], str] = "{:,.3g}".format,
    dashed: float | None = None,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Draw one line for each series; the first has a band if its points have intervals."""
    bottom, top = _edges([p for _, points in series for p in points], low, high)
    points = series[0][1]

    def y(one: float) -> float:
        inside = min(max(one, bottom), top)
        return round(_TOP + (HEIGHT - _TOP - 1) * (1 - (inside - bottom) / (top - bottom)), 1)

    def x(place: int) -> float:
        return round((place + 0.5) * WIDTH / max(1, len(points)), 1)

    drawn = tuple((kind, _path(one, x, y)) for kind, one in series)
    has_ends = any(p.ends for p in points)
    head = ["time", *(kind for kind, _ in series), *(["95 % interval"] if has_ends else [])]
    valued = [(n, p) for n, p in enumerate(points) if p.value is not None]

    def text(value: float | None) -> str:
        return "" if value is None else form(value)

    rows = [
        (
            day_time(p.at),
            *(text(one[n].value) for _, one in series),
            " to ".join(map(form, p.ends or ())),
        )
        for n, p in valued
    ]
    return Chart(
        name,
        value,
        _with_marks(say, marks),
        form(top),
        form(bottom),
        *_first_and_last(points),
        lines=drawn,
        band=_band(points, x, y),
        dashed=None if dashed is None else y(dashed),
        marks=tuple(marks),
        rows=(tuple(head), *(row[: len(head)] for row in rows)),
        places=tuple(n for n, _ in valued),
        buckets=len(points),
    )


def _edges(points: Sequence[Point], low: float | None, high: float | None) -> tuple[float, float]:
    """Return the values at the lower and the upper edge: those given, or the extremes."""
    seen = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    bottom = min(seen, default=0.0) if low is None else low
    top = max(seen, default=1.0) if high is None else high
    return bottom, top if top > bottom else bottom + 1


def _first_and_last(points: Sequence[Point]) -> tuple[str, str]:
    return (day_time(points[0].at), day_time(points[-1].at)) if points else ("", "")


def _with_marks(say: str, marks: Sequence[Mark]) -> str:
    return "; ".join([say, *(mark.title for mark in marks)])


def _band(points: Sequence[Point], x: Place, y: Place) -> str:
    """Return the outline of the intervals; empty for fewer than two."""
    known = [(x(n), p.ends) for n, p in enumerate(points) if p.ends is not None]
    upper = [f"{place} {y(high)}" for place, (_, high) in known]
    lower = [f"{place} {y(low)}" for place, (low, _) in reversed(known)]
    return f"M{' L'.join([*upper, *lower])}Z" if len(known) > 1 else ""


def _path(points: Sequence[Point], x: Place, y: Place) -> str:
    """Return a path with gaps where data is missing; a lone point becomes a dash."""
    parts, drawing = [], False
    for place, point in enumerate(points):
        if point.value is None:
            drawing = False
            continue
        lone = not drawing and (place + 1 == len(points) or points[place + 1].value is None)
        if lone:
            parts.append(f"M{x(place) - _DASH / 2} {y(point.value)}h{_DASH}")
        else:
            parts.append(f"{'L' if drawing else 'M'}{x(place)} {y(point.value)}")
        drawing = True
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a stacked bar that has a status, in per cent of its length."""

    status: str
    start: float
    length: float
    count: int


def stack(counts: Mapping[str, int]) -> tuple[Segment, ...]:
    """Return counts by status as one bar."""
    total = sum(counts.values())
    segments, start = [], 0.0
    for status in STACKED:
        if count := counts.get(status, 0):
            segments.append(Segment(status, start, 100 * count / total, count))
            start += 100 * count / total
    return tuple(segments)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of scores from 0 to 1 in a box of 150 by 40, and the thresholds."""

    columns: tuple[Bar, ...]
    thresholds: tuple[float, ...]
    sentence: str
    remark: str


def histogram(counts: Sequence[int], thresholds: Sequence[float], outside: int) -> Histogram | None:
    """Draw counts of scores in equal bins; None if all are empty.  `outside` is mentioned only."""
    if not (most := max(counts)):
        return None
    step = _HISTOGRAM_WIDTH / len(counts)
    columns, said = [], []
    for place, count in enumerate(counts):
        if count:
            # A single case among thousands must remain visible.
            height = max(1.5, _HISTOGRAM_HEIGHT * count / most)
            columns.append(Bar(place * step + 1, _HISTOGRAM_HEIGHT - height, step - 2, height))
            ends = place / len(counts), (place + 1) / len(counts)
            said.append(f"{count:,} from {ends[0]:g} to {ends[1]:g}")
    remark = f"{outside:,} outside 0 to 1" if outside else ""
    inside = [value for value in thresholds if 0 <= value <= 1]
    return Histogram(
        tuple(columns),
        tuple(value * _HISTOGRAM_WIDTH for value in inside),
        "scores: " + ", ".join([*said, *filter(None, [remark])]),
        remark,
    )
