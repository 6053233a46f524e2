"""The input and output of an evaluator: plain frozen values, no I/O.

A turn is read through `Turn`, a thin view of the invocation's JSON data.  Nothing is copied, because millions
of turns are processed.  Values that are created for each case and metric are frozen structs: creating a named
tuple takes six times as long, a frozen dataclass more than ten times.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import Struct, field

from evaltap.evaluator.cases.turn import Turn

if TYPE_CHECKING:
    from evaltap.evaluator.scoring.contract.embedder import Embedder
    from evaltap.evaluator.scoring.contract.judge import Judge
    from evaltap.schemas.formats.criteria import EmbeddingModel
    from evaltap.schemas.formats.metric import EvalMetric, JudgeModel

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")

JudgeProvider = Callable[["JudgeModel | None"], "Judge"]
"""Return the judge for a metric's `judgeModel`; raise `JudgeNotConfigured` if none is configured."""
EmbedderProvider = Callable[["EmbeddingModel | None"], "Embedder"]
"""Return the embedder for a metric's `embedding.model`; raise `EmbeddingsNotConfiguredError` if there is
none."""


class Status(StrEnum):
    """The outcome of a metric or a case."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_EVALUATED = "not_evaluated"
    """The evidence or the judge is missing; no evaluation was attempted."""
    ERROR = "error"
    """The evaluation was attempted and failed; there is no score, and the reason explains the failure."""
    CRASHED = "crashed"
    """The agent's run failed, never ended or was cut off: not passed, whatever the score is."""


@dataclass(frozen=True, slots=True)
class RubricVerdict:
    """The answer to one rubric or rule: a score in [0, 1] and the reason for it."""

    id: str
    score: float
    reason: str
    evidence: str = ""
    """The words of the trace that a judge quotes as evidence."""
    evidence_found: bool | None = None
    """Whether the trace contains the quote; None if no quote was requested."""
    confidence: float | None = None
    """The confidence that the judge states, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One sample of the judge: its verdict, or the reason why it has none, and its cost."""

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
    """The judge among the metric's judges: `judge`, `panel-<n>` or `second` (of a cascade)."""
    cost_usd: float | None = None
    """None if unknown; 0 for an answer that had already been paid for."""
    cached: bool = False
    saved_usd: float | None = None
    """The original cost of a cached answer."""


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
    """Preparatory judge calls, made in order to ask the actual question: they are billed, but are not
    votes."""


class MetricScore(Struct, frozen=True, gc=False):
    """A whole case under one metric, with one row for each turn."""

    status: Status
    score: float | None
    reason: str
    turns: tuple[TurnScore, ...]


@dataclass(frozen=True, slots=True)
class EvaluatorFailure:
    """The reason why an evaluator has no result at all; a value, so that other metrics are not affected."""

    reason: str
    error_type: str


def no_judge(_: "JudgeModel | None") -> "Judge":
    """Raise JudgeNotConfigured: the default provider of `Services()`."""
    from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured

    raise JudgeNotConfigured("no judge service was given to the evaluator")


def no_embeddings(_: "EmbeddingModel | None") -> "Embedder":
    """Raise EmbeddingsNotConfiguredError: the default provider of `Services()`."""
    from evaltap.evaluator.scoring.contract.embedder import EmbeddingsNotConfiguredError

    raise EmbeddingsNotConfiguredError("no embeddings service was given to the evaluator")


@dataclass(frozen=True, slots=True)
class Services:
    """The services that evaluators may use in addition to the case; each is optional and has a default."""

    judge: JudgeProvider = no_judge
    embeddings: EmbedderProvider = no_embeddings


class Shared:
    """What several metrics of one case need; it lives as long as the scoring of the case.

    Only one metric of a case is evaluated at a time, so there is no lock.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}  # whatever evaluators compute

    def once(
        self,
        key: Hashable,
        compute: Callable[Arguments, Found],
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Found:
        """Return the result of `compute`, which is only called by the first metric with this key.

        The key must hold all that the result depends on, apart from the case.
        """
        found: Found | None = self._found.get(key)
        if found is None:
            found = self._found[key] = compute(*args, **named)
        return found


class EvaluationContext(Struct, frozen=True):
    """Everything that an evaluator may read for one case and one metric.

    `actual` and `expected` have the same length, one turn for each position; an expected turn may be a
    placeholder that only contains the user's message.  `metric` includes the rubrics that the case adds.
    `known` may contain scores that turns already have under this very metric, and None for the other turns:
    an evaluator that pays for its scores reuses them; other evaluators may ignore them.  `shared` holds what
    the metrics of the case compute in common.
    """

    case: Mapping[str, Any]
    actual: Sequence[Turn]
    expected: Sequence[Turn]
    metric: "EvalMetric"
    services: Services
    known: Sequence[TurnScore | None] = ()
    shared: Shared = field(default_factory=Shared)
