"""The exchangeable parts of a judged metric: response scorers and aggregators.

A package provides more of them through entry points in the groups named here; a program passes its own to
`Operators`.  Nothing is imported before a metric names it.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from evaltap.evaluator.scoring.contract import aggregation
from evaltap.evaluator.scoring.contract.context import MetricScore, TurnScore
from evaltap.evaluator.scoring.contract.named import find, source_digest
from evaltap.evaluator.scoring.evaluators.judged.answers import (
    Verdict,
    read_boolean,
    read_category,
    read_rubrics,
    read_single_score,
)
from evaltap.evaluator.scoring.evaluators.judged.panel import SampleAggregator
from evaltap.evaluator.scoring.evaluators.judged.rubric_prompt import answer_schema, closed_object
from evaltap.schemas.data import Json

TurnAggregator = Callable[[tuple[TurnScore, ...], float], MetricScore]
"""Returns the score of the case from its turns, given the threshold."""

SCORER_GROUP: Final = "evaltap.response_scorers"
SAMPLE_GROUP: Final = "evaltap.sample_aggregators"
TURN_GROUP: Final = "evaltap.turn_aggregators"


@dataclass(frozen=True, slots=True)
class ScorerOptions:
    """The input of a scorer: the ids of the requested rubrics, the scores of the categories, the bounds."""

    rubric_ids: Sequence[str] = ()
    categories: Mapping[str, float] = field(default_factory=dict)
    low: float = 0.0
    high: float = 1.0
    """The lowest and the highest answer of a judge that answers with a number."""


class ResponseScorer(Protocol):
    """Turns the text of an answer into a verdict; called from several threads concurrently."""

    def schema(self, options: ScorerOptions) -> Mapping[str, Json] | None:
        """Return the JSON Schema that the answer should follow; None for free text."""

    def read(self, text: str, options: ScorerOptions) -> Verdict:
        """Return the verdict; raise JudgeInvalid for an answer that is not one."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltInScorer:
    """A response scorer that consists of two functions."""

    schema_of: Callable[[ScorerOptions], Mapping[str, Json] | None]
    read_with: Callable[[str, ScorerOptions], Verdict]

    def schema(self, options: ScorerOptions) -> Mapping[str, Json] | None:
        """Return the JSON Schema of the answer."""
        return self.schema_of(options)

    def read(self, text: str, options: ScorerOptions) -> Verdict:
        """Return the verdict of an answer."""
        return self.read_with(text, options)


@dataclass(frozen=True, slots=True)
class Operators:
    """The parts that a metric may name; those given here override installed ones."""

    scorers: Mapping[str, ResponseScorer] = field(default_factory=dict)
    sample_aggregators: Mapping[str, SampleAggregator] = field(default_factory=dict)
    turn_aggregators: Mapping[str, TurnAggregator] = field(default_factory=dict)

    def scorer(self, name: str) -> ResponseScorer:
        """Return a response scorer; raise MetricError if there is none of that name."""
        return find("responseScorerName", name, self.scorers, SCORERS, SCORER_GROUP)

    def sample_aggregator(self, name: str) -> SampleAggregator:
        """Return the function that combines all samples into one vote; `majority_vote` for an empty name."""
        known = SAMPLE_AGGREGATORS
        return find(
            "sampleAggregatorName",
            name or "majority_vote",
            self.sample_aggregators,
            known,
            SAMPLE_GROUP,
        )

    def turn_aggregator(self, name: str) -> TurnAggregator:
        """Return the function that computes the score of the case; `average` for an empty name."""
        known = TURN_AGGREGATORS
        return find(
            "invocationAggregatorName", name or "average", self.turn_aggregators, known, TURN_GROUP
        )


def _answer(required: Mapping[str, Json]) -> Mapping[str, Json]:
    return closed_object({**required, "reason": {"type": "string"}})


_PASSED: Final = {"passed": {"type": "boolean"}}

SCORERS: Final[Mapping[str, ResponseScorer]] = {
    "single_score": BuiltInScorer(
        lambda options: _answer(
            {"score": {"type": "number", "minimum": options.low, "maximum": options.high}}
        ),
        lambda text, options: read_single_score(text, options.low, options.high),
    ),
    "boolean": BuiltInScorer(lambda _: _answer(_PASSED), lambda text, _: read_boolean(text)),
    "categorical": BuiltInScorer(
        lambda options: _answer({"category": {"type": "string", "enum": [*options.categories]}}),
        lambda text, options: read_category(text, options.categories),
    ),
    "rubric_scores": BuiltInScorer(
        lambda options: answer_schema(options.rubric_ids),
        lambda text, options: read_rubrics(text, options.rubric_ids),
    ),
}
SAMPLE_AGGREGATORS: Final[Mapping[str, SampleAggregator]] = {
    "majority_vote": aggregation.majority,
    "average": aggregation.mean_vote,
}
TURN_AGGREGATORS: Final[Mapping[str, TurnAggregator]] = {"average": aggregation.average}
_OWN: Final = (*SCORERS.values(), *SAMPLE_AGGREGATORS.values(), *TURN_AGGREGATORS.values())


def digests(*parts: Callable[..., object] | ResponseScorer) -> list[str]:
    """Return the digests of parts that are not evaltap's own: a changed one makes old scores stale."""
    return [source_digest(_source(one)) for one in parts if not any(one is known for known in _OWN)]


def _source(part: Callable[..., object] | ResponseScorer) -> Callable[..., object]:
    if isinstance(part, BuiltInScorer):
        return part.read_with
    return part if inspect.isroutine(part) else type(part)
