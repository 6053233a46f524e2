"""Cost and latency of the cases that both sides recorded."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

from evaltap.evaluator.analysis.stats.exchange import sign_flip_p_value
from evaltap.evaluator.analysis.stats.intervals import Interval
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.metrics import mean_score
from evaltap.evaluator.reports.compare.model import UsageChange
from evaltap.evaluator.reports.compare.recordings import Recording

_Recordings = Mapping[CaseKey, Sequence[Recording]]


def usage_changes(
    base: _Recordings, head: _Recordings, cases: Sequence[CaseKey], *, level: float
) -> tuple[UsageChange, ...]:
    """Return cost and latency as ratios of geometric means over the cases with recorded values.

    The value of a case is the geometric mean of its trials; trials that cost nothing are ignored.
    """
    found = (
        _change("latency", "ms", lambda one: one.latency_ms, base, head, cases, level),
        _change("cost", "USD", lambda one: one.cost_usd, base, head, cases, level),
    )
    return tuple(change for change in found if change is not None)


def _change(
    name: Literal["cost", "latency"],
    unit: str,
    value: Callable[[Recording], float | None],
    base: _Recordings,
    head: _Recordings,
    cases: Sequence[CaseKey],
    level: float,
) -> UsageChange | None:
    logs = [
        (one, other)
        for key in cases
        if (one := _mean_log(map(value, base.get(key, ())))) is not None
        and (other := _mean_log(map(value, head.get(key, ())))) is not None
    ]
    if not logs:
        return None
    differences = [other - one for one, other in logs]
    found = mean_score(differences)
    low, high = (math.exp(end) for end in found.interval)
    ratio = replace(found, value=math.exp(found.value), interval=Interval(low, high))
    return UsageChange(
        name,
        unit,
        math.exp(fmean(one for one, _ in logs)),
        math.exp(fmean(other for _, other in logs)),
        ratio,
        sign_flip_p_value(differences, level=level),
    )


def _mean_log(values: Iterable[float | None]) -> float | None:
    known = [math.log(value) for value in values if value]
    return fmean(known) if known else None
