"""Values of a filter that no stored case has: most of them are misspelt."""

from collections.abc import Iterator, Mapping
from typing import Final

from evaltap.evaluator.analysis.filters.language import Filter
from evaltap.evaluator.analysis.filters.terms import has_wildcard
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.text import did_you_mean

_METRICS: Final = "SELECT DISTINCT metric_name FROM scores"
_STORED: Final[Mapping[str, str]] = {
    "metric": _METRICS,
    "score": _METRICS,
    "tool": "SELECT DISTINCT tool_name FROM tool_calls WHERE tool_name IS NOT NULL",
    "version": "SELECT DISTINCT version FROM turns WHERE version IS NOT NULL",
    "app": "SELECT DISTINCT app_name FROM turns WHERE app_name <> ''",
    "model": "SELECT DISTINCT unnest(models) FROM turns",
}
"""Queries for the known values of a field."""
_MOST_NAMED: Final = 8


def unknown_values(store: StoreReader, wanted: Filter) -> Iterator[str]:
    """Yield a message for each unknown value, with the most similar known one, or some of them."""
    for term in wanted.terms:
        if term.negated or term.field not in _STORED:
            continue
        known = sorted(str(name) for (name,) in store.rows(_STORED[term.field]))
        field = "metric" if term.name else term.field
        for value in [term.name] if term.name else term.values:
            if not has_wildcard(value) and value not in known:
                some = ", ".join(known[:_MOST_NAMED]) or "none"
                hint = did_you_mean(value, known) or f"stored: {some}"
                yield f"no {field} {value!r} is stored; {hint}"
