"""Compare two slices of live traffic, such as versions or weeks; nothing is paired, as sessions differ.

Rates are estimates of all traffic from the recorded part, and their intervals account for sessions and
sampling (`estimates`).  A difference between two periods does not show why they differ.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from evaltap.evaluator.analysis.estimates.rates import SliceRate, estimate_rates
from evaltap.evaluator.analysis.estimates.scope import SESSION, SLICES, Scope, condition
from evaltap.evaluator.analysis.stats.difference import detectable_difference, difference
from evaltap.evaluator.analysis.stats.rate import Interval
from evaltap.evaluator.analysis.traffic import told_of_runs
from evaltap.evaluator.reports.compare.metrics import lost_metric, verdict_of, with_adjusted_p
from evaltap.evaluator.reports.compare.model import Comparison, MetricChange, Rules, Stratum, Totals
from evaltap.evaluator.reports.compare.pairing import (
    MOST_VALUES,
    check_by,
    names_in_both,
    only_one_side,
    with_holm,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted


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
    chosen = any(name in _OF_RUNS for name, _ in values)
    scope = Scope(since=since, until=until, where=where, traffic=not chosen)
    alone = len(values) == 1 and values[0][0] == "version" and since is until is None
    return Selection(text, path, scope, version=values[0][1] if alone else "")


_OF_RUNS: Final = ("version", "run", "environment")
"""Slices by which runs on cases are compared; others are of the traffic beside them."""


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
    for name in {*ones} & {*others}:
        if not any(one.rate for one in (*ones[name].values(), *others[name].values())):
            del ones[name], others[name]  # it applies to neither
    names = names_in_both(base.name, ones, head.name, others, rules)
    changes = [_change(name, ones[name], others[name], rules) for name in names]
    metrics = with_adjusted_p(changes)
    judged = [
        name
        for name, versions in ones.items()
        if name not in others
        and any(one.rate for one in versions.values())
        and not rules.fail_on_metrics
    ]
    lost = [] if rules.subset else [*map(lost_metric, judged)]
    verdict, reasons = verdict_of(metrics, (), rules, lost)
    strata = _strata(base, head, names, rules)
    notes += [*more, *_flags(base.name, ones), *_flags(head.name, others)]
    notes += only_one_side(base.name, ones, head.name, others)
    for name in names:
        used, used_too = _same_version(name, ones[name], others[name], rules)
        notes += [*_other_versions(base.name, ones[name], used)]
        notes += [*_other_versions(head.name, others[name], used_too)]
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


def _rates(side: Selection) -> tuple[dict[str, dict[str, SliceRate]], list[str]]:
    """Return the rates of a slice by metric and digest, with the newest version last.

    Those of which no turn has a verdict are included: a judge that was away is no metric that does not apply.
    """
    with side.opened() as store:
        # The cases that both sides repeat are no difference between them.
        found = estimate_rates(store, side.scope, cluster=SESSION)
        left_out = told_of_runs(store, side.scope.where) if side.scope.traffic else ""
    rates: dict[str, dict[str, SliceRate]] = {}
    for rate in found.rates:
        rates.setdefault(rate.metric or "", {})[rate.metric_digest or ""] = rate
    if all(rate.rate is None for rate in found.rates):
        raise InputError(
            f"{side.name}: contains no scored turns; count its turns with `evaltap estimate {side.path}"
            f" --by {'version' if side.version else 'day'}`"
        )
    return rates, [f"{side.name}: {note}" for note in (*found.notes, left_out) if note]


def _same_version(
    name: str, ones: Mapping[str, SliceRate], others: Mapping[str, SliceRate], rules: Rules
) -> tuple[SliceRate, SliceRate]:
    """Return the rates of the newest version of a metric that both sides have."""
    same = [digest for digest in others if digest in ones]
    same = [one for one in same if ones[one].rate and others[one].rate] or same
    if not (same or rules.across_metrics):
        raise InputError(
            f"metric '{name}' differs between the sides; score both with the same metrics file, judge and"
            " references, or compare them anyway with --across-metrics"
        )
    base, head = (one[same[-1]] if same else list(one.values())[-1] for one in (ones, others))
    return base, head


def _other_versions(side: str, rates: Mapping[str, SliceRate], used: SliceRate) -> Iterator[str]:
    turns = sum(one.rate.n for one in rates.values() if one.rate and one is not used)
    if turns and used.rate:
        yield (
            f"{side}: {counted(turns, 'verdict')} under other versions of {used.metric} are not"
            f" compared, {used.rate.n:,} are"
        )


def _change(
    name: str, ones: Mapping[str, SliceRate], others: Mapping[str, SliceRate], rules: Rules
) -> MetricChange:
    base, head = _same_version(name, ones, others, rules)
    before, now = _totals(base), _totals(head)
    decides = name in rules.fail_on_metrics if rules.fail_on_metrics else True
    if base.rate is None or head.rate is None:
        lacking = "head" if base.rate else "base"
        return MetricChange(
            metric=name,
            graded=False,
            decides=decides,
            base=before,
            head=now,
            drop=math.nan,
            interval=Interval(-1.0, 1.0),
            p_value=None,
            p_improvement=None,
            detectable=None,
            undecided=(f"no turn of {lacking} has a verdict",),
            unit="session",
        )
    found, back = difference(base.rate, head.rate), difference(head.rate, base.rate)
    return MetricChange(
        name,
        False,
        decides,
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
    if found.estimate is None:
        return Totals(None, 0)
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
