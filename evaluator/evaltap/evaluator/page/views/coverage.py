"""What production has and the eval sets have not, the most frequent first."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from evaltap.evaluator.curation.coverage import Coverage, coverage
from evaltap.evaluator.curation.values import DIMENSIONS, Period, seen_in, seen_of_set
from evaltap.evaluator.evalsets.files import read_set
from evaltap.evaluator.page.asked import Asked, Shown, link
from evaltap.evaluator.store.queries import StoreReader

PERIODS: Final = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
MOST_TURNS: Final = 20_000
"""More of a period are for `evaltap coverage`."""
_TERMS: Final = {"tool": "tool", "tools": "path", "model": "model", "version": "version"}


@dataclass(frozen=True, slots=True)
class GapLine:
    """A value without cases, and where to look for some."""

    value: str
    share: float
    interval: tuple[float, float]
    turns: int
    href: str


@dataclass(frozen=True, slots=True)
class CoveragePage:
    """What the page shows."""

    sets: tuple[str, ...]
    """The files; without any there is nothing to compare with."""
    by: str
    dimensions: tuple[tuple[str, str], ...]
    period: str
    periods: tuple[tuple[str, str], ...]
    turns: int
    too_many: bool
    found: Coverage | None
    gaps: tuple[GapLine, ...]


def view(reader: StoreReader, asked: Asked) -> Shown:
    """Read the coverage of the period by one dimension."""
    return Shown("coverage.html.j2", "Coverage", read(reader, asked))


def read(reader: StoreReader, asked: Asked) -> CoveragePage:
    """Return what the eval sets cover of the turns of `period`, compared by `by`."""
    by = asked["by"] if asked["by"] in DIMENSIONS else "tools"
    period = asked["period"] if asked["period"] in PERIODS else "7d"
    since = _end(reader, asked) - PERIODS[period]
    ((turns,),) = reader.rows(
        "SELECT count(*) FROM latest_turns WHERE started_at >= $since",
        {"since": since.replace(tzinfo=None)},
    )
    found = None
    if asked.sets and 0 < turns <= MOST_TURNS:
        cases = [turn for path in asked.sets for turn in seen_of_set(read_set(path).cases)]
        found = coverage(by, seen_in(reader, Period(since)), cases)
    return CoveragePage(
        tuple(path.name for path in asked.sets), by,
        tuple((name, link("/coverage", by=name, period=period)) for name in DIMENSIONS), period,
        tuple((name, link("/coverage", by=by, period=name)) for name in PERIODS),
        turns, turns > MOST_TURNS, found, _gaps(found) if found else (),
    )  # fmt: skip


def _end(reader: StoreReader, asked: Asked) -> datetime:
    """Return until when the page looks: now, or the last turn of a file that nobody writes."""
    ((last,),) = reader.rows("SELECT max(started_at) FROM turns")
    return asked.now if asked.live or last is None else last.replace(tzinfo=UTC)


def _gaps(found: Coverage) -> tuple[GapLine, ...]:
    return tuple(
        GapLine(
            gap.value, gap.share.rate, (gap.share.process.low, gap.share.process.high), gap.turns,
            link("/cases", q=_filter(found.by, gap.value, gap.examples)),
        )
        for gap in found.gaps
    )  # fmt: skip


def _filter(by: str, value: str, examples: tuple[str, ...]) -> str:
    """Return the filter of cases with a value; of an example's where the filter has no term for it."""
    if by in _TERMS and value and '"' not in value:
        return f'{_TERMS[by]}:"{value}"'
    ids = (name.rpartition("#")[0] for name in examples)
    return next((f'id:"{one}"' for one in ids if '"' not in one), "")
