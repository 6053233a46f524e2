"""What an evaluator is given and what it returns: plain frozen values, no I/O.

A turn is read through `Turn`, a thin view of the invocation's JSON data; nothing is copied, because
millions of turns pass here.  Values that are made for each case and metric are frozen structs: a
named tuple takes six times as long to make, a frozen dataclass more than ten times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evaltap.evaluator.cases.turn import Turn

if TYPE_CHECKING:
    from evaltap.evaluator.contract.embedder import Embedder
    from evaltap.evaluator.contract.judge import Judge
    from evaltap.schemas.formats.criteria import EmbeddingModel
    from evaltap.schemas.formats.metric import EvalMetric, JudgeModel

JudgeProvider = Callable[["JudgeModel | None"], "Judge"]
"""Return the judge for a metric's `judgeModel`; raise `JudgeNotConfigured` when there is none."""
EmbedderProvider = Callable[["EmbeddingModel | None"], "Embedder"]
"""Return the embedder for a metric's `embedding.model`; raise `EmbeddingsNotConfiguredError` without one."""


class Status(StrEnum):
    """The outcome of a metric or a case."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_EVALUATED = "not_evaluated"
    """The evidence or the judge is missing; nothing was tried."""
    ERROR = "error"
    """It was tried and failed; there is no score, and the reason explains that."""
    CRASHED = "crashed"
    """The agent's run failed, never ended or was cut off: not passed, whatever the score is."""


@dataclass(frozen=True, slots=True)
class RubricVerdict:
    """The answer to one rubric or rule: a score in [0, 1] and the reason for it."""

    id: str
    score: float
    reason: str
    evidence: str = ""
    """The words of the trace that a judge quotes for it."""
    evidence_found: bool | None = None
    """Whether the trace contains them; None when no quote was asked for."""
    confidence: float | None = None
    """How sure the judge says it is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One sample of the judge: its verdict, or why it has none, and what it cost."""

    sample: int
    status: Status
    score: float | None
    reason: str
    rubric_scores: tuple[RubricVerdict, ...] = ()
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency: timedelta | None = None
    value: float | bool | str | None = None
    """The typed score: numeric, boolean or categorical."""
    judge: str = "judge"
    """Which judge of the metric: `judge`, `panel-<n>` or `second` (of a cascade)."""
    cost_usd: float | None = None
    """None when it is not known; 0 for an answer that was paid for before."""
    cached: bool = False
    saved_usd: float | None = None
    """What a kept answer cost when it was given."""


class TurnScore(Struct, frozen=True, gc=False):
    """One turn under one metric; `score` is None unless the status is passed, failed or crashed."""

    status: Status
    score: float | None = None
    reason: str = ""
    value: float | bool | str | None = None
    """The typed score: numeric, boolean or categorical."""
    rubric_scores: tuple[RubricVerdict, ...] = ()
    votes: tuple[Vote, ...] = ()
    beforehand: tuple[Vote, ...] = ()
    """What a judge was asked in order to ask the question: paid for, but no votes."""


class MetricScore(Struct, frozen=True, gc=False):
    """A whole case under one metric, with one row for each turn."""

    status: Status
    score: float | None
    reason: str
    turns: tuple[TurnScore, ...]


@dataclass(frozen=True, slots=True)
class EvaluatorFailure:
    """Why an evaluator has no result at all; failure is a value, so other metrics keep theirs."""

    reason: str
    error_type: str


def no_judge(_: "JudgeModel | None") -> "Judge":
    """Answer that no judge is available: the provider of `Services()`."""
    from evaltap.evaluator.contract.judge import JudgeNotConfigured

    raise JudgeNotConfigured("no judge service was given to the evaluator")


def no_embeddings(_: "EmbeddingModel | None") -> "Embedder":
    """Answer that no embeddings are available: the provider of `Services()`."""
    from evaltap.evaluator.contract.embedder import EmbeddingsNotConfiguredError

    raise EmbeddingsNotConfiguredError("no embeddings service was given to the evaluator")


@dataclass(frozen=True, slots=True)
class Services:
    """What evaluators may use besides the case; each service is optional and has a default."""

    judge: JudgeProvider = no_judge
    embeddings: EmbedderProvider = no_embeddings


class EvaluationContext(Struct, frozen=True):
    """Everything an evaluator may look at for one case and one metric.

    `actual` and `expected` have one turn each for the same position; expected turns may be
    placeholders that hold only the user's message.  `metric` carries the rubrics that the case
    adds.  `known` may hold scores that turns got before under this very metric, None for the others:
    an evaluator that pays for its scores reuses them; any other may ignore them.
    """

    case: Mapping[str, Any]
    actual: Sequence[Turn]
    expected: Sequence[Turn]
    metric: "EvalMetric"
    services: Services
    known: Sequence[TurnScore | None] = ()
