"""Decide which judges vote on a turn, how often, and when the votes suffice.

A generator gathers the votes of a turn: it yields the samples to request next, receives their votes, and
returns the score of the turn.  Samples are requested in rounds; the votes of a round only affect later
rounds.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final, NamedTuple

from msgspec import structs

from evaltap.evaluator.scoring.contract.aggregation import majority
from evaltap.evaluator.scoring.contract.context import Status, TurnScore, Vote
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.schemas.formats.metric import GenerationConfig, LlmJudgeCriterion

PREPARATORY: Final = -1
"""The sample number of calls that are no votes: those that build a question, and invalid answers that were
asked for once more."""

SampleAggregator = Callable[[Sequence[Vote], float], Vote]
"""Returns the vote that represents all samples of a turn, given the threshold."""


class Juror(NamedTuple):
    """A judge of a metric: the metric's own, a member of its panel, or the second of its cascade."""

    place: int
    """The judge's index among the judges of the metric."""
    name: str
    """`judge`, `panel-<n>` or `second`."""
    first_sample: int
    samples: int
    generation: GenerationConfig


class SampleRequest(NamedTuple):
    """One sample to request from one judge; `number` counts through all judges of the turn."""

    juror: Juror
    number: int


PanelSamples = Generator[list[SampleRequest], Sequence[Vote], TurnScore]


@dataclass(frozen=True, slots=True)
class Panel:
    """The rules that turn votes into a turn's score; raises MetricError for a contradictory criterion."""

    criterion: LlmJudgeCriterion
    threshold: float
    choose: SampleAggregator
    jurors: tuple[Juror, ...]
    second: Juror | None

    def __post_init__(self) -> None:
        if self.criterion.early_stop and self.choose is not majority:
            raise MetricError("earlyStop: only a majority can be decided early; use majority_vote")
        cascade = self.criterion.cascade
        if cascade is not None and cascade.judge_model is None:
            raise MetricError(
                "cascade.judgeModel is missing; name the judge for uncertain verdicts"
            )
        if cascade is not None and not (
            0 <= cascade.margin <= 1 and 0 <= cascade.min_confidence <= 1
        ):
            raise MetricError("cascade.margin and cascade.minConfidence go from 0 to 1")

    def samples(self) -> PanelSamples:
        """Request votes from all jurors, and from the second judge if the jurors are unsure."""
        lost: list[Vote] = []
        answered = yield from self._ask(self.jurors, lost)
        votes = tuple(vote for given in answered for vote in given)
        score = self._count(answered, votes)
        if self.second is not None and self._unsure(score, votes):
            (given,) = yield from self._ask((self.second,), lost)
            score, votes = self._count([given], given), (*votes, *given)
        return structs.replace(score, votes=(*votes, *lost))

    def _ask(
        self, jurors: Sequence[Juror], lost: list[Vote]
    ) -> Generator[list[SampleRequest], Sequence[Vote], list[list[Vote]]]:
        """Return the votes of each juror; `lost` gets those that were asked for once more."""
        answered: list[list[Vote]] = [[] for _ in jurors]
        while due := [
            SampleRequest(juror, juror.first_sample + number)
            for juror, given in zip(jurors, answered, strict=True)
            for number in self._due(juror, given)
        ]:
            votes = yield due
            if self.criterion.early_stop:
                votes = yield from _valid(due, votes, lost)
            for request, vote in zip(due, votes, strict=True):
                answered[request.juror.place - jurors[0].place].append(vote)
        return answered

    def _due(self, juror: Juror, given: Sequence[Vote]) -> range:
        """Return the samples to request next: all, or the fewest that could decide the majority."""
        asked = len(given)
        if not self.criterion.early_stop:
            return range(asked, juror.samples)
        passes = sum(vote.status is Status.PASSED for vote in given)
        fails = sum(vote.status is Status.FAILED for vote in given)
        if passes + fails < asked:
            return range(0)  # one sample without a verdict leaves the turn without one
        missing = min(juror.samples // 2 + 1 - passes, (juror.samples + 1) // 2 - fails)
        return range(asked, asked + max(missing, 0))

    def _count(self, answered: Sequence[Sequence[Vote]], votes: Sequence[Vote]) -> TurnScore:
        for status in (Status.ERROR, Status.NOT_EVALUATED):
            for vote in votes:
                # One sample without a verdict could have changed the result, so the turn has no
                # score.
                if vote.status is status:
                    return TurnScore(status, reason=vote.reason, votes=tuple(votes))
        chosen = [self.choose(given, self.threshold) for given in answered]
        one = chosen[0]
        if len(chosen) > 1:
            one = majority(chosen, self.threshold)
            agreeing = sum(vote.status is one.status for vote in chosen)
            one = replace(one, reason=f"{agreeing} of {len(chosen)} judges agree: {one.reason}")
        return TurnScore(
            one.status, one.score, one.reason, one.value, one.rubric_scores, tuple(votes)
        )

    def _unsure(self, score: TurnScore, votes: Sequence[Vote]) -> bool:
        cascade = self.criterion.cascade
        if cascade is None or score.status is Status.NOT_EVALUATED:
            return False
        if score.score is None or len({vote.status for vote in votes}) > 1:
            return True
        if abs(score.score - self.threshold) < cascade.margin:
            return True
        confidences = [row.confidence for row in score.rubric_scores]
        return cascade.min_confidence > 0 and any(
            one is None or one < cascade.min_confidence for one in confidences
        )


def _valid(
    due: Sequence[SampleRequest], votes: Sequence[Vote], lost: list[Vote]
) -> Generator[list[SampleRequest], Sequence[Vote], list[Vote]]:
    """Return the votes, with invalid answers asked for once more.

    If turns stop early, those on which samples differ need more of them.  If each invalid answer cost a turn
    its score, it would be these turns that are missing from the rates.
    """
    is_lost = [
        vote.status is Status.ERROR and vote.reason.startswith(JudgeInvalid.__name__)
        for vote in votes
    ]
    if not any(is_lost):
        return [*votes]
    lost += [
        replace(vote, sample=PREPARATORY, status=Status.NOT_EVALUATED)
        for vote in compress(votes, is_lost)
    ]
    again = iter((yield [*compress(due, is_lost)]))
    return [next(again) if one else vote for vote, one in zip(votes, is_lost, strict=True)]
