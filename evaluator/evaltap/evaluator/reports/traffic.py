"""The figures of all traffic, from the recorded cases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from evaltap.evaluator.analysis.estimates.rates import SliceRate, estimate_rates
from evaltap.evaluator.analysis.estimates.scope import CASE, Scope, Signal, Unit
from evaltap.evaluator.analysis.estimates.turns import choose_turns
from evaltap.evaluator.analysis.stats.estimate import Cell, Profile, estimate
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.store.queries import Rows, StoreReader

_VERDICT: Final = Signal("verdict", "TRUE", of_metric=True)
_FAILING: Final = frozenset({"failed", "crashed"})


@dataclass(frozen=True, slots=True)
class Traffic:
    """The estimates for all traffic from the recorded cases."""

    rates: Mapping[str, SliceRate]
    """By metric, for its newest version: the share of turns."""
    crashed: Rate | None
    """The share of cases with a run that failed, never ended or was cut off."""
    passing: Rate | None
    """The share of evaluated cases without a failure."""
    cases: Mapping[str, SliceRate] = field(default_factory=dict)
    """Like the rates, the share of cases."""
    weighted: bool = True


def _share(
    cases: Rows, has: Callable[[set[str]], bool], counts: Callable[[set[str]], bool] = bool
) -> Rate | None:
    """Return the share of cases whose verdicts have something, among those that count."""
    profiles = (
        Profile((Cell(probability, 1, float(has(found)), float(has(found))),), sessions)
        for probability, verdicts, sessions in cases
        if counts(found := set(verdicts))
    )
    shared = estimate(profiles, unit="cases")
    return shared.rate if shared else None


def read_traffic(
    store: StoreReader, run_id: str | None, digests: Sequence[str], *, of_several: bool = False
) -> tuple[Traffic | None, tuple[str, ...]]:
    """Return the figures of all traffic for a run, or for the latest scores, and notes on them.

    None if every weight is 1, so that the figures of the cases apply, unless some have several turns.
    """
    # By weights, the drops in manifests, or score rules.
    sampled = store.rows(
        "SELECT 1 FROM turns WHERE inclusion_probability < 1"
        " UNION ALL SELECT 1 FROM sampling_decisions WHERE decision <> 'score'"
        " UNION ALL SELECT 1 FROM manifests WHERE drops::VARCHAR <> '{}' LIMIT 1"
    )
    if not sampled and not of_several:
        return None, ()
    scope = Scope(digests=tuple(digests), run_id=run_id, files=True, traffic=run_id is None)
    found = estimate_rates(store, scope)
    rates = {rate.metric: rate for rate in found.rates if rate.metric is not None}
    notes = found.notes if sampled else ()
    if not any(rate.rate and rate.rate.weighted for rate in rates.values()):
        return Traffic(rates, None, None, weighted=False), notes
    of_cases = estimate_rates(store, scope, unit=Unit.CASE).rates
    newest = tuple(rate.metric_digest or "" for rate in rates.values())
    scope = replace(scope, digests=newest)
    with choose_turns(store, scope, (), _VERDICT, Unit.CASE, cluster=CASE) as turns:
        cases = turns.rows(
            "SELECT probability, verdicts, count(*) FROM ("
            " SELECT any_value(probability) AS probability, list_sort(list(DISTINCT has)) AS verdicts"
            " FROM {turns} GROUP BY session) GROUP BY ALL ORDER BY ALL"
        )
    crashed = _share(cases, lambda one: "crashed" in one)
    passing = _share(
        cases,
        lambda one: not one & _FAILING,
        lambda one: bool(one & _FAILING) or ("passed" in one and "error" not in one),
    )
    by_name = {rate.metric: rate for rate in of_cases if rate.metric is not None}
    # Cases of which rules left turns out have no probability of their own.
    for name in (left_out := store.column(_LEFT_OUT)):
        by_name.pop(name, None)
    if left_out:
        passing = None
        crashed = crashed if by_name else None
    return Traffic(rates, crashed, passing, by_name), found.notes


_LEFT_OUT: Final = "SELECT DISTINCT metric_name FROM latest_decisions WHERE decision <> 'score'"
