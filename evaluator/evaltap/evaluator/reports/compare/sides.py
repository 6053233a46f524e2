"""One side of a comparison: how often each case passed each metric, and the recordings."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.analysis.stats.exchange import Trials
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.recordings import Recording, TrialTurns, contents_of
from evaltap.schemas.errors import InputError

VERDICTS: Final = ("passed", "failed", "crashed")
WITHOUT_VERDICT: Final = ("not_evaluated", "error")
MetricKey: TypeAlias = tuple[str, str]
"""Metric name and digest; the digest is empty if the file does not contain it."""


class ScoreRow(NamedTuple):
    """One score: a case under a metric in a trial."""

    case: CaseKey
    trial: str
    """Rows with the same trial are of the same recording, scored repeatedly."""
    metric: str
    digest: str
    status: str | None
    """None: the metric has only scores, no verdicts."""
    score: float | None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """One case under one metric, over all trials."""

    passes: int
    trials: int
    """The trials with a verdict."""
    missing: int = 0
    """Trials without a verdict: error or not evaluated."""
    not_evaluated: int = 0
    """The missing trials for which evidence or a judge was missing."""
    scores: tuple[float, ...] = ()
    passing: str = ""
    """The first trial that passed."""
    failing: str = ""
    """The first trial that did not pass."""

    @property
    def verdicts(self) -> Trials:
        """The trials with a verdict."""
        return Trials(self.passes, self.trials)

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum of both."""
        return Counts(
            self.passes + other.passes,
            self.trials + other.trials,
            self.missing + other.missing,
            self.not_evaluated + other.not_evaluated,
            (*self.scores, *other.scores),
            self.passing or other.passing,
            self.failing or other.failing,
        )


@dataclass(frozen=True, slots=True)
class MetricSide:
    """All cases under one version of a metric."""

    digest: str
    thresholds: frozenset[float]
    cases: Mapping[CaseKey, Counts]
    graded: bool
    """Whether the metric has only scores, no verdicts."""


def no_turns(cases: Collection[CaseKey]) -> TrialTurns:
    """Return no turns, for a side whose recordings are unavailable."""
    return {}


@dataclass(frozen=True, slots=True)
class Side:
    """The scores of one side, by metric version, and the available recordings."""

    name: str
    runs: int
    metrics: Mapping[MetricKey, MetricSide]
    """The newest version of each metric is last."""
    recordings: Mapping[CaseKey, Sequence[Recording]] = field(default_factory=dict)
    contents: Mapping[CaseKey, str] = field(default_factory=dict)
    """Hashes of input and expectation of cases, except cases whose trials differ."""
    turns: Callable[[Collection[CaseKey]], TrialTurns] = no_turns
    """Reads the recorded turns of some cases."""
    rows: Sequence[ScoreRow] = ()
    """The individual scores, if the file has them."""
    stored: Mapping[CaseKey, CaseKey] = field(default_factory=dict)
    """The key of the last trial of a case in the store."""

    @property
    def cases(self) -> Collection[CaseKey]:
        """The cases that have a score under any metric."""
        return {key for metric in self.metrics.values() for key in metric.cases}


def metrics_of(rows: Iterable[ScoreRow]) -> dict[MetricKey, MetricSide]:
    """Count trials; repeated scores of a recording count once, by majority (for a tie: the last one)."""
    groups: defaultdict[MetricKey, defaultdict[CaseKey, defaultdict[str, list[ScoreRow]]]]
    groups = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        key = (row.metric, row.digest)
        cases = groups.pop(key, None) or defaultdict(lambda: defaultdict(list))
        groups[key] = cases  # the newest version of a metric is last
        cases[row.case][row.trial].append(row)
    return {key: _metric(key, cases) for key, cases in groups.items()}


def merged(sides: Sequence[Side]) -> Side:
    """Return several sides as one with all their trials; cases that differ have no content hash."""
    metrics: dict[MetricKey, MetricSide] = {}
    recordings: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    for side in sides:
        for key, metric in side.metrics.items():
            metrics[key] = _sum(metrics.pop(key, None), metric)
        for case, found in side.recordings.items():
            recordings[case] += found
    name = ", ".join(side.name for side in sides)
    runs = sum(side.runs for side in sides)
    return Side(name, runs, metrics, recordings, contents_of(recordings))


def _sum(one: MetricSide | None, other: MetricSide) -> MetricSide:
    if one is None:
        return other
    cases = dict(one.cases)
    for key, counts in other.cases.items():
        cases[key] = cases[key].plus(counts) if key in cases else counts
    thresholds = one.thresholds | other.thresholds
    return MetricSide(one.digest, thresholds, cases, one.graded and other.graded)


def _metric(
    key: MetricKey, cases: Mapping[CaseKey, Mapping[str, Sequence[ScoreRow]]]
) -> MetricSide:
    rows = [row for trials in cases.values() for found in trials.values() for row in found]
    thresholds = frozenset(row.threshold for row in rows if row.threshold is not None)
    kinds = {row.status is None for row in rows if row.status not in WITHOUT_VERDICT}
    if len(kinds) > 1:
        raise InputError(
            f"metric '{key[0]}' has scores with and without `status` and `threshold`; expected all scores"
            " of a metric to be alike"
        )
    return MetricSide(
        key[1],
        thresholds,
        {case: _counts(trials) for case, trials in cases.items()},
        kinds == {True},
    )


def _counts(trials: Mapping[str, Sequence[ScoreRow]]) -> Counts:
    passed: dict[str, bool] = {}
    not_evaluated = 0
    scores = []
    for trial, rows in trials.items():
        found = [row for row in rows if row.status not in WITHOUT_VERDICT]
        if not found:
            not_evaluated += all(row.status == "not_evaluated" for row in rows)
            continue
        passed[trial] = _majority([row.status == "passed" for row in found])
        known = [row.score for row in found if row.score is not None]
        if known:
            scores.append(sum(known) / len(known))
    return Counts(
        sum(passed.values()),
        len(passed),
        len(trials) - len(passed),
        not_evaluated,
        tuple(scores),
        next((trial for trial, passes in passed.items() if passes), ""),
        next((trial for trial, passes in passed.items() if not passes), ""),
    )


def _majority(passed: Sequence[bool]) -> bool:
    twice = 2 * sum(passed)
    return passed[-1] if twice == len(passed) else twice > len(passed)
