"""A summary of scores, read from the store as plain data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from evaltap.evaluator.analysis.estimates.rates import SliceRate
from evaltap.evaluator.analysis.estimates.scope import WITHOUT_RECORDING
from evaltap.evaluator.analysis.stats.estimate import estimate_items, rate_of_trials
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.analysis.traffic import told_of_runs_among
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.exit_status import (
    BELOW_THE_BAR,
    INCOMPLETE,
    PASSED,
    FailOn,
    GuardFinding,
)
from evaltap.evaluator.reports.scope import score_scope
from evaltap.evaluator.reports.traffic import read_traffic
from evaltap.evaluator.reports.wording import RubricReason, readable, with_rubrics
from evaltap.evaluator.scoring.contract.turn_evaluator import NOT_APPLICABLE
from evaltap.evaluator.store.queries import Row, Rows, Scratch, StoreReader
from evaltap.schemas.text import counted

WORST_CASES = 10


@dataclass(frozen=True, slots=True)
class MetricCounts:
    """The counts of one metric over the recorded cases of a run, and its rate over the evaluated ones."""

    metric_name: str
    passed: int
    failed: int
    not_evaluated: int
    errors: int
    crashed: int = 0
    """Cases with a run that failed, never ended or was cut off; they did not pass."""
    mean_score: float | None = None
    """Like the rate: of all turns, if the traffic was sampled."""
    not_applicable: int = 0
    """Of those not evaluated, the cases that expect nothing of what the metric compares."""
    sample: Rate | None = None
    """The share of the recorded cases, unweighted; repeats of a case are one cluster."""
    all_cases: Rate | None = None
    """The share of the cases of all traffic, if it was sampled."""
    traffic: SliceRate | None = None
    """The share of turns; of all traffic, if it was sampled."""
    represented: Rate | None = None
    """The share of the traffic that the cases of a curated set represent, by their weights."""
    represented_turns: float = 0.0
    """The number of turns of that traffic."""
    weighted: bool = False
    """Whether the traffic was sampled, so that the rate is of its turns."""
    flags: tuple[str, ...] = ()
    """As in `evaltap estimate` (uncovered, few_sessions); not_landed: none of its scored turns has landed."""
    mixed: bool = False
    """Whether the counts are of several versions of the metric; rates of turns are of the newest."""

    @property
    def by_status(self) -> dict[str, int]:
        """The number of recorded cases by status."""
        return {
            "passed": self.passed,
            "failed": self.failed,
            "crashed": self.crashed,
            "error": self.errors,
            "not_evaluated": self.not_evaluated,
        }

    @property
    def turns(self) -> Rate | None:
        """The share of turns; of all traffic, if it was sampled."""
        if self.mixed and not self.weighted:
            return None  # it would stand beside a rate of other cases
        if self.traffic is None and not self.weighted and self.sample is not None:
            return replace(self.sample, unit="turns")  # every case has one turn
        return self.traffic.rate if self.traffic else None

    @property
    def rate(self) -> Rate | None:
        """The share of the recorded cases, or if the traffic was sampled, of all its turns."""
        return self.turns if self.weighted else self.sample

    @property
    def cases(self) -> Rate | None:
        """The share of cases; of all traffic, if it was sampled."""
        return self.all_cases if self.weighted else self.sample

    def data(self) -> dict[str, object]:
        rate, traffic = self.rate, self.traffic if self.weighted else None
        found = traffic and traffic.estimate
        return {
            "metric_name": self.metric_name,
            "passed": self.passed,
            "failed": self.failed,
            "not_evaluated": self.not_evaluated,
            "not_applicable": self.not_applicable,
            "errors": self.errors,
            "pass_rate": rate and rate.value,
            "pass_rate_unit": rate and rate.unit,
            "mean_score": self.mean_score,
            "interval": rate and rate.interval,
            "crashed": self.crashed,
            "sample_pass_rate": self.sample and self.sample.value,
            **_share("case", self.cases),
            **_share("turn", self.turns),
            **_share("represented", self.represented),
            "represented_turns": self.represented_turns if self.represented else None,
            "effective_turns": found and found.rate.effective_n,
            "estimated_turns": found and found.estimated_turns,
            "turns": found and found.rate.n,
            "sessions": found and found.sessions,
            "covered": traffic and traffic.covered,
            "flags": self.flags,
        }


def _share(name: str, rate: Rate | None) -> dict[str, object]:
    return {f"{name}_pass_rate": rate and rate.value, f"{name}_interval": rate and rate.interval}


@dataclass(frozen=True, slots=True)
class CrashedCases:
    """Cases with a run that failed, never ended or was cut off."""

    cases: int
    """All cases."""
    count: int
    """The cases that crashed."""
    rate: Rate | None = None
    """Of all traffic, if it was sampled; None if score rules left out turns of every metric."""

    def data(self) -> dict[str, object]:
        rate = self.rate
        return {
            "cases": self.cases,
            "count": self.count,
            "rate": rate and rate.value,
            "interval": rate and rate.interval,
            "sample_rate": self.count / self.cases if self.cases else None,
        }


@dataclass(frozen=True, slots=True)
class GateCounts:
    """Counts of a gate's verdicts: a case passes if every dimension does."""

    results: int
    passed: int
    failed: int
    incomplete: int
    """Nothing failed, but something could not be checked, so the case did not pass."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case that did not pass a metric."""

    eval_set_id: str
    eval_id: str
    metric_name: str
    status: str
    score: float | None
    reason: str
    app_name: str = ""
    name: str = ""
    """The name for `evaltap show`: the eval id, preceded by its eval set if several cases have that id."""

    @property
    def key(self) -> CaseKey:
        return self.app_name, self.eval_set_id, self.eval_id


@dataclass(frozen=True, slots=True)
class Difference:
    """The opening of a case, and its calls compared with the expected ones, one per line as in a `diff`."""

    name: str
    lines: list[str]
    opening: str = ""
    """The user's first message, on one line; empty if it was not captured."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """A reason why cases have no score under a metric, with an example."""

    metric_name: str
    status: str
    reason: str
    cases: int
    example: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run, or of the latest scores of all cases when `run_id` is None."""

    run_id: str | None
    cases: int
    metrics: tuple[MetricCounts, ...]
    worst: tuple[CaseRow, ...]
    unscored: tuple[Unscored, ...]
    crashed: CrashedCases = CrashedCases(0, 0)
    weighted: bool = False
    """Whether the traffic was sampled, so that rates, intervals and means are of all traffic."""
    passing_rate: float | None = None
    """If weighted: the share of evaluated cases without a failure; None if score rules left out turns."""
    notes: tuple[str, ...] = ()
    """Notes on cases and traffic that the rates do not cover."""
    gate: GateCounts | None = None
    """The verdicts of the gate whose scores these are, if any: the metrics are then its dimensions."""

    def figures(self) -> dict[str, object]:
        """Return the summary as JSON data without the exit code."""
        plain = asdict(replace(self, metrics=(), crashed=CrashedCases(0, 0)))
        metrics = [one.data() for one in self.metrics]
        return {**plain, "metrics": metrics, "crashed": self.crashed.data()}

    def data(self) -> dict[str, object]:
        return {**self.figures(), "exit_code": exit_code(self)}


def exit_code(
    summary: Summary,
    fail_on: FailOn = FailOn.NOT_EVALUATED,
    findings: Iterable[GuardFinding] = (),
    *,
    allow_crashes: bool = False,
) -> int:
    """Return 1 if something failed, 3 if something is unknown, otherwise 0.

    A crashed run counts as failed, unless `allow_crashes`.  Errors count as of FailOn.ERROR, and missing
    evaluations only with FailOn.NOT_EVALUATED.  No score at all is incomplete.  With FailOn.NEVER, the result
    is always 0.
    """
    if fail_on is FailOn.NEVER:
        return PASSED
    metrics, holds = summary.metrics, {one.holds for one in findings}
    if False in holds or any(one.failed for one in metrics):
        return BELOW_THE_BAR
    if not allow_crashes and any(one.crashed for one in metrics):
        return BELOW_THE_BAR
    return INCOMPLETE if None in holds or _is_incomplete(metrics, fail_on) else PASSED


def _is_incomplete(metrics: Sequence[MetricCounts], fail_on: FailOn) -> bool:
    if not metrics or (fail_on is not FailOn.FAILED and any(one.errors for one in metrics)):
        return True
    if fail_on is not FailOn.NOT_EVALUATED:
        return False
    # A metric that applies to no case at all has said nothing.
    return any(
        one.not_evaluated > (one.not_applicable if one.passed else 0) for one in metrics
    ) or not any(one.passed for one in metrics)


def summarise(
    store: StoreReader,
    *,
    run_id: str | None = None,
    metrics: Sequence[str] = (),
    worst: int = WORST_CASES,
    scores: Scratch | None = None,
) -> Summary:
    """Read the summary of a run, or of the latest scores; `metrics` restricts it to metric digests.

    `scores` are the latest scores, if they have been found already.
    """
    if run_id is None and scores is not None:
        return _summarise(store, None, metrics, worst, f"FROM {scores} WHERE TRUE", {})
    scope, chosen = score_scope(store, run_id, metrics)
    if run_id is not None:
        return _summarise(store, run_id, metrics, worst, scope, chosen)
    # Finding the latest scores takes longer than every query about them.
    with store.scratch(f"{_SCORES} {scope}", chosen) as scores:
        return _summarise(store, None, metrics, worst, f"FROM {scores} WHERE TRUE", {})


def _summarise(
    store: StoreReader,
    run_id: str | None,
    metrics: Sequence[str],
    worst: int,
    scope: str,
    chosen: Mapping[str, object],
) -> Summary:
    def read(query: str, **more: object) -> Rows:
        return store.rows(query, {**chosen, **more})

    counts = read(
        f"""
        SELECT metric_name,
               count(*) FILTER (status = 'passed'), count(*) FILTER (status = 'failed'),
               count(*) FILTER (status = 'not_evaluated'), count(*) FILTER (status = 'error'),
               count(*) FILTER (status = 'crashed'), avg(score),
               count(*) FILTER (status = 'not_evaluated' AND reason IN $not_asked)
        {scope} GROUP BY metric_name ORDER BY metric_name""",
        not_asked=[*NOT_APPLICABLE],
    )
    places = metric_places(store)
    counts.sort(key=lambda row: places.get(row[0], len(places)))
    ((cases, crashed, most_turns),) = read(f"""
        SELECT count(DISTINCT (app_name, eval_set_id, eval_id)),
               count(DISTINCT (app_name, eval_set_id, eval_id)) FILTER (status = 'crashed'),
               coalesce(max(turn_count), 0)
        {scope}""")
    worst_rows = read(_WORST.format(scope=scope), limit=worst)
    unscored = read(f"""
        SELECT metric_name, status, coalesce(reason, ''), count(*), min(eval_id)
        {scope} AND status IN ('not_evaluated', 'error')
        GROUP BY metric_name, status, reason ORDER BY count(*) DESC, metric_name, status, reason LIMIT 20""")
    recorded: dict[str, str] = dict(store.rows(_SETS))
    sets = {"recorded": [*recorded], "sets": [*recorded.values()]}
    trials = read(_TRIALS.format(scope=scope), **sets)
    crashes = read(_CRASHES.format(scope=scope), **sets)
    curated = store.rows("SELECT 1 FROM curated_cases LIMIT 1")
    represented = read(_REPRESENTED.format(scope=scope), **sets) if curated else []
    ((gated, *verdicts),) = read(_GATE.format(scope=scope))
    summary = Summary(
        run_id,
        cases,
        tuple(_metric_counts(row, trials, represented) for row in counts),
        _with_readable_reasons(store, _named(store, [CaseRow(*row) for row in worst_rows])),
        tuple(_merge_same_reasons(Unscored(*row) for row in unscored)),
        CrashedCases(cases, crashed, rate_of_trials([row[1:] for row in crashes])),
        gate=GateCounts(gated, *verdicts) if gated else None,
    )
    summary = _with_turns(summary, store, metrics, of_several=most_turns > 1)
    versions = read(_VERSIONS.format(scope=scope))
    mixed = {name for name, _ in versions}
    of_versions = tuple(replace(one, mixed=one.metric_name in mixed) for one in summary.metrics)
    summary = replace(summary, metrics=of_versions)
    notes = _notes(cases, sum(row[-1] for row in crashes), versions, summary.metrics)
    return replace(summary, notes=(*notes, *summary.notes))


# A crashed case is crashed under every metric and listed once.  Half of the places are for failed scores.
_WORST = """
WITH wrong AS (
  SELECT eval_set_id, eval_id, metric_name, status, score, coalesce(reason, '') AS reason, app_name
  {scope} AND status IN ('failed', 'crashed')
  QUALIFY status = 'failed' OR row_number() OVER (
    PARTITION BY status, app_name, eval_set_id, eval_id ORDER BY metric_name
  ) = 1
),
placed AS (
  SELECT *, row_number() OVER (
    PARTITION BY status ORDER BY score NULLS FIRST, app_name, eval_set_id, eval_id, metric_name
  ) AS place
  FROM wrong
),
listed AS (FROM placed ORDER BY place > $limit::INTEGER // 2, status, place LIMIT $limit)
SELECT * EXCLUDE (place) FROM listed ORDER BY status, place
"""


def _notes(
    recordings: int, cases: int, versions: Rows, metrics: Iterable[MetricCounts]
) -> Iterator[str]:
    if cases < recordings:
        yield (
            f"{recordings:,} recordings of {counted(cases, 'case')}: the intervals count the repeats of a"
            " case as one cluster."
        )
    weighted = {one.metric_name for one in metrics if one.weighted}
    for metric, mixed in versions:  # as after a return to an earlier version
        what, rate = (
            ("rate", "") if metric not in weighted else ("count", "; its rate is the newest's")
        )
        yield (
            f"the {what} of {metric} mixes {len(mixed)} versions of the metric"
            f" ({', '.join(f'{one:,}' for one in mixed)} cases){rate}; `evaltap estimate` tells them apart."
        )
    for one in metrics:
        others = one.passed + one.failed
        effect = "its pass rate counts them as not passed"
        if one.crashed and not others:
            yield (
                f"only crashed cases ({one.crashed:,}) have a verdict under {one.metric_name}:"
                f" {effect}, and says nothing about other cases."
            )
        elif one.crashed > others and one.not_evaluated:
            yield (
                f"most cases with a verdict under {one.metric_name} crashed ({one.crashed:,} of"
                f" {one.crashed + others:,}): {effect}; of the others, {one.passed / others:.1%} passed."
            )


_REPEATED: Final = """
SELECT eval_id FROM (
  SELECT app_name, eval_set_id, eval_id FROM cases WHERE list_contains($ids, eval_id)
  UNION SELECT app_name, eval_set_id, eval_id FROM scores WHERE list_contains($ids, eval_id)
)
GROUP BY eval_id HAVING count(*) > 1
"""


def _named(store: StoreReader, cases: Sequence[CaseRow]) -> list[CaseRow]:
    """Return the cases with unique names, because repeats of a case share its id."""
    shared = set(store.column(_REPEATED, {"ids": [one.eval_id for one in cases]}))
    return [
        replace(
            one, name=f"{one.eval_set_id}/{one.eval_id}" if one.eval_id in shared else one.eval_id
        )
        for one in cases
    ]


def _with_readable_reasons(store: StoreReader, cases: Sequence[CaseRow]) -> tuple[CaseRow, ...]:
    """Return the cases with readable reasons: shortened comparisons, and rubrics by their ids."""
    verdicts: dict[tuple[str, ...], list[RubricReason]] = {}
    keys = [(*one.key, one.metric_name) for one in cases]
    asked = [dict(zip(("app", "set", "id", "metric"), key, strict=True)) for key in keys]
    for *key, turn, sample, rubric, score, reason in store.rows(_RUBRICS, {"keys": asked}):
        one = RubricReason((turn, sample), rubric, score, reason)
        verdicts.setdefault(tuple(key), []).append(one)
    return tuple(
        replace(one, reason=with_rubrics(readable(one.reason), verdicts.get(key, ())))
        for key, one in zip(keys, cases, strict=True)
    )


_RUBRICS: Final = """
SELECT v.app_name, v.eval_set_id, v.eval_id, v.metric_name, v.invocation_id || ' ' || v.run_id,
       v.sample_index, v.rubric_id, v.score, coalesce(v.reason, '')
FROM rubric_votes v JOIN (SELECT unnest($keys::STRUCT(app VARCHAR, set VARCHAR, id VARCHAR,
                                                     metric VARCHAR)[]) AS k)
  ON v.app_name = k.app AND v.eval_set_id = k.set AND v.eval_id = k.id AND v.metric_name = k.metric
ORDER BY ALL
"""

_SCORES: Final = """
SELECT run_id, app_name, eval_set_id, eval_id, revision, metric_name, status, score, turn_count,
       CASE WHEN status <> 'passed' THEN reason END AS reason
"""

_GATE: Final = """
SELECT count(*), count(*) FILTER (status = 'passed'), count(*) FILTER (status = 'failed'),
       count(*) FILTER (status = 'incomplete')
FROM gate_results SEMI JOIN (
  SELECT run_id, app_name, eval_set_id, eval_id, revision {scope}
) USING (run_id, app_name, eval_set_id, eval_id, revision)
"""


def _merge_same_reasons(gaps: Iterable[Unscored]) -> Iterator[Unscored]:
    """Yield the gaps, with those combined whose readable reasons are equal."""
    found: dict[tuple[str, str, str], Unscored] = {}
    for gap in gaps:
        key = gap.metric_name, gap.status, readable(gap.reason)
        known = found.get(key)
        cases = gap.cases + (known.cases if known else 0)
        found[key] = replace(known or gap, reason=key[2], cases=cases)
    yield from found.values()


def metric_places(store: StoreReader) -> dict[str, int]:
    """Return the positions of metrics in the newest metrics file with them, as the order of reports."""
    rows = store.rows(
        "SELECT metric_name, arg_max(metric_index, started_at)"
        " FROM run_metrics JOIN runs USING (run_id) GROUP BY metric_name"
    )
    return dict(rows)


_SETS: Final = f"""
SELECT DISTINCT eval_set_id, {WITHOUT_RECORDING}
FROM (SELECT DISTINCT eval_set_id, concat_ws('@', version, run) AS recording FROM turns WHERE recording <> '')
"""
# As scope.CASE: a case across its recordings; of cases of files, their name only ends that of their set.
_OF_CASE: Final = """
hash(app_name, coalesce(($sets::VARCHAR[])[list_position($recorded::VARCHAR[], eval_set_id)],
                        regexp_replace(eval_set_id, '@[^@]*$', '')), {eval_id})"""

_TRIALS: Final = f"""
SELECT metric_name, trials, passed, count(*)
FROM (
  SELECT metric_name, {_OF_CASE.format(eval_id="eval_id")} AS of_case, count(*) AS trials,
         count(*) FILTER (status = 'passed') AS passed
  {{scope}} AND status IN ('passed', 'failed', 'crashed') GROUP BY ALL
) GROUP BY ALL ORDER BY ALL
"""

# Counts crashed recordings of a case in the place of passed ones.
_CRASHES: Final = _TRIALS.replace(
    "{scope}",
    """FROM (
    SELECT '' AS metric_name, app_name, eval_set_id, eval_id,
           if(bool_or(status = 'crashed'), 'passed', 'failed') AS status
    {scope} GROUP BY app_name, eval_set_id, eval_id
  ) WHERE TRUE""",
)

# Turns of one session that became cases of their own (`<session>#<turn>`) are a cluster.  A session up to a
# turn stands for turns like its last one.
_REPRESENTED: Final = f"""
SELECT metric_name, {_OF_CASE.format(eval_id="regexp_replace(eval_id, '#[^#]*$', '')")} AS of_case, weight,
       coalesce(last, status) = 'passed'
FROM (SELECT * {{scope}})
JOIN curated_cases USING (run_id, app_name, eval_set_id, eval_id)
LEFT JOIN (
  SELECT run_id, app_name, eval_set_id, eval_id, metric_name, arg_max(status, turn_index) AS last
  FROM turn_scores SEMI JOIN curated_cases USING (run_id, app_name, eval_set_id, eval_id) GROUP BY ALL
) USING (run_id, app_name, eval_set_id, eval_id, metric_name)
WHERE weight > 0 AND coalesce(last, status) IN ('passed', 'failed', 'crashed')
ORDER BY ALL
"""


def _metric_counts(row: Row, trials: Rows, represented: Rows) -> MetricCounts:
    found = MetricCounts(*row)
    sample = rate_of_trials([row[1:] for row in trials if row[0] == found.metric_name])
    weighed = [row[1:] for row in represented if row[0] == found.metric_name]
    weights = sum(weight for _, weight, _ in weighed)
    share = estimate_items((case, 1 / weight, passed) for case, weight, passed in weighed)
    rate = share.rate if share else None
    return replace(found, sample=sample, represented=rate, represented_turns=weights)


_VERSIONS: Final = """
SELECT metric_name, list(cases ORDER BY cases DESC)
FROM (
  SELECT metric_name, metric_digest, sum(cases)::BIGINT AS cases
  FROM (SELECT run_id, metric_name, count(*) AS cases {scope} GROUP BY ALL)
  JOIN run_metrics USING (run_id, metric_name) GROUP BY ALL
) GROUP BY metric_name HAVING count(*) > 1 ORDER BY metric_name
"""


def _with_turns(
    summary: Summary, store: StoreReader, metrics: Sequence[str], *, of_several: bool
) -> Summary:
    """Return the summary with the rates of turns, and of all traffic if any weight differs from 1."""
    traffic, notes = read_traffic(store, summary.run_id, metrics, of_several=of_several)
    if summary.run_id is None:
        weighted = traffic is not None and traffic.weighted
        notes = (*notes, *filter(None, [told_of_runs_among(store, weighted=weighted)]))
    if traffic is None:
        return replace(summary, notes=notes)
    if not traffic.weighted:
        rows = []
        for row in summary.metrics:
            found = traffic.rates.get(row.metric_name)
            flags = ("uncovered",) if found and "uncovered" in found.flags else ()
            rows.append(replace(row, traffic=found, flags=flags))
        return replace(summary, metrics=tuple(rows), notes=notes)
    return replace(
        summary,
        metrics=tuple(
            _weighted(row, traffic.rates.get(row.metric_name), traffic.cases.get(row.metric_name))
            for row in summary.metrics
        ),
        crashed=replace(summary.crashed, rate=traffic.crashed),
        weighted=True,
        passing_rate=traffic.passing.value if traffic.passing else None,
        notes=notes,
    )


def _weighted(
    row: MetricCounts, found: SliceRate | None, of_cases: SliceRate | None
) -> MetricCounts:
    row = replace(row, weighted=True, all_cases=of_cases.rate if of_cases else None)
    if found is None:  # none of its turns has landed, or they have grown since
        return replace(row, mean_score=None, flags=("not_landed",))
    return replace(row, mean_score=found.mean_score, traffic=found, flags=found.flags)
