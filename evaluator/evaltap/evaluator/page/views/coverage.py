"""Values that occur in production but not in the eval sets, most frequent first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.curation.coverage import Coverage, CoveredValue, coverage
from evaltap.evaluator.curation.drift import Drift, Shift, drift
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.values import DIMENSIONS, Period, seen_in, seen_of_set
from evaltap.evaluator.page.request import PageRequest, key_text, link, list_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import shifted

PERIODS: Final = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
MOST_TURNS: Final = 20_000
"""For more turns in a period, use `evaltap set coverage`."""
SURE: Final = 0.05
"""The mix has changed if the probability of the change by chance is at most this."""
_TERMS: Final = {"tool": "tool", "tools": "path", "model": "model", "version": "version"}


@dataclass(frozen=True, slots=True)
class GapLine:
    """A value without cases, and a link to its turns."""

    value: str
    share: float
    interval: tuple[float, float]
    turns: int
    href: str
    keys: tuple[str, ...]
    """Example cases, for the basket."""


@dataclass(frozen=True, slots=True)
class CoveredLine:
    """A value with cases, and a link to its turns."""

    of: CoveredValue
    href: str


@dataclass(frozen=True, slots=True)
class CoveragePage:
    sets: tuple[str, ...]
    """The files; if there are none, the page shows what a first set could contain."""
    by: str
    dimensions: tuple[tuple[str, str], ...]
    period: str
    periods: tuple[tuple[str, str], ...]
    turns: int
    too_many: bool
    found: Coverage | None
    """None without turns, or with too many."""
    gaps: tuple[GapLine, ...]
    covered_values: tuple[CoveredLine, ...]
    drift: Drift | None
    """The change of the mix since the previous period; None if that has no turns."""
    shifts: tuple[Shift, ...]
    """The changes beyond chance."""


def _readable(dimensions: Sequence[str], request: PageRequest) -> Sequence[str]:
    """Return the dimensions that a reader may see; the value of an intent is what a user said."""
    return [name for name in dimensions if name != "intent" or not request.masked]


def _end(reader: StoreReader, request: PageRequest) -> datetime:
    """Return now, or for a file that is not being written the time of its last turn."""
    ((last,),) = reader.rows("SELECT max(started_at) FROM turns")
    return request.now if request.live or last is None else last.replace(tzinfo=UTC)


def read(reader: StoreReader, request: PageRequest) -> CoveragePage:
    """Return the coverage of the turns of `period` by the eval sets, compared by `by`."""
    known = _readable(DIMENSIONS, request)
    by = request["by"] if request["by"] in known else "tools"
    period = request["period"] if request["period"] in PERIODS else "7d"
    since = shifted(_end(reader, request), -PERIODS[period])
    before = shifted(since, -PERIODS[period])
    ((turns, earlier),) = reader.rows(
        "SELECT count(*) FILTER (started_at >= $since), count(*) FILTER (started_at < $since)"
        " FROM latest_turns WHERE started_at >= $before",
        {"since": since.replace(tzinfo=None), "before": before.replace(tzinfo=None)},
    )
    found, changed = None, None
    if 0 < turns <= MOST_TURNS:
        cases = [
            turn for path in request.sets for turn in seen_of_set(read_set(path).cases, reader)
        ]
        seen = seen_in(reader, Period(since))
        found = coverage(by, seen, cases)
        if 0 < earlier <= MOST_TURNS:
            changed = next(iter(drift([by], seen_in(reader, Period(before, since)), seen)), None)
    return CoveragePage(
        sets=tuple(path.name for path in request.sets),
        by=by,
        dimensions=tuple((name, link("/coverage", by=name, period=period)) for name in known),
        period=period,
        periods=tuple((name, link("/coverage", by=by, period=name)) for name in PERIODS),
        turns=turns,
        too_many=turns > MOST_TURNS,
        found=found,
        gaps=_gaps(found) if found else (),
        covered_values=tuple(
            CoveredLine(one, _cases(by, one.value)) for one in found.covered_values
        )
        if found
        else (),
        drift=changed,
        shifts=_shifts(changed) if changed else (),
    )


def _shifts(changed: Drift) -> tuple[Shift, ...]:
    """Return the values whose shares changed beyond chance; empty if the mix as a whole did not."""
    if changed.p_value > SURE:
        return ()
    return tuple(one for one in changed.shifts if one.low > 0 or one.high < 0)


def _gaps(found: Coverage) -> tuple[GapLine, ...]:
    return tuple(
        GapLine(
            gap.value,
            gap.share.value,
            (gap.share.interval.low, gap.share.interval.high),
            gap.turns,
            _cases(found.by, gap.value, gap.examples),
            tuple(key_text(key[:3]) for key in gap.examples),
        )
        for gap in found.gaps
    )


def _cases(by: str, value: str, examples: Sequence[TurnKey] = ()) -> str:
    """Return the list of cases with a value, or of an example's case if the filter has no such term.

    Empty if there is neither.
    """
    if by in _TERMS and value and '"' not in value:
        return link("/cases", q=f'{_TERMS[by]}:"{value}"')
    return next(filter(None, (list_of(key.eval_id) for key in examples)), "")
