"""Aggregate samples to a turn, turns to a metric, and metrics to a case.

The rules are those of tRPC-Agent-Go, with one difference: a turn that could not be scored has no score
instead of a zero, and retains its own status.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import compress
from math import lcm

from evaltap.evaluator.scoring.contract.context import (
    MetricScore,
    RubricVerdict,
    Status,
    TurnScore,
    Vote,
)


def status_of(score: float, threshold: float) -> Status:
    """Return passed if the score reaches the threshold; the rule is the same for turns and cases."""
    return Status.PASSED if score >= threshold else Status.FAILED


def mean(values: Sequence[float]) -> float:
    """Return the mean, adding from left to right as tRPC-Agent-Go does; there must be at least one value.

    From Python 3.12 on, `sum` compensates for rounding, so that verdicts at a threshold would depend on it.
    """
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def weighted_mean(scores: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean by weights, which may not all be 0.

    It is rounded once, and weights and the mean count as the decimals that they are written as, so that the
    mean reaches a threshold that it equals: 0.7 and 0.1 of 0.7, 0.1 and 0.2 are 0.8.
    """
    parts = _whole_parts(*weights)
    if all(score in (0, 1) for score in scores):
        return sum(compress(parts, scores)) / sum(parts)
    weighed = zip(scores, parts, strict=True)
    return as_written(float(sum(Fraction(score) * part for score, part in weighed) / sum(parts)))


def as_written(score: float) -> float:
    """Return the decimal that a mean is but for the rounding of its parts: 0.1 and 0.7 make 0.4."""
    decimal = round(score, 9)
    return decimal if abs(decimal - score) < 1e-15 else score


@lru_cache
def _whole_parts(*weights: float) -> Sequence[int]:
    """Return whole numbers in the proportion of weights."""
    written = [Fraction(str(weight)) for weight in weights]
    unit = lcm(*(one.denominator for one in written))
    return [int(one * unit) for one in written]


def majority(votes: Sequence[Vote], threshold: float) -> Vote:
    """Return the vote that represents all samples of a turn.

    Votes without a score are ignored.  If strictly more votes pass than fail, it is the first passing vote,
    otherwise (also on a tie) the first failing one.  If no vote has a score, it is the first vote.  Raises
    ValueError if there are no votes.
    """
    if not votes:
        raise ValueError("no votes to count; expected at least one sample")
    passing = [vote for vote in votes if vote.score is not None and vote.score >= threshold]
    failing = [vote for vote in votes if vote.score is not None and vote.score < threshold]
    if len(passing) > len(failing):
        return passing[0]
    return failing[0] if failing else votes[0]


def mean_vote(votes: Sequence[Vote], threshold: float) -> Vote:
    """Return a vote with the mean score of the scored samples and the means of their rubrics.

    Its reason joins the reasons of the scored samples.  If no sample has a score, the first vote is returned.
    Raises ValueError if there are no votes.
    """
    if not votes:
        raise ValueError("no votes to average; expected at least one sample")
    if not (scored := [vote for vote in votes if vote.score is not None]):
        return votes[0]
    score = mean([vote.score or 0.0 for vote in scored])
    rows: dict[str, list[RubricVerdict]] = {}
    for vote in scored:
        for row in vote.rubric_scores:
            rows.setdefault(row.id, []).append(row)
    means = tuple(
        RubricVerdict(name, mean([row.score for row in same]), same[0].reason)
        for name, same in rows.items()
    )
    reason = "\n".join(dict.fromkeys(vote.reason for vote in scored))
    return Vote(scored[0].sample, status_of(score, threshold), score, reason, means, value=score)


def average(turns: tuple[TurnScore, ...], threshold: float) -> MetricScore:
    """Return the metric's score: the mean over the turns that were evaluated.

    An error in one turn makes the whole metric an error without a score, because a mean over the rest would
    hide it.  If no turn was evaluated, the metric is not evaluated.
    """
    total, scored, failed = 0.0, 0, False
    for turn in turns:
        if turn.score is not None:
            total += turn.score
            scored += 1
        elif turn.status is Status.ERROR:
            failed = True
    reason = joined_reasons([turn.reason for turn in turns])
    if failed:
        return MetricScore(Status.ERROR, None, reason, turns)
    if not scored:
        return MetricScore(Status.NOT_EVALUATED, None, reason or "no turns to evaluate", turns)
    score = total / scored
    return MetricScore(Status.PASSED if score >= threshold else Status.FAILED, score, reason, turns)


def joined_reasons(reasons: Sequence[str]) -> str:
    """Join the reasons of turns; each distinct reason is listed once, with the numbers of its turns.

    A reason that all turns share is returned without turn numbers.  Example: `turns 1, 3: no call; turn 2:
    two calls`.
    """
    distinct = {*reasons}
    if len(distinct) == 1:
        return reasons[0]
    if len(distinct) == len(reasons):
        return "; ".join([f"turn {n}: {one}" for n, one in enumerate(reasons, start=1) if one])
    turns: dict[str, list[int]] = {}
    for number, reason in enumerate(reasons, start=1):
        if reason:
            turns.setdefault(reason, []).append(number)
    parts = []
    for reason, numbers in turns.items():
        if len(numbers) == 1:
            parts.append(f"turn {numbers[0]}: {reason}")
        else:
            parts.append(f"turns {', '.join(map(str, numbers))}: {reason}")
    return "; ".join(parts)


def summarize(statuses: Iterable[Status]) -> Status:
    """Return the status of a case: crashed over failed over passed; an error counts as failed."""
    found = {*statuses}
    if Status.CRASHED in found:
        return Status.CRASHED
    if Status.FAILED in found or Status.ERROR in found:
        return Status.FAILED
    return Status.PASSED if Status.PASSED in found else Status.NOT_EVALUATED
