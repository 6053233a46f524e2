"""What an alarm rests on: examples, the filter with which `evaltap cases` lists its cases, and its rates."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.analysis.filters.language import FIELDS, quoted
from evaltap.evaluator.monitoring.model import Changed, RateAt
from evaltap.evaluator.monitoring.turns import EXAMPLES, WatchedTurn
from evaltap.evaluator.store.times import shifted
from evaltap.schemas.formats.monitor import Watch

_BAD: Final[Mapping[str, str]] = {
    "pass_rate": "metric:{metric}=failed,crashed",
    "not_scored": "metric:{metric}=not_evaluated,error",
    # `error:*` alone lists failures of tools too, `status:crashed` alone turns that did not end.
    "error_rate": "status:crashed error:*",
    "tool_error_rate": "error:*",
    "negative_feedback": "feedback:down",
    "slow_rate": "sort:latency",
    "costly_rate": "sort:cost",
    "mean_score": "metric:{metric}=failed,crashed",
    "mean_cost": "sort:cost",
    "mean_latency": "sort:latency",
}
_FIELDS: Final[Mapping[str, str]] = {"tool_path": "path"}
_UNLIKE: Final = frozenset({"run"})
"""Slices whose name means something else in a filter."""

RATES: Final = 24
"""The number of spans for which an alarm keeps its rate."""


def rates_of(turns: Iterable[WatchedTurn], until: datetime) -> tuple[RateAt, ...]:
    """Return the weighted share or mean of turns in equal spans of time, from the first turn to `until`."""
    if not (given := list(turns)):
        return ()
    begins = min(turn.started_at for turn in given)
    length = max((until - begins) / RATES, timedelta(minutes=1))
    sums = [[0.0, 0.0] for _ in range(RATES)]
    for turn in given:
        of_span = sums[min(RATES - 1, int((turn.started_at - begins) / length))]
        of_span[0] += turn.weight * turn.amount
        of_span[1] += turn.weight
    known = sums[: min(RATES, int((until - begins) / length) + 1)]
    return tuple(
        RateAt(begins + n * length, amount / weight if weight else None)
        for n, (amount, weight) in enumerate(known)
    )


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
        terms.append(f"to:{shifted(until, timedelta(minutes=1)):%Y-%m-%dT%H:%M}")
    return " ".join(terms)


_MOST_READ: Final = 2_000
"""The number of bad turns that are read, the worst first."""


def example_cases(turns: Turns, *, good: bool, mean: bool = False) -> tuple[str, ...]:
    """Return eval ids of bad turns; `good`: turns with the signal, or large values, are not bad.

    Where a `mean` is watched, the turns with the worst values come first.

    Near-duplicates have the same tools and similar words, as in `evaltap set duplicates`.
    """
    worst = _WORST_VALUES.format("ASC" if good else "DESC") if mean else _WORST
    bad = turns.rows(
        _BAD_TURNS, {"most": _MOST_READ, **({} if mean else {"good": good})}, worst=worst
    )
    return tuple(dict.fromkeys([*_unlike(bad), *(case for case, _, _ in bad)]))[:EXAMPLES]


def _unlike(turns: Sequence[tuple[str, str, str]]) -> Sequence[str]:
    from evaltap.evaluator.curation.near import RADIUS, SimilarTexts, normal

    chosen: list[str] = []
    texts_of_path: dict[str, list[str]] = {}
    indexes: dict[str, SimilarTexts] = {}
    for case, path, text in turns:
        if len(chosen) == EXAMPLES:
            break
        words, index = normal(text), indexes.get(path)
        if case in chosen or (index is not None and (index.to_text(words) >= RADIUS).any()):
            continue
        chosen.append(case)
        texts = texts_of_path.setdefault(path, [])
        texts.append(words)
        indexes[path] = SimilarTexts(texts)
    return chosen


_BAD_TURNS: Final = """
SELECT e.eval_id, coalesce(k.path, ''), coalesce(t.user_text, '')
FROM {turns} e
JOIN latest_turns t ON t.app_name = e.app AND t.eval_set_id = e.eval_set_id AND t.eval_id = e.eval_id
 AND t.invocation_id = e.invocation_id
LEFT JOIN (
  SELECT app_name, eval_set_id, eval_id, invocation_id,
         string_agg(tool_name, ' > ' ORDER BY call_index) AS path
  FROM latest_tool_calls SEMI JOIN {turns} USING (eval_set_id, eval_id, invocation_id)
  GROUP BY ALL
) k ON (k.app_name, k.eval_set_id, k.eval_id, k.invocation_id)
     = (t.app_name, t.eval_set_id, t.eval_id, t.invocation_id)
WHERE e.counts AND e.started_at IS NOT NULL {worst}, e.started_at, e.eval_id, e.invocation_id
LIMIT $most
"""
_WORST: Final = "AND coalesce(e.has, false) <> $good ORDER BY e.score NULLS FIRST"
_WORST_VALUES: Final = "ORDER BY e.has {}"
