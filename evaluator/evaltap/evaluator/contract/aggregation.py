"""From samples to a turn, from turns to a metric, from metrics to a case.

Semantics are tRPC-Agent-Go's, with one difference: what could not be scored has no score instead of
a zero, and keeps its own status.
"""

from collections.abc import Iterable, Sequence

from evaltap.evaluator.contract.context import MetricScore, RubricVerdict, Status, TurnScore, Vote


def status_of(score: float, threshold: float) -> Status:
    """Return passed when the score reaches the threshold; the same rule for turns and cases."""
    return Status.PASSED if score >= threshold else Status.FAILED


def majority(votes: Sequence[Vote], threshold: float) -> Vote:
    """Return the vote that represents all samples of a turn.

    Votes without evaluation are left out.  Strictly more passes than failures choose the first
    passing vote, anything else (a tie, too) the first failing one; with nothing evaluated it is
    the first vote.  Raises ValueError when there are no votes.
    """
    if not votes:
        raise ValueError("no votes to count; expected at least one sample")
    passing = [vote for vote in votes if vote.score is not None and vote.score >= threshold]
    failing = [vote for vote in votes if vote.score is not None and vote.score < threshold]
    if len(passing) > len(failing):
        return passing[0]
    return failing[0] if failing else votes[0]


def mean_vote(votes: Sequence[Vote], threshold: float) -> Vote:
    """Return a vote with the mean score of the samples that have one, and the means of their rows.

    Its reasons are those of all samples; with nothing evaluated it is the first vote.  Raises
    ValueError when there are no votes.
    """
    if not votes:
        raise ValueError("no votes to average; expected at least one sample")
    scored = [vote for vote in votes if vote.score is not None]
    if not scored:
        return votes[0]
    score = sum(vote.score or 0.0 for vote in scored) / len(scored)
    rows: dict[str, list[RubricVerdict]] = {}
    for vote in scored:
        for row in vote.rubric_scores:
            rows.setdefault(row.id, []).append(row)
    means = tuple(
        RubricVerdict(name, sum(row.score for row in same) / len(same), same[0].reason)
        for name, same in rows.items()
    )
    reason = "\n".join(dict.fromkeys(vote.reason for vote in scored))
    return Vote(scored[0].sample, status_of(score, threshold), score, reason, means, value=score)


def average(turns: tuple[TurnScore, ...], threshold: float) -> MetricScore:
    """Return the metric's score: the mean over the turns that were evaluated.

    A turn in error makes the whole metric an error without a score, because a mean over the rest
    would hide it.  No evaluated turn means not evaluated.
    """
    total, scored, failed, reasons = 0.0, 0, False, False
    for turn in turns:
        if turn.reason:
            reasons = True
        if turn.score is not None:
            total += turn.score
            scored += 1
        elif turn.status is Status.ERROR:
            failed = True
    reason = joined_reasons([turn.reason for turn in turns]) if reasons else ""
    if failed:
        return MetricScore(Status.ERROR, None, reason, turns)
    if not scored:
        return MetricScore(Status.NOT_EVALUATED, None, reason or "no turns to evaluate", turns)
    score = total / scored
    return MetricScore(Status.PASSED if score >= threshold else Status.FAILED, score, reason, turns)


def joined_reasons(reasons: Sequence[str]) -> str:
    """Return the reasons of turns as one: each that is given once, with the turns that have it.

    A reason that all turns share needs no turns: `turns 1, 3: no call; turn 2: two calls`.
    """
    turns: dict[str, list[int]] = {}
    for number, reason in enumerate(reasons, start=1):
        if reason:
            turns.setdefault(reason, []).append(number)
    parts = []
    for reason, numbers in turns.items():
        if len(numbers) == len(reasons):
            return reason
        name = (
            f"turn {numbers[0]}" if len(numbers) == 1 else f"turns {', '.join(map(str, numbers))}"
        )
        parts.append(f"{name}: {reason}")
    return "; ".join(parts)


def summarize(statuses: Iterable[Status]) -> Status:
    """Return the status of a case: crashed over failed over passed; an error is a failure."""
    found = {*statuses}
    if Status.CRASHED in found:
        return Status.CRASHED
    if Status.FAILED in found or Status.ERROR in found:
        return Status.FAILED
    return Status.PASSED if Status.PASSED in found else Status.NOT_EVALUATED
