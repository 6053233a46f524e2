"""The rows of scored cases before they are stored: only what differs between cases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, structs

from evaltap.evaluator.scoring.contract.context import Status, TurnScore, Vote
from evaltap.evaluator.store.arrow import Columns, kinds_of, to_columns

# Structs, since there are millions of rows.  Their fields are the columns, in the order of the table.


class ScoreRow(Struct, frozen=True, gc=False):
    """One metric of one case, as it is staged for `scores`."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int
    metric_index: int
    score: float | None
    status: str
    reason: str
    turn_count: int


class TurnScoreRow(Struct, frozen=True, gc=False):
    """One metric of one turn, as it is staged for `turn_scores`."""

    app_name: str
    eval_set_id: str
    eval_id: str
    turn_key: str
    """The id of the turn within its case."""
    invocation_id: str
    turn_index: int
    turn_revision: int
    metric_index: int
    score: float | None
    status: str
    reason: str


SCORE_COLUMNS: Final = kinds_of(ScoreRow)
TURN_SCORE_COLUMNS: Final = kinds_of(TurnScoreRow)


class JudgedTurn(Struct, kw_only=True):
    """The columns that identify a turn under a metric in the tables of judges."""

    run_id: str = ""
    """Set when the row is written, as is `scored_at`."""
    app_name: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    turn_revision: int
    metric_name: str


class VoteRow(JudgedTurn, kw_only=True):
    """A row of `rubric_votes`: one sample of a judge's verdict on a rubric."""

    sample_index: int
    rubric_id: str = ""
    score: float | None
    reason: str
    scored_at: datetime = datetime.min
    evidence: str | None = None
    evidence_found: bool | None = None
    confidence: float | None = None


class CallRow(JudgedTurn, kw_only=True):
    """A row of `judge_calls`: one answer of a judge."""

    sample_index: int
    judge: str
    model: str | None
    status: str
    score: float | None
    reason: str | None
    cached: bool
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    saved_usd: float | None
    latency_ms: float | None
    scored_at: datetime = datetime.min


class CuratedCaseRow(Struct, kw_only=True):
    """A row of `curated_cases`: how much traffic a scored case represents."""

    run_id: str = ""
    """Set when the row is written, as is `scored_at`."""
    app_name: str
    eval_set_id: str
    eval_id: str
    weight: float
    scored_at: datetime = datetime.min


@dataclass(slots=True)
class ScoreRows:
    scores: list[ScoreRow] = field(default_factory=list)
    turn_scores: list[TurnScoreRow] = field(default_factory=list)
    votes: list[VoteRow] = field(default_factory=list)
    calls: list[CallRow] = field(default_factory=list)
    curated: list[CuratedCaseRow] = field(default_factory=list)
    case_count: int = 0
    without_reference: int = 0
    """Cases that were compared with placeholders because they have no reference."""
    sampled: int = 0
    """Cases that sampling kept with a probability below 1."""

    def extend(self, other: "ScoreRows") -> None:
        """Add the rows of another batch."""
        self.scores.extend(other.scores)
        self.turn_scores.extend(other.turn_scores)
        self.votes.extend(other.votes)
        self.calls.extend(other.calls)
        self.curated.extend(other.curated)
        self.case_count += other.case_count
        self.without_reference += other.without_reference
        self.sampled += other.sampled

    def packed(self) -> "PackedRows":
        """Return the rows in the form in which they are sent and stored."""
        return PackedRows(
            to_columns(SCORE_COLUMNS, self.scores),
            to_columns(TURN_SCORE_COLUMNS, self.turn_scores),
            self.votes,
            self.calls,
            self.case_count,
            self.without_reference,
            self.sampled,
            self.curated,
        )


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The rows of a batch: scores as columns; votes and calls of judges, which are fewer, as rows."""

    scores: Columns
    turn_scores: Columns
    votes: Sequence[VoteRow] = ()
    calls: Sequence[CallRow] = ()
    case_count: int = 0
    without_reference: int = 0
    sampled: int = 0
    curated: Sequence[CuratedCaseRow] = ()


_MOST_TOKENS: Final = 10**15


def add_vote_rows(rows: ScoreRows, judged: JudgedTurn, turn: TurnScore) -> None:
    """Add the votes of a turn, and a call for each answer of a judge."""
    names = structs.asdict(judged)
    for vote in turn.votes:
        if not vote.rubric_scores:
            rows.votes.append(
                VoteRow(**names, sample_index=vote.sample, score=vote.score, reason=vote.reason)
            )
        rows.votes.extend(
            VoteRow(
                **names,
                sample_index=vote.sample,
                rubric_id=row.id,
                score=row.score,
                reason=row.reason,
                evidence=row.evidence or None,
                evidence_found=row.evidence_found,
                confidence=row.confidence,
            )
            for row in vote.rubric_scores
        )
    rows.calls.extend(_call(names, vote) for vote in (*turn.votes, *turn.beforehand))


def _call(names: dict[str, Any], vote: Vote) -> CallRow:  # the fields of a JudgedTurn
    reason = vote.reason if vote.status in (Status.ERROR, Status.NOT_EVALUATED) else ""
    return CallRow(
        **names,
        sample_index=vote.sample,
        judge=vote.judge,
        model=vote.model or None,
        status=vote.status.value,
        score=vote.score,
        reason=reason or None,
        cached=vote.cached,
        input_tokens=_count(vote.input_tokens),
        output_tokens=_count(vote.output_tokens),
        cost_usd=_money(vote.cost_usd),
        saved_usd=_money(vote.saved_usd),
        latency_ms=vote.latency.total_seconds() * 1000 if vote.latency is not None else None,
    )


def _count(tokens: int | None) -> int | None:
    # Third-party judges may return anything; ignore what cannot be a count.
    return tokens if tokens is not None and 0 <= tokens <= _MOST_TOKENS else None


def _money(usd: float | None) -> float | None:
    return usd if usd is not None and math.isfinite(usd) else None
