"""The data of a report: plain and frozen, the same for every format.

Texts are stored as recorded, truncated to `Limits`; each format makes them safe for its readers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.summary import Summary, exit_code
from evaltap.evaluator.scoring.criteria.calls.diff import DiffKind

SEVERITY: Final = ("crashed", "failed", "error", "not_evaluated", "passed")
"""The statuses of a case, worst first."""

StepKind = DiffKind | Literal["made", "left_out"]
"""The comparison of a call; made: there is nothing to compare with; left_out: it failed and does not
count."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a report; counts, rates and usage are always of all cases."""

    listed: int = 5_000
    """The number of cases with their scores; those that did not pass have priority."""
    cases: int = 1_000
    """The number of cases with turns, votes and turn scores; those that did not pass have priority."""
    turns: int = 50
    """The number of turns of a case."""
    first_turn: int = 1
    """The first of these turns, from 1."""
    turn_scores: int = 50
    """The number of scores that a metric gave to turns of a case."""
    calls: int = 200
    """The number of tool calls of a turn; calls that differ are always included."""
    text: int = 4_000
    """The number of characters of a text: a message, an argument, a reason."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, with `arguments` and `result` as JSON text; empty if there are none."""

    name: str
    arguments: str
    result: str = ""
    error: str = ""
    agent: str = ""
    """The agent that made the call, if there are several."""
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ArgumentDifference:
    """One argument path with both values as JSON text; None if a side has no value."""

    path: str
    expected: str | None
    actual: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One row of a trajectory difference: a call on one or both sides, and the differences."""

    kind: StepKind
    expected: Call | None
    actual: Call | None
    changes: tuple[str, ...] = ()
    differences: tuple[ArgumentDifference, ...] = ()
    """The structured form of `changes`."""
    expected_place: int | None = None
    """The number of the call among the counted expected ones, from 1."""
    actual_place: int | None = None
    """The number of the call among the actual ones, from 1."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage, and the number of turns with known values; None if nothing was recorded.

    Counts are of recorded turns.  Sums and percentiles are of all traffic if `recorded` is set.
    """

    count: int
    cost_usd: float | None = None
    with_cost: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    with_latency: int = 0
    with_tokens: int = 0
    cached: int = 0
    """The number of answers from a cache."""
    estimated_turns: float | None = None
    """The number of turns of the traffic, if it was sampled."""
    recorded: "Usage | None" = None
    """The unweighted usage of the recorded turns, if the traffic was sampled."""


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """The events of a turn, and what was expected."""

    invocation_id: str
    user: str | None
    answer: str | None
    expected_answer: str | None
    steps: tuple[Step, ...]
    compared: bool
    """Whether there was a reference for the calls."""
    gaps: tuple[str, ...]
    """Descriptions of fields without evidence."""
    error: str
    models: tuple[str, ...]
    cost_usd: float | None
    latency_ms: float | None
    input_tokens: int | None
    output_tokens: int | None
    trace_id: str | None
    omitted_calls: int = 0
    """Tool calls that the steps omit because there are many; none of them differs."""


@dataclass(frozen=True, slots=True)
class TurnCell:
    """One turn under one metric."""

    turn: int
    """From 1."""
    invocation_id: str
    status: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class VoteCell:
    """The verdict of one sample of a judge on one rubric, or on the whole turn (no rubric id)."""

    invocation_id: str
    sample: int
    """From 1."""
    rubric_id: str
    score: float | None
    reason: str
    evidence: str = ""
    """The judge's quote as evidence."""
    evidence_found: bool | None = None
    """Whether the trace contains the quote; None if no quote was requested."""
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One answer of a judge, with or without a verdict, and what it cost."""

    invocation_id: str
    sample: int
    """From 1, as in the votes; 0 for a preparatory call that builds the question."""
    judge: str
    model: str
    status: str
    reason: str
    cached: bool
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_ms: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One case under one metric."""

    metric_name: str
    status: str
    score: float | None
    threshold: float
    reason: str
    turns: tuple[TurnCell, ...] = ()
    votes: tuple[VoteCell, ...] = ()
    calls: tuple[JudgeCall, ...] = ()


def case_status(cells: Iterable[Cell]) -> str:
    """Return the worst of crashed, failed and error, otherwise passed if any is, otherwise not_evaluated."""
    statuses = {cell.status for cell in cells}
    order = ("crashed", "failed", "error", "passed")
    return next((name for name in order if name in statuses), "not_evaluated")


@dataclass(frozen=True, slots=True)
class GateVerdict:
    status: str
    """passed, failed or incomplete."""
    attempts: int
    """The number of answers until the gate passed or the agent gave up."""
    feedback: str
    """The missed thresholds and the reasons; empty if the gate passed."""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One case: its cells, and their evidence if the report includes it."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int
    status: str
    """crashed, failed or error if a metric has that status, otherwise passed if one has, otherwise
    not_evaluated, as also for a case that a gate could not check."""
    cells: tuple[Cell, ...]
    detailed: bool = False
    """Whether turns, votes and turn scores were read for the case."""
    evidence: tuple[TurnEvidence, ...] = ()
    evidence_note: str = ""
    """Why evidence is missing or incomplete."""
    cost_usd: float | None = None
    """Of the turns whose cost is known."""
    unpriced: int = 0
    """The number of turns whose cost is unknown."""
    latency_ms: float | None = None
    opening: str = ""
    """The user's first message, on one line; empty if it was not captured."""
    tools: tuple[str, ...] = ()
    """Distinct names of the called tools."""
    gate: GateVerdict | None = None
    """The verdict of the gate whose dimensions are the cells."""

    @property
    def key(self) -> CaseKey:
        return self.app_name, self.eval_set_id, self.eval_id


@dataclass(frozen=True, slots=True)
class MetricReport:
    """One metric: its evaluator, and the distribution of its scores."""

    metric_name: str
    evaluator_name: str
    evaluator_version: str
    thresholds: tuple[float, ...]
    """A single one, unless the report combines runs with several thresholds."""
    histogram: tuple[int, ...]
    """Counts of scores in ten bins of [0, 1], the last one including 1; other scores are not counted."""
    outside: int
    """Scores below 0 or above 1."""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Cells of one metric that failed in the same way."""

    metric_name: str
    status: str
    pattern: str
    """The reason with `N` for numbers and `'…'` for quoted text."""
    cases: int
    eval_ids: tuple[str, ...]
    """Examples of these cases; recordings of one case have the same id."""
    example: str
    """The reason of the first case."""


@dataclass(frozen=True, slots=True)
class Source:
    database: str
    run_id: str | None
    """None: the latest score of every case."""
    kind: str = ""
    cases_from: str = ""
    evaltap_version: str = ""
    started_at: str = ""
    ended_at: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    source: Source
    generated_at: str
    summary: Summary
    metrics: tuple[MetricReport, ...] = ()
    cases: tuple[CaseReport, ...] = ()
    """Those that are listed, worst first: crashed, failed, error, not evaluated, passed."""
    reasons: tuple[ReasonGroup, ...] = ()
    """The reasons of the listed cases."""
    agent: Usage = Usage(0)
    judge: Usage | None = None
    """None if no judge was called."""
    notes: tuple[str, ...] = ()
    """Notes for readers: omitted cases, missing evidence, the meaning of rates."""
    case_counts: Mapping[str, int] = field(default_factory=dict)
    """All cases by status."""

    @property
    def total(self) -> int:
        """The number of cases, listed or not."""
        return sum(self.case_counts.values())

    def data(self) -> dict[str, Any]:
        return {"format": "evaltap-report", "version": 1, **asdict(self)} | {
            "summary": self.summary.figures(),
            "exit_code": exit_code(self.summary),
        }


_VARIABLE: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | (?<=\bid[ ])\S+ | \b\d+(?:\.\d+)?\b""", re.VERBOSE
)
_PATTERN_LENGTH: Final = 300
_EXAMPLES: Final = 5
_LEAST_SHARED, _MOST_SHARED = 4, 80


def reason_groups(cases: Sequence[CaseReport]) -> tuple[ReasonGroup, ...]:
    """Return the reasons of all cells that did not pass, the most frequent first."""
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for case in cases:
        for cell in case.cells:
            if cell.status != "passed":
                found.setdefault(group_key(cell), []).append((case.eval_id, deciding_reason(cell)))
    groups = []
    for key, members in found.items():
        ids = tuple(dict.fromkeys(eval_id for eval_id, _ in members))[:_EXAMPLES]
        groups.append(ReasonGroup(*key, len(members), ids, members[0][1]))
    return tuple(sorted(groups, key=lambda group: -group.cases))


def group_key(cell: Cell) -> tuple[str, str, str]:
    """Return metric, status and pattern of the reason: the properties that the cells of a group share."""
    return cell.metric_name, cell.status, pattern(deciding_reason(cell))


def deciding_reason(cell: Cell) -> str:
    """Return the reason of the first turn with the metric's status, otherwise the metric's own.

    The metric's own reason joins those of all its turns, so that hardly any two would be equal.
    """
    reasons = (turn.reason for turn in cell.turns if turn.status == cell.status and turn.reason)
    return next(reasons, cell.reason)


def pattern(reason: str) -> str:
    """Return a reason on one line, with quoted texts and numbers replaced by placeholders."""
    line = " ".join(reason[: 4 * _PATTERN_LENGTH].split())
    general = _VARIABLE.sub(lambda found: "'…'" if found[0][0] in "'\"" else "N", line)
    if len(general) > _PATTERN_LENGTH:
        general = general[:_PATTERN_LENGTH] + "…"
    return general or "no reason given"


def shared_words(reasons: Iterable[str]) -> str:
    """Return the longest text between numbers and quoted texts that reasons of one pattern share.

    The filter's `reason:` finds them by it.  Empty if they share too little.
    """
    shared: set[str] | None = None
    for reason in reasons:
        pieces = {piece.strip(' ,;:"') for piece in _VARIABLE.sub("\n", reason).splitlines()}
        shared = pieces if shared is None else shared & pieces
    fitting = [piece for piece in shared or () if '"' not in piece]
    longest = max(sorted(fitting), key=len, default="")[:_MOST_SHARED].strip()
    return longest if len(longest) >= _LEAST_SHARED else ""
