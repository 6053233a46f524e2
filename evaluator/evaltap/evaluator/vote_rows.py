"""The rows of a judged turn: what each sample said, and what each answer cost."""

import math
from typing import Final, TypeAlias

from evaltap.evaluator.context import Status, TurnScore, Vote
from evaltap.evaluator.rows import CallRow, ScoreRows, VoteRow

TurnKey: TypeAlias = tuple[str, str, str, str, int, str]
"""App name, eval set id, eval id, invocation id, turn revision, metric name."""

_MOST_TOKENS: Final = 10**15


def add_vote_rows(rows: ScoreRows, key: TurnKey, turn: TurnScore) -> None:
    """Add the votes of a turn, and a call for each answer behind them."""
    for vote in turn.votes:
        rows.votes.extend(_said(key, vote))
        rows.calls.append(_call(key, vote))
    for vote in turn.beforehand:
        rows.calls.append(_call(key, vote))


def _said(key: TurnKey, vote: Vote) -> list[VoteRow]:
    """Return a row for each rubric; one for the whole where there are none."""
    if not vote.rubric_scores:
        return [(*key, vote.sample, "", vote.score, vote.reason, None, None, None)]
    return [
        (*key, vote.sample, row.id, row.score, row.reason, row.evidence or None,
         row.evidence_found, row.confidence)
        for row in vote.rubric_scores
    ]  # fmt: skip


def _call(key: TurnKey, vote: Vote) -> CallRow:
    latency = vote.latency.total_seconds() * 1000 if vote.latency is not None else None
    reason = vote.reason if vote.status in (Status.ERROR, Status.NOT_EVALUATED) else ""
    return (
        *key, vote.sample, vote.judge, vote.model or None, vote.status.value, vote.score,
        reason or None, vote.cached, _count(vote.input_tokens), _count(vote.output_tokens),
        _money(vote.cost_usd), _money(vote.saved_usd), latency,
    )  # fmt: skip


def _count(tokens: int | None) -> int | None:
    # A judge of somebody else may say anything; what cannot be a count is not one.
    return tokens if tokens is not None and 0 <= tokens <= _MOST_TOKENS else None


def _money(usd: float | None) -> float | None:
    return usd if usd is not None and math.isfinite(usd) else None
