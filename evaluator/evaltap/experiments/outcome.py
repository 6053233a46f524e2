"""What an experiment found: rates with intervals over cases as clusters, repeats, flaky cases, what it cost.

A crashed unit has not passed any metric.  An invalid one is no evidence about the agent: it enters no rate
and is counted beside it, as is one to which a metric has given no verdict.  If the case itself says that it
expects nothing of what a metric compares, the metric does not apply to its units: nothing is missing then.
A unit needs one verdict at least."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Final

from evaltap.evaluator.analysis.stats.estimate import mean_of_cases, rate_of_trials
from evaltap.evaluator.analysis.stats.rate import Rate, pass_at_k, pass_hat_k, pass_hat_k_unbiased
from evaltap.evaluator.scoring.contract.turn_evaluator import NOT_APPLICABLE
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.mocks.drift import totals
from evaltap.experiments.units import NAMED, UNJUDGED, UnitRow, named, read_units, verdicts_of

RARE: Final = 0.05
"""A case is flaky if it fails, and passes, more often than this, each at the 5 % level."""


@dataclass(frozen=True, slots=True)
class MetricOutcome:
    """The trials of one metric over all cases."""

    metric: str
    rate: Rate | None
    """The share of trials that passed; its interval knows that trials of one case resemble each other."""
    passed: int
    not_evaluated: int
    """Trials that the metric gave no verdict, although it applies."""
    not_applicable: int
    """Trials of cases that expect nothing of what the metric compares."""
    pass_at: Mapping[int, Rate]
    """By k: the chance that at least one of k trials of a case passes, as a mean over cases."""
    pass_hat: Mapping[int, Rate]
    """By k: the chance that all k trials of a case pass, without bias: C(c, k) / C(n, k)."""
    pass_hat_plain: Mapping[int, float]
    """The same as tRPC-Agent-Go has it, (c / n)^k, which is too high for few trials."""
    cases_with: Mapping[int, int]
    """By k: the number of cases with at least k trials, on which these rest."""

    def data(self) -> dict[str, Any]:
        interval = None if self.rate is None else [*self.rate.interval]
        return {
            "metric": self.metric,
            "n": 0 if self.rate is None else self.rate.n,
            "passed": self.passed,
            "not_evaluated": self.not_evaluated,
            "not_applicable": self.not_applicable,
            "pass_rate": None if self.rate is None else self.rate.value,
            "pass_rate_unit": "trials",
            "interval": interval,
            "pass_at": {str(k): one.value for k, one in self.pass_at.items()},
            "pass_at_interval": {str(k): [*one.interval] for k, one in self.pass_at.items()},
            "pass_hat": {str(k): one.value for k, one in self.pass_hat.items()},
            "pass_hat_interval": {str(k): [*one.interval] for k, one in self.pass_hat.items()},
            "pass_hat_plain": {str(k): value for k, value in self.pass_hat_plain.items()},
            "pass_cases": {str(k): cases for k, cases in self.cases_with.items()},
        }


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The trials of one case; one passes if every metric passes."""

    eval_id: str
    runs: int
    """Trials with a verdict: passed, failed or crashed."""
    passed: int
    crashed: int
    invalid: int
    not_evaluated: int
    """Trials that a metric gave no verdict, although it applies."""
    reasons: tuple[str, ...]
    """Why trials crashed, are invalid or were not evaluated, each once."""
    failures: tuple[str, ...]
    """Why metrics failed trials, each once."""
    failed_set: str | None
    """The eval set in which the first trial that did not pass is stored; None if all passed."""
    ended_by: Mapping[str, int] = field(default_factory=dict)
    """Why the conversations with a simulated user ended, and how many did; empty without one."""

    @property
    def has_problem(self) -> bool:
        """Whether a trial did not pass, or is no evidence."""
        return self.passed < self.runs or self.invalid + self.not_evaluated > 0

    @property
    def flaky(self) -> bool:
        """Whether a test says that it sometimes passes and sometimes fails."""
        failed = self.runs - self.passed
        return all(_tail(count, self.runs) < 0.05 for count in (self.passed, failed) if self.runs)

    def data(self) -> dict[str, Any]:
        return asdict(self) | {"flaky": bool(self.runs) and self.flaky}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of an experiment, over all of its starts."""

    metrics: tuple[MetricOutcome, ...]
    cases: tuple[CaseOutcome, ...]
    scored: int
    crashed: int
    invalid: int
    judge_calls: int
    cost_usd: float | None
    """Of agent, judges, simulated users and agents of expected turns; None if nothing is known."""
    mocks: Mapping[str, Any] = field(default_factory=dict)
    """What tools were asked: hits, misses, unused calls, and by tool."""
    unpriced: int = 0
    """Turns of the agent whose cost is not known."""

    @property
    def ended_by(self) -> Mapping[str, int]:
        """Why simulated conversations ended, the most frequent reason first."""
        found: Counter[str] = Counter()
        for one in self.cases:
            found.update(one.ended_by)
        return dict(found.most_common())

    @property
    def has_failed(self) -> bool:
        """Whether any trial of any case did not pass."""
        return any(one.passed < one.runs for one in self.cases)

    @property
    def not_evaluated(self) -> int:
        """Scored units that a metric gave no verdict."""
        return sum(one.not_evaluated for one in self.cases)

    @property
    def invalid_share(self) -> float:
        """The share of invalid units."""
        return self.invalid / max(1, self.scored + self.crashed + self.invalid)


def _by_case(
    store: StoreReader, experiment_id: str, order: Sequence[str]
) -> dict[str, list[UnitRow]]:
    by_case: dict[str, list[UnitRow]] = {eval_id: [] for eval_id in order}
    for row in read_units(store, experiment_id).values():
        if row.eval_id in by_case:
            by_case[row.eval_id].append(row)
    return by_case


def _by_metric(
    store: StoreReader,
    settled: Sequence[UnitRow],
    metrics: Iterable[str],
    given: dict[str, Any],  # parameters
) -> dict[str, dict[UnitRow, bool | None]]:
    """Return by metric whether the trials that it applies to passed; None without a verdict."""
    verdicts = verdicts_of(store, [row.key for row in settled], given["digests"])
    not_asked = {(*row,) for row in store.rows(_NOT_ASKED, given)}
    return {
        name: {
            row: _passes(row, verdicts[row.key].get(name))
            for row in settled
            if row.state == "crashed" or (*row.key, name) not in not_asked
        }
        for name in metrics
    }


def read_outcome(
    store: StoreReader, experiment_id: str, metrics: Mapping[str, str], order: Sequence[str]
) -> Outcome:
    """Read the outcome; `metrics` are digests by name, `order` the eval ids in set order."""
    by_case = _by_case(store, experiment_id, order)
    units = [*chain.from_iterable(by_case.values())]
    settled = [row for row in units if row.state in ("scored", "crashed")]
    given = named(row.key for row in settled)
    given |= {"digests": [*metrics.values()], "not_asked": [*NOT_APPLICABLE]}
    by_metric = _by_metric(store, settled, metrics, given)
    why = {(*key,): (none, failed) for *key, none, failed in store.rows(_WHY, given)}
    calls, cost, unpriced = _costs(store, units)
    states = Counter(row.state for row in units)
    return Outcome(
        tuple(_metric(name, given, len(settled)) for name, given in by_metric.items()),
        tuple(_case(eval_id, own, by_metric, why) for eval_id, own in by_case.items()),
        states["scored"],
        states["crashed"],
        states["invalid"],
        calls,
        cost,
        totals(row.answers for row in units),
        unpriced,
    )


def _costs(store: StoreReader, units: Sequence[UnitRow]) -> tuple[int, float | None, int]:
    """Return the number of judge calls, the cost with that of simulated users, and the turns without one."""
    calls, cost, unpriced = store.rows(_COSTS, named(row.key for row in units))[0]
    if partners := math.fsum(row.partners_usd or 0.0 for row in units):
        cost = (cost or 0.0) + partners
    return calls, cost, unpriced


def _passes(row: UnitRow, status: str | None) -> bool | None:
    """Return whether a unit passed a metric; None if the metric could not be evaluated."""
    if row.state == "crashed" or status == "crashed":
        return False
    return status == "passed" if status in ("passed", "failed") else None


def _metric(name: str, given: Mapping[UnitRow, bool | None], settled: int) -> MetricOutcome:
    trials: defaultdict[str, list[bool]] = defaultdict(list)
    for row, passed in given.items():
        if passed is not None:
            trials[row.eval_id].append(passed)
    most = max(map(len, trials.values()), default=0)
    counts = [(len(all_), sum(all_)) for all_ in trials.values()]
    rate = rate_of_trials([(n, c, 1) for n, c in counts])
    at, hat, plain, cases_with = {}, {}, {}, {}
    for k in range(1, most + 1):
        enough = [(n, c) for n, c in counts if n >= k]
        if (one := mean_of_cases(pass_at_k(n, c, k) for n, c in enough)) is not None:
            at[k] = one
        if (one := mean_of_cases(pass_hat_k_unbiased(n, c, k) for n, c in enough)) is not None:
            hat[k] = one
        cases_with[k] = len(enough)
        plain[k] = math.fsum(pass_hat_k(n, c, k) for n, c in enough) / len(enough)
    total = sum(map(sum, trials.values()))
    lacking = sum(one is None for one in given.values())
    other = settled - len(given)
    return MetricOutcome(name, rate, total, lacking, other, at, hat, plain, cases_with)


def _case(
    eval_id: str,
    own: list[UnitRow],
    by_metric: Mapping[str, Mapping[UnitRow, bool | None]],
    why: Mapping[tuple[str, ...], tuple[Sequence[str], Sequence[str]]],
) -> CaseOutcome:
    own.sort(key=lambda row: row.trial)
    states = Counter(row.state for row in own)
    failed, lacking = None, 0
    passes: list[bool] = []
    reasons: list[str | None] = []
    failures: list[str] = []
    for row in own:
        without_verdict, with_failure = why.get(row.key, ((), ()))
        reasons += (row.reason, *without_verdict)
        failures += with_failure
        if row.state not in ("scored", "crashed"):
            continue
        found = [given[row] for given in by_metric.values() if row in given]
        seen = [one for one in found if one is not None]
        lacking += len(seen) < max(len(found), bool(by_metric))  # a trial needs one verdict
        if seen or row.state == "crashed":
            passes.append(row.state != "crashed" and all(seen))
            failed = failed or (None if passes[-1] else row.eval_set_id)
    return CaseOutcome(
        eval_id,
        len(passes),
        sum(passes),
        states["crashed"],
        states["invalid"],
        lacking,
        _distinct(reasons),
        _distinct(failures),
        failed,
        dict(Counter(filter(None, (row.ended_by for row in own)))),
    )


def _distinct(reasons: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, reasons)))


def _tail(count: int, n: int) -> float:
    """Return the chance of at least `count` in n if each has the chance RARE."""
    return sum(math.comb(n, i) * RARE**i * (1 - RARE) ** (n - i) for i in range(count, n + 1))


_COSTS: Final = f"""
SELECT coalesce(sum(calls), 0)::BIGINT, sum(usd), sum(unpriced)::BIGINT FROM (
  SELECT count(*) FILTER (NOT cached AND model IS NOT NULL) AS calls, sum(cost_usd) AS usd, 0 AS unpriced
  FROM judge_calls WHERE {NAMED}
  UNION ALL
  SELECT 0, sum(cost_usd), count(*) FILTER (cost_usd IS NULL) FROM latest_turns WHERE {NAMED}
)
"""
_WHY: Final = f"""
SELECT app_name, eval_set_id, eval_id,
       coalesce(list(why ORDER BY metric_name) FILTER (status <> 'failed'), []),
       coalesce(list(why ORDER BY metric_name) FILTER (status = 'failed'), [])
FROM (
  SELECT *, concat_ws(': ', metric_name, coalesce(nullif(reason, ''), 'score ' || score)) AS why
  FROM latest_scores
  WHERE {NAMED} AND metric_digest IN $digests AND status NOT IN ('passed', 'crashed')
    AND coalesce(reason, '') NOT IN $not_asked
)
GROUP BY ALL
"""
"""Why metrics gave no verdict, and why a failed one."""
_NOT_ASKED: Final = f"""
SELECT app_name, eval_set_id, eval_id, metric_name FROM latest_scores
WHERE {UNJUDGED} AND reason IN $not_asked
"""
