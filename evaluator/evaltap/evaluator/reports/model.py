"""What a report holds: plain frozen data, the same for every format.

Texts are as they were recorded, cut to `Limits`; each format makes them safe for its reader.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from evaltap.evaluator.criteria.calls.diff import DiffKind
from evaltap.evaluator.reports.summary import Summary, exit_code

SEVERITY: Final = ("crashed", "failed", "error", "not_evaluated", "passed")
"""The statuses of a case, worst first."""

StepKind = DiffKind | Literal["made", "left_out"]
"""How a call compares; made: there is nothing to compare with; left_out: it failed and does not count."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the evidence a report takes along; the scores are always all there."""

    cases: int = 5_000
    """Cases with their turns, votes and turn scores; those that did not pass go first."""
    turns: int = 50
    """Turns of a case."""
    first_turn: int = 1
    """The first of them, from 1."""
    turn_scores: int = 50
    """Scores that a metric gave to turns of a case."""
    calls: int = 200
    """Tool calls of a turn, on either side."""
    text: int = 4_000
    """Characters of one text: a message, an argument, a reason."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call: `arguments` and `result` as JSON text, empty when there is none."""

    name: str
    arguments: str
    result: str = ""
    error: str = ""
    agent: str = ""
    """The agent that made it, where there are several."""
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ArgumentDifference:
    """One argument path with both values as JSON text; None where a side has none."""

    path: str
    expected: str | None
    actual: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One row of a trajectory difference: a call on either or both sides, and what differs."""

    kind: StepKind
    expected: Call | None
    actual: Call | None
    changes: tuple[str, ...] = ()
    differences: tuple[ArgumentDifference, ...] = ()
    """What `changes` says in words."""
    expected_place: int | None = None
    """The number of the call among the expected ones that count, from 1."""
    actual_place: int | None = None
    """The number of the call among those that were made, from 1."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used, and for how many that is known; None where it was not recorded.

    Counts are of what was recorded; sums and percentiles are of all traffic where `recorded` is there.
    """

    count: int
    cost_usd: float | None = None
    with_cost: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    with_latency: int = 0
    cached: int = 0
    """Answers that came from a cache."""
    estimated_turns: float | None = None
    """Turns of the traffic, where sampling left some out."""
    recorded: "Usage | None" = None
    """What the recorded turns used, unweighted, where sampling left some out."""


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """What happened in a turn, and what was expected."""

    invocation_id: str
    user: str | None
    answer: str | None
    expected_answer: str | None
    steps: tuple[Step, ...]
    compared: bool
    """Whether there was a reference for the calls."""
    gaps: tuple[str, ...]
    """Fields that are no evidence, and calls that are not shown, in words."""
    error: str
    models: tuple[str, ...]
    cost_usd: float | None
    latency_ms: float | None
    input_tokens: int | None
    output_tokens: int | None
    trace_id: str | None


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
    """What one sample of a judge said of one rubric, or of the whole turn (no rubric id)."""

    invocation_id: str
    sample: int
    """From 1."""
    rubric_id: str
    score: float | None
    reason: str
    evidence: str = ""
    """What the judge quotes for it."""
    evidence_found: bool | None = None
    """Whether the trace contains the quote; None: no quote was asked for."""
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One answer of a judge, with or without a verdict, and what it cost."""

    invocation_id: str
    sample: int
    """From 1, as in the votes; 0: asked beforehand, to make the question."""
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
    """Return crashed, failed or error when a cell is, else passed when one is, else not evaluated."""
    statuses = {cell.status for cell in cells}
    order = ("crashed", "failed", "error", "passed")
    return next((name for name in order if name in statuses), "not_evaluated")


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate said of a case."""

    status: str
    """passed, failed or incomplete."""
    attempts: int
    """How often the agent answered until it passed or gave up."""
    feedback: str
    """What was not reached and why; empty when it passed."""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One case: its cells, and the evidence for them where the report includes it."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int
    status: str
    """crashed, failed or error when a metric is, else passed when one is, else not_evaluated, which a case
    that a gate could not check is, too."""
    cells: tuple[Cell, ...]
    detailed: bool = False
    """Whether turns, votes and turn scores were read for it."""
    evidence: tuple[TurnEvidence, ...] = ()
    evidence_note: str = ""
    """Why there is no evidence, or not all of it."""
    cost_usd: float | None = None
    latency_ms: float | None = None
    opening: str = ""
    """The user's first message, on one line; empty when it was not captured."""
    tools: tuple[str, ...] = ()
    """Names of the tools that were called, each once."""
    gate: GateVerdict | None = None
    """The verdict of the gate that the cells are dimensions of."""


@dataclass(frozen=True, slots=True)
class MetricReport:
    """One metric: who evaluates it, and how its scores are distributed."""

    metric_name: str
    evaluator_name: str
    evaluator_version: str
    thresholds: tuple[float, ...]
    """One, unless runs with several thresholds are looked at together."""
    histogram: tuple[int, ...]
    """Scores in ten bins of [0, 1], the last one with its end; scores outside are not counted."""
    outside: int
    """Scores below 0 or above 1."""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Cells of one metric that came out badly in the same way."""

    metric_name: str
    status: str
    pattern: str
    """The reason with `N` for numbers and `'…'` for quoted text."""
    cases: int
    eval_ids: tuple[str, ...]
    """Some of them."""
    example: str
    """The reason of the first."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the scores come from."""

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
    """A whole report."""

    source: Source
    generated_at: str
    summary: Summary
    metrics: tuple[MetricReport, ...]
    cases: tuple[CaseReport, ...]
    """Worst first: crashed, failed, error, not evaluated, passed."""
    reasons: tuple[ReasonGroup, ...]
    agent: Usage
    judge: Usage | None
    """None when no judge was asked."""
    notes: tuple[str, ...]
    """What the reader must know: what was cut, what could not be shown, what the rates mean."""
    case_counts: Mapping[str, int] = field(default_factory=dict)
    """Cases by status."""

    def data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {"format": "evaltap-report", "version": 1, **asdict(self)} | {
            "exit_code": exit_code(self.summary)
        }
