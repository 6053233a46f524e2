"""The figures of a report for sampled traffic, estimated for all traffic by `estimates`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.analysis.estimates.rates import SliceRate, estimate_rates
from evaltap.evaluator.analysis.estimates.scope import Scope, Signal, Unit
from evaltap.evaluator.analysis.estimates.turns import choose_turns
from evaltap.evaluator.analysis.stats.estimate import estimate
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.analysis.stats.sample import Cell, Profile
from evaltap.evaluator.store.queries import StoreReader

_VERDICT: Final = Signal("verdict", "TRUE", of_metric=True)
_FAILING: Final = frozenset({"failed", "error", "crashed"})


@dataclass(frozen=True, slots=True)
class Traffic:
    """The estimates for all traffic from the recorded cases."""

    rates: Mapping[str, SliceRate]
    """By metric, for its newest version: the share of turns."""
    crashed: Rate | None
    """The share of cases with a run that failed, never ended or was cut off."""
    passing: Rate | None
    """The share of evaluated cases without a failure."""


def is_sampled(store: StoreReader) -> bool:
    """Return whether the traffic was sampled, by its weights, the drops in manifests, or score rules."""
    return bool(
        store.rows(
            "SELECT 1 FROM turns WHERE inclusion_probability < 1"
            " UNION ALL SELECT 1 FROM sampling_decisions WHERE decision <> 'score'"
            " UNION ALL SELECT 1 FROM manifests, json_each(drops) AS d"
            " WHERE d.key LIKE 'sampled_out%' OR d.key LIKE 'rate_limited%' LIMIT 1"
        )
    )


def read_traffic(
    store: StoreReader, run_id: str | None, digests: Sequence[str]
) -> tuple[Traffic | None, tuple[str, ...]]:
    """Return the figures of all traffic for a run, or for the latest scores, and notes on them.

    None if every weight is 1, so that the figures of the cases apply.
    """
    if not is_sampled(store):
        return None, ()
    found = estimate_rates(store, Scope(digests=tuple(digests), run_id=run_id, files=True))
    rates = {rate.metric: rate for rate in found.rates if rate.metric is not None}
    if not any(rate.rate and rate.rate.weighted for rate in rates.values()):
        return None, found.notes
    newest = tuple(rate.metric_digest or "" for rate in rates.values())
    scope = Scope(digests=newest, run_id=run_id, files=True)
    with choose_turns(store, scope, (), _VERDICT, Unit.CASE) as turns:
        cases = turns.rows(
            "SELECT probability, verdicts, count(*) FROM ("
            " SELECT any_value(probability) AS probability, list_sort(list(DISTINCT has)) AS verdicts"
            " FROM {turns} GROUP BY session) GROUP BY ALL ORDER BY ALL"
        )

    def share(
        has: Callable[[set[str]], bool], counts: Callable[[set[str]], bool] = bool
    ) -> Rate | None:
        profiles = (
            Profile((Cell(probability, 1, float(has(found)), float(has(found))),), sessions)
            for probability, verdicts, sessions in cases
            if counts(found := set(verdicts))
        )
        shared = estimate(profiles, unit="cases")
        return shared.rate if shared else None

    crashed = share(lambda one: "crashed" in one)
    passing = share(lambda one: not one & _FAILING, lambda one: one != {"not_evaluated"})
    return Traffic(rates, crashed, passing), found.notes
