"""The filter with which `evaltap cases` lists the cases of an alarm."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from evaltap.evaluator.analysis.filters.language import FIELDS, quoted
from evaltap.evaluator.monitoring.model import Changed
from evaltap.schemas.formats.monitor import Watch

_BAD: Final[Mapping[str, str]] = {
    "pass_rate": "metric:{metric}=failed,crashed",
    "not_scored": "metric:{metric}=not_evaluated,error",
    "error_rate": "error:*",
    "tool_error_rate": "error:*",
    "negative_feedback": "feedback:down",
    "slow_rate": "sort:latency",
    "costly_rate": "sort:cost",
}
_FIELDS: Final[Mapping[str, str]] = {"tool_path": "path"}
_UNLIKE: Final = frozenset({"run"})
"""Slices whose name means something else in a filter."""


def filter_of(
    watch: Watch,
    slice_: Mapping[str, str],
    changed: Sequence[Changed],
    since: datetime | None,
    until: datetime | None,
) -> str:
    """Return the filter for the bad cases of an alarm: of its slice, and of the slice that changed most."""
    within = {**watch.where, **slice_}
    if changed:
        within[changed[0].by] = changed[0].value
    terms = [_BAD[watch.signal].format(metric=quoted(watch.metric))] if watch.signal in _BAD else []
    for name, value in within.items():
        field = _FIELDS.get(name, name)
        if field in FIELDS and field not in _UNLIKE:
            terms.append(f"{field}:{quoted(value)}")
    if since is not None:
        terms.append(f"since:{since:%Y-%m-%dT%H:%M}")
    if until is not None:
        terms.append(f"to:{until + timedelta(minutes=1):%Y-%m-%dT%H:%M}")
    return " ".join(terms)
