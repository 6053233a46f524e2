"""Compare two slices of live traffic, such as versions or weeks; nothing is paired, as sessions differ.

Rates are estimates of all traffic from the recorded part, and their intervals account for sessions and
sampling (`estimates`).  A difference between two periods does not show why they differ.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from evaltap.evaluator.analysis.estimates.rates import SliceRate, estimate_rates
from evaltap.evaluator.analysis.estimates.scope import SESSION, SLICES, Scope, condition
from evaltap.evaluator.analysis.stats.difference import detectable_difference, difference
from evaltap.evaluator.reports.compare.metrics import verdict_of, with_adjusted_p
from evaltap.evaluator.reports.compare.model import Comparison, MetricChange, Rules, Stratum, Totals
from evaltap.evaluator.reports.compare.pairing import (
    MOST_VALUES,
    check_by,
    names_in_both,
    with_holm,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of the traffic in a DuckDB file."""

    name: str
    """The argument as given."""
    path: Path
    scope: Scope
    reader: StoreReader | None = None
    """The file if it is open."""
    version: str = ""
    """The version of the agent if that alone selects the traffic; otherwise empty."""

    def opened(self) -> AbstractContextManager[StoreReader]:
        """Open the file, unless it is open."""
        return open_to_read(self.path) if self.reader is None else nullcontext(self.reader)


def selection_of(text: str) -> Selection | None:
    """Return the traffic that `FILE@SINCE/UNTIL` or `FILE@version=V,app=A` selects; None for other arguments.

    Times are dates or RFC 3339 in UTC; either may be omitted.  Raises InputError for an invalid selection.
    """
    ends = [at for at, character in enumerate(text) if character == "@"]
    end = next((at for at in reversed(ends) if Path(text[:at]).exists()), None)
    if end is None or Path(text).exists():
        return None
    path, given = Path(text[:end]), text[end + 1 :]
    since = until = None
    values: list[list[str]] = []
    for part in given.split(","):
        if "=" in part:
            values.append(part.split("=", 1))
        elif "/" in part and since is until is None:
            first, last = part.split("/", 1)
            since, until = _moment(text, first), _moment(text, last)
        elif values:  # a comma in a value
            values[-1][1] += f",{part}"
        else:
            raise InputError(
                f"{text}: {part!r} is neither a period nor a slice; expected SINCE/UNTIL"
                " (2026-11-01/2026-11-08), or NAME=VALUE (version=1.4)"
            )
    if since and until and since >= until:
        raise InputError(f"{text}: the period ends before it begins; expected SINCE/UNTIL")
    where = " AND ".join(condition(name, value, where=text) for name, value in values)
    scope = Scope(since=since, until=until, where=where)
    alone = len(values) == 1 and values[0][0] == "version" and since is until is None
    return Selection(text, path, scope, version=values[0][1] if alone else "")


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


_NOT_COUNTED: Final = 0.05


def compare_traffic(base: Selection, head: Selection, rules: Rules) -> Comparison:
    """Compare two slices of traffic by metric.

    Raises InputError if a side has no scored turns or they have no metric version in common.
    """
    ones, notes = _rates(base)
    others, more = _rates(head)
    names = names_in_both(base.name, ones, head.name, others, rules)
    changes = [_change(name, ones[name], others[name], rules) for name in names]
    metrics = with_adjusted_p(changes)
    verdict, reasons = verdict_of(metrics, (), rules)
    strata = _strata(base, head, names, rules)
    notes += [*more, *_flags(base.name, ones), *_flags(head.name, others)]
    return Comparison(
        verdict,
        tuple(reasons),
        rules,
        base.name,
        head.name,
        1,
        1,
        metrics,
        notes=tuple(dict.fromkeys(notes)),
        strata=strata,
    )


def _strata(
    base: Selection, head: Selection, names: Sequence[str], rules: Rules
) -> tuple[Stratum, ...]:
    check_by(rules.by, SLICES)
    found = []
    for by in rules.by:
        ones, others = (_by_slice(side, by) for side in (base, head))
        for value in sorted(set(ones) & set(others)):
            for name in names:
                if name in ones[value] and name in others[value]:
                    change = _change(name, ones[value][name], others[value][name], rules)
                    found.append(Stratum(by, value, replace(change, decides=False)))
    return with_holm(found)


def _by_slice(side: Selection, by: str) -> Mapping[str, Mapping[str, Mapping[str, SliceRate]]]:
    """Return rates by the most frequent values of a slice, then metric and digest."""
    found: dict[str, dict[str, dict[str, SliceRate]]] = {}
    with side.opened() as store:
        rates = estimate_rates(store, side.scope, by=[by], cluster=SESSION).rates
    turns: Counter[str] = Counter()
    for rate in rates:
        value = rate.slice[by]
        if value is not None and rate.rate is not None:
            turns[value] += rate.rate.n
            versions = found.setdefault(value, {}).setdefault(rate.metric or "", {})
            versions[rate.metric_digest or ""] = rate
    return {value: found[value] for value, _ in turns.most_common(MOST_VALUES)}


def _rates(side: Selection) -> tuple[Mapping[str, Mapping[str, SliceRate]], list[str]]:
    """Return the rates of a slice by metric and digest, with the newest version last."""
    with side.opened() as store:
        # The cases that both sides repeat are no difference between them.
        found = estimate_rates(store, side.scope, cluster=SESSION)
    rates: dict[str, dict[str, SliceRate]] = {}
    for rate in found.rates:
        if rate.rate is not None:
            rates.setdefault(rate.metric or "", {})[rate.metric_digest or ""] = rate
    if not rates:
        raise InputError(
            f"{side.name}: contains no scored turns; count its turns with `evaltap estimate {side.path}"
            f" --by {'version' if side.version else 'day'}`"
        )
    return rates, list(found.notes)


def _change(
    name: str, ones: Mapping[str, SliceRate], others: Mapping[str, SliceRate], rules: Rules
) -> MetricChange:
    same = [digest for digest in others if digest in ones]
    if not (same or rules.across_metrics):
        raise InputError(
            f"metric '{name}' differs between the sides; score both with the same metrics file and"
            " references, or compare them anyway with --across-metrics"
        )
    base, head = (one[same[-1]] if same else list(one.values())[-1] for one in (ones, others))
    before, now = _totals(base), _totals(head)
    assert base.rate is not None
    assert head.rate is not None  # sides without a rate are left out
    found, back = difference(base.rate, head.rate), difference(head.rate, base.rate)
    return MetricChange(
        name,
        False,
        name in rules.fail_on_metrics if rules.fail_on_metrics else True,
        before,
        now,
        found.value,
        found.interval,
        found.p_value,
        back.p_value,
        detectable_difference(base.rate, head.rate, rules.alpha),
        undecided=tuple(_undecided(base, head)),
        unit="session",
    )


def _totals(found: SliceRate) -> Totals:
    assert found.estimate is not None
    rate, sessions = found.estimate.rate, found.estimate.sessions
    per_session = replace(
        rate, n=sessions, effective_n=found.estimate.effective_sessions, unit="sessions"
    )
    return Totals(per_session, rate.n, mean_score=found.mean_score)


def _undecided(base: SliceRate, head: SliceRate) -> Sequence[str]:
    few = "has effectively fewer than 10 sessions"
    sides = (("base", base), ("head", head))
    found = [f"{side} {few}" for side, rate in sides if "few_sessions" in rate.flags]
    if abs(base.not_counted - head.not_counted) > _NOT_COUNTED:
        found.append(
            f"the sides differ in missing verdicts: {base.not_counted:.1%} of the turns in base,"
            f" {head.not_counted:.1%} in head"
        )
    return found


def _flags(name: str, rates: Mapping[str, Mapping[str, SliceRate]]) -> Sequence[str]:
    every = [rate for versions in rates.values() for rate in versions.values()]
    found = []
    if any("uncovered" in rate.flags for rate in every):
        covered = min(rate.covered for rate in every)
        found.append(
            f"{name}: {1 - covered:.0%} of the traffic had no chance of being recorded; the rates do not"
            " cover it"
        )
    if any("open" in rate.flags for rate in every):
        found.append(f"{name}: the period has not ended yet")
    return found
