"""Votes as they are stored: with the cost of the answer, and with text that is valid UTF-8."""

from dataclasses import replace

from evaltap.evaluator.scoring.contract.context import RubricVerdict, Status, Vote
from evaltap.evaluator.scoring.contract.judge import JudgeReply
from evaltap.evaluator.scoring.evaluators.judged.answers import Verdict


def vote_of(
    reply: JudgeReply,
    number: int,
    status: Status,
    score: float | None,
    reason: str,
    rows: tuple[RubricVerdict, ...] = (),
    value: float | bool | str | None = None,
    judge: str = "judge",
) -> Vote:
    """Return a vote with what its answer cost."""
    return Vote(
        number, status, score, reason, rows, reply.model, reply.input_tokens, reply.output_tokens,
        reply.latency, value, judge, reply.cost_usd, reply.cached, reply.saved_usd,
    )  # fmt: skip


def storable(verdict: Verdict) -> Verdict:
    """Return a verdict whose texts any database takes: half characters (JSON's \\ud800) replaced."""
    score, reason, rows, value = verdict
    if all(row.id.isascii() and row.reason.isascii() for row in rows) and reason.isascii():
        return verdict
    rows = tuple(
        replace(
            row,
            id=_storable(row.id),
            reason=_storable(row.reason),
            evidence=_storable(row.evidence),
        )
        for row in rows
    )
    return Verdict(
        score, _storable(reason), rows, _storable(value) if isinstance(value, str) else value
    )


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
