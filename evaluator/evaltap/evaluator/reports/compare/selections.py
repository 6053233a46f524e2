"""Parse `FILE@WHAT`: the landed traffic of a period, a version or another slice."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from evaltap.evaluator.analysis.estimates.scope import Scope, condition
from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of the traffic in a DuckDB file."""

    name: str
    """The argument as given."""
    path: Path
    scope: Scope


def selection_of(text: str) -> Selection | None:
    """Return the traffic that `FILE@SINCE/UNTIL` or `FILE@version=V,app=A` selects; None for other arguments.

    Times are dates or RFC 3339 in UTC; either may be omitted.  Raises InputError for an invalid selection.
    """
    name, mark, given = text.rpartition("@")
    if not mark or Path(text).exists() or not Path(name).exists():
        return None
    since = until = None
    conditions = []
    for part in given.split(","):
        if "=" in part:
            name_of, value = part.split("=", 1)
            conditions.append(condition(name_of, value, where=text))
        elif "/" in part and since is until is None:
            first, last = part.split("/", 1)
            since, until = _moment(text, first), _moment(text, last)
        else:
            raise InputError(
                f"{text}: {part!r} is neither a period nor a slice; expected SINCE/UNTIL"
                " (2026-11-01/2026-11-08), or NAME=VALUE (version=1.4)"
            )
    if since and until and since >= until:
        raise InputError(f"{text}: the period ends before it begins; expected SINCE/UNTIL")
    scope = Scope(since=since, until=until, where=" AND ".join(conditions))
    return Selection(text, Path(name), scope)


def _moment(text: str, given: str) -> datetime | None:
    if not given:
        return None
    try:
        if "T" not in given.upper():
            day = date.fromisoformat(given)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        found = datetime.fromisoformat(given)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InputError(
            f"{text}: {given!r} is not a time; expected a date (2026-11-01) or RFC 3339"
            " (2026-11-01T12:00:00Z)"
        )
    return found
