"""One side of a comparison: how often each case passed each metric, and the recordings."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.analysis.stats.exchange import Trials
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import FAILED_RUNS, Case, Turn
from evaltap.evaluator.reports.evidence import Comparison as Compared
from evaltap.evaluator.scoring.contract.turn_evaluator import NOT_APPLICABLE
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

TrialCases: TypeAlias = Mapping[CaseKey, Mapping[str, CaseData]]
"""Cases as they were recorded in each trial: what the agent did, and what was expected if that is known."""


class RecordedTurn(NamedTuple):
    """The parts of a turn that comparisons read for all turns."""

    user_text: str | None
    answer: str | None
    expected: Case | None
    cost_usd: float | None
    latency_ms: float | None
    failed: bool
    """Whether its run failed or did not end, so that no other turn came after it."""


def recorded_turn(actual: Case | None, expected: Case | None) -> RecordedTurn:
    """Return these parts of a turn."""
    turn = Turn(actual)
    used = turn.data.get("telemetry") or {}
    cost, latency = used.get("costUsd"), used.get("latencyMs")
    failed = used.get("status") in FAILED_RUNS
    return RecordedTurn(turn.user_text, turn.final_text, expected, cost, latency, failed)


@dataclass(frozen=True, slots=True)
class Recording:
    """The agent's behaviour in one trial of a case."""

    trial: str
    content: str
    """Its turns, each followed by `-`, but for the last one of a session that did not fail there: the hash of
    the user's text, and after a `.` that of what is expected, if that is known.  Empty if unknown, and for a
    simulated user, whose texts depend on the answers."""
    answers: str
    """Hash of the answers; empty if unknown."""
    cost_usd: float | None
    """The total of all turns; None if it is unknown for a turn."""
    latency_ms: float | None
    """The sum over turns; None if it is unknown for a turn."""
    is_given: bool = False
    """Whether the user's texts are known to be those of an eval set."""


def recording_of(
    trial: str, turns: Sequence[RecordedTurn], *, simulated: bool | None = None
) -> Recording:
    """Return the recording of a session; ids, times and telemetry are not part of its content.

    `simulated` is whether its user was; None: unknown.
    """
    content = _CUT.join(map(_content, turns)) + (_CUT if turns and turns[-1].failed else "")
    return Recording(
        trial,
        "" if simulated else content,
        _named([turn.answer for turn in turns]),
        _total([turn.cost_usd for turn in turns]),
        _total([turn.latency_ms for turn in turns]),
        simulated is False,
    )


def recorded_case(trial: str, case: CaseData, *, simulated: bool | None = None) -> Recording:
    """Return the recording of an eval case."""
    recorded = case.get("actualConversation") or case.get("conversation") or ()
    expected = case.get("conversation") or [None] * len(recorded)
    return recording_of(trial, list(map(recorded_turn, recorded, expected)), simulated=simulated)


_CUT: Final = "-"
_EXPECTED: Final = "."


def _content(turn: RecordedTurn) -> str:
    wanted = None if turn.expected is None else _expected(turn.expected)
    return _named(turn.user_text) + (f"{_EXPECTED}{_named(wanted)}" if wanted else "")


def is_same_content(one: str, other: str) -> bool:
    """Return whether two recordings are of the same input, and of the same expectation where both know it, as
    far as both went: a run that fails leaves no turns after that.
    """
    short, long = sorted((one.split(_CUT), other.split(_CUT)), key=_length)
    is_cut = bool(short[0]) and not short[-1]
    return (is_cut or _length(short) == _length(long)) and all(
        map(_is_same_turn, filter(None, short), long)
    )


def _length(turns: Sequence[str]) -> int:
    return sum(map(bool, turns))


def _is_same_turn(one: str, other: str) -> bool:
    (asked, _, wanted), (asked_too, _, wanted_too) = (
        turn.partition(_EXPECTED) for turn in (one, other)
    )
    return asked == asked_too and (not (wanted and wanted_too) or wanted == wanted_too)


def contents_of(recordings: Mapping[CaseKey, Sequence[Recording]]) -> dict[CaseKey, str]:
    """Return the content of each case whose recordings agree on it: that of the one that went furthest.

    A case that its set gave several inputs, because it was edited in between, has all of them, which no
    recording is the same as.
    """

    def length(content: str) -> tuple[int, bool, int]:
        return _length(content.split(_CUT)), not content.endswith(_CUT), len(content)

    found = {}
    for key, many in recordings.items():
        contents = {one.content for one in many}
        furthest = max(contents, key=length, default="")
        if furthest and all(is_same_content(one, furthest) for one in contents):
            found[key] = furthest
        elif all(one.is_given for one in many):
            found[key] = "".join(f",{one}" for one in sorted(contents))
    return found


def _expected(turn: Case) -> object:
    """Return the answer, the calls and the references of an expected turn; None if it expects nothing."""
    calls = [
        (call.get("name"), call.get("arguments"), call.get("result"))
        for call in turn.get("tools") or ()
        if call
    ]
    references = [_expected(one) for one in turn.get("references") or ()]
    found = Turn(turn).final_text, calls, references
    return found if any(found) else None


def _named(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


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
    reason: str = ""
    """What the metric says about a trial that did not pass, if the file tells."""


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
    not_asked: bool = False
    """Whether the case says of a trial that it expects nothing of what the metric compares."""

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
            self.not_asked or other.not_asked,
        )


@dataclass(frozen=True, slots=True)
class MetricSide:
    """All cases under one version of a metric."""

    digest: str
    thresholds: frozenset[float]
    cases: Mapping[CaseKey, Counts]
    graded: bool
    """Whether the metric has only scores, no verdicts."""


def no_trials(cases: Collection[CaseKey]) -> TrialCases:
    """Return no cases, for a side whose recordings are unavailable."""
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
    """Contents of cases, as of recordings, except cases whose trials differ."""
    trials: Callable[[Collection[CaseKey]], TrialCases] = no_trials
    """Reads the recordings of some cases."""
    rows: Sequence[ScoreRow] = ()
    """The individual scores, if the file has them."""
    stored: Mapping[CaseKey, CaseKey] = field(default_factory=dict)
    """The key of the last trial of a case in the store."""
    compared: Compared = field(default_factory=Compared)
    """How the calls of cases are compared for readers."""
    notes: tuple[str, ...] = ()
    """What readers should know of it, such as runs that are no evidence."""

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
    found = {}
    for (name, digest), cases in groups.items():
        all_rows = [row for trials in cases.values() for some in trials.values() for row in some]
        thresholds = frozenset(row.threshold for row in all_rows if row.threshold is not None)
        kinds = {row.status is None for row in all_rows if row.status not in WITHOUT_VERDICT}
        if len(kinds) > 1:
            raise InputError(
                f"metric '{name}' has scores with and without `status` and `threshold`; expected all scores"
                " of a metric to be alike"
            )
        counts = {case: _counts(trials) for case, trials in cases.items()}
        found[name, digest] = MetricSide(digest, thresholds, counts, kinds == {True})
    return found


def merged(sides: Sequence[Side]) -> Side:
    """Return several sides as one with all their trials; cases that differ have no content."""
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


def _first(passed: Mapping[str, bool], *, passes: bool) -> str:
    return next((trial for trial, has_passed in passed.items() if has_passed == passes), "")


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
        if known := [row.score for row in found if row.score is not None]:
            scores.append(sum(known) / len(known))
    return Counts(
        sum(passed.values()),
        len(passed),
        len(trials) - len(passed),
        not_evaluated,
        tuple(scores),
        _first(passed, passes=True),
        _first(passed, passes=False),
        any(row.reason in NOT_APPLICABLE for rows in trials.values() for row in rows),
    )


def _majority(passed: Sequence[bool]) -> bool:
    twice = 2 * sum(passed)
    return passed[-1] if twice == len(passed) else twice > len(passed)
