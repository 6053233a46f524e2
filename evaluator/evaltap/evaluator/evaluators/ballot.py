"""Who is asked about a turn, how often, and when it is enough: pure rules over votes.

A ballot is a generator: it yields the samples to ask for next, is sent their votes, and returns what
the turn comes to.  One wave of samples can be asked for at a time; only the next may depend on them.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from evaltap.evaluator.aggregation import majority
from evaltap.evaluator.context import Status, TurnScore, Vote
from evaltap.evaluator.errors import MetricError
from evaltap.schemas.metric import GenerationConfig, LlmJudgeCriterion

SampleAggregator = Callable[[Sequence[Vote], float], Vote]
"""Choose or make the vote that stands for all samples of a turn, by the threshold."""


class Seat(NamedTuple):
    """A judge of a metric: the metric's own, a member of its panel, or the second of its cascade."""

    place: int
    """Its number among the judges of the metric."""
    name: str
    """`judge`, `panel-<n>` or `second`."""
    first_sample: int
    samples: int
    generation: GenerationConfig


class Ask(NamedTuple):
    """One sample to ask one judge for; `number` counts through all judges of the turn."""

    seat: Seat
    number: int


Ballot = Generator[list[Ask], Sequence[Vote], TurnScore]


@dataclass(frozen=True, slots=True)
class BallotRules:
    """How votes become a turn's score.  Raises MetricError when the criterion contradicts itself."""

    criterion: LlmJudgeCriterion
    threshold: float
    choose: SampleAggregator
    seats: tuple[Seat, ...]
    second: Seat | None

    def __post_init__(self) -> None:
        if self.criterion.early_stop and self.choose is not majority:
            raise MetricError("earlyStop: only a majority can be decided early; use majority_vote")
        cascade = self.criterion.cascade
        if cascade is not None and cascade.judge_model is None:
            raise MetricError("cascade.judgeModel is missing; name the judge for what is not sure")
        if cascade is not None and not (
            0 <= cascade.margin <= 1 and 0 <= cascade.min_confidence <= 1
        ):
            raise MetricError("cascade.margin and cascade.minConfidence go from 0 to 1")

    def ballot(self) -> Ballot:
        """Ask all seats, and the second judge when they are not sure."""
        polled = yield from self._poll(self.seats)
        votes = tuple(vote for given in polled for vote in given)
        score = self._count(polled, votes)
        if self.second is None or not self._unsure(score, votes):
            return score
        (given,) = yield from self._poll((self.second,))
        return structs.replace(self._count([given], given), votes=(*votes, *given))

    def _poll(
        self, seats: Sequence[Seat]
    ) -> Generator[list[Ask], Sequence[Vote], list[list[Vote]]]:
        polled: list[list[Vote]] = [[] for _ in seats]
        while due := [
            Ask(seat, seat.first_sample + number)
            for seat, given in zip(seats, polled, strict=True)
            for number in self._due(seat, given)
        ]:
            votes = yield due
            for ask, vote in zip(due, votes, strict=True):
                polled[ask.seat.place - seats[0].place].append(vote)
        return polled

    def _due(self, seat: Seat, given: Sequence[Vote]) -> range:
        """Return the samples to ask next: all, or the fewest that could decide the majority."""
        asked = len(given)
        if not self.criterion.early_stop:
            return range(asked, seat.samples)
        passes = sum(vote.status is Status.PASSED for vote in given)
        fails = sum(vote.status is Status.FAILED for vote in given)
        if passes + fails < asked:
            return range(0)  # a sample without a verdict leaves none to the turn
        missing = min(seat.samples // 2 + 1 - passes, (seat.samples + 1) // 2 - fails)
        return range(asked, asked + max(missing, 0))

    def _count(self, polled: Sequence[Sequence[Vote]], votes: Sequence[Vote]) -> TurnScore:
        for status in (Status.ERROR, Status.NOT_EVALUATED):
            for vote in votes:
                # One sample without a verdict could have turned the result, so there is none.
                if vote.status is status:
                    return TurnScore(status, reason=vote.reason, votes=tuple(votes))
        chosen = [self.choose(given, self.threshold) for given in polled]
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
