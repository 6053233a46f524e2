"""The rows of scored cases on their way to the store: what differs from case to case."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from evaltap.evaluator.columns import ColumnKinds, Columns, to_columns

# Rows are plain tuples: millions of them are built, sent between processes as columns.
ScoreRow: TypeAlias = tuple[str, str, str, int, int, float | None, str, str, int]
"""One metric of one case: app name, eval set id, eval id, revision, metric index, score, status,
reason, turn count."""

SCORE_COLUMNS: Final[ColumnKinds] = {
    "app_name": "text", "eval_set_id": "text", "eval_id": "text", "revision": "whole",
    "metric_index": "whole", "score": "real", "status": "text", "reason": "text",
    "turn_count": "whole",
}  # fmt: skip

TurnScoreRow: TypeAlias = tuple[str, str, str, str, str, int, int, int, float | None, str, str]
"""One metric of one turn: app name, eval set id, eval id, turn key (names the turn within its case),
invocation id, turn index, turn revision, metric index, score, status, reason."""

TURN_SCORE_COLUMNS: Final[ColumnKinds] = {
    "app_name": "text", "eval_set_id": "text", "eval_id": "text", "turn_key": "text",
    "invocation_id": "text", "turn_index": "whole", "turn_revision": "whole",
    "metric_index": "whole", "score": "real", "status": "text", "reason": "text",
}  # fmt: skip

VoteRow: TypeAlias = tuple[
    str, str, str, str, int, str, int, str, float | None, str, str | None, bool | None, float | None
]
"""One sample of a judge on one rubric: app name, eval set id, eval id, invocation id, turn revision,
metric name, sample index, rubric id, score, reason, evidence, whether it was found, confidence."""

CallRow: TypeAlias = tuple[
    str, str, str, str, int, str, int, str, str | None, str, float | None, str | None, bool,
    int | None, int | None, float | None, float | None, float | None,
]  # fmt: skip
"""One answer of a judge: app name, eval set id, eval id, invocation id, turn revision, metric name,
sample index, judge, model, status, score, reason, cached, input tokens, output tokens, cost and saved
cost in USD, latency in ms."""


@dataclass(slots=True)
class ScoreRows:
    """The rows of a batch of scored cases."""

    scores: list[ScoreRow] = field(default_factory=list)
    turn_scores: list[TurnScoreRow] = field(default_factory=list)
    votes: list[VoteRow] = field(default_factory=list)
    calls: list[CallRow] = field(default_factory=list)
    case_count: int = 0
    without_reference: int = 0
    """Cases with one conversation only, so that nothing is expected of them."""

    def extend(self, other: "ScoreRows") -> None:
        """Add the rows of another batch."""
        self.scores.extend(other.scores)
        self.turn_scores.extend(other.turn_scores)
        self.votes.extend(other.votes)
        self.calls.extend(other.calls)
        self.case_count += other.case_count
        self.without_reference += other.without_reference

    def packed(self) -> "PackedRows":
        """Return the rows as they are sent and stored."""
        return PackedRows(
            to_columns(SCORE_COLUMNS, self.scores),
            to_columns(TURN_SCORE_COLUMNS, self.turn_scores),
            self.votes,
            self.calls,
            self.case_count,
            self.without_reference,
        )


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The rows of a batch; scores as columns, and what judges said, of which there is less, as rows."""

    scores: Columns
    turn_scores: Columns
    votes: Sequence[VoteRow] = ()
    calls: Sequence[CallRow] = ()
    case_count: int = 0
    without_reference: int = 0
