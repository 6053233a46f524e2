"""A case report directly from a score, without a store, for callers that score and show a single case."""

from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.cases.text import cut
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.model import (
    CaseReport,
    Cell,
    Limits,
    TurnCell,
    VoteCell,
    case_status,
)
from evaltap.evaluator.reports.usage import total
from evaltap.evaluator.reports.wording import readable
from evaltap.evaluator.scoring.scorer import CaseScore, MetricOutcome
from evaltap.schemas.data import CaseData


def case_report(case: CaseData, score: CaseScore) -> CaseReport:
    """Return the report of a case that was just scored.

    A case whose turns could not be paired has no cells; its status is error, and the note contains the
    reason.
    """
    limits = Limits()
    cells = tuple(_cell(outcome, case, limits) for outcome in score.metrics)
    comparison = Comparison([outcome.metric for outcome in score.metrics])
    evidence, note = evidence_of(case, comparison, limits)
    latencies = [turn.latency_ms for turn in evidence if turn.latency_ms is not None]
    costs = [turn.cost_usd for turn in evidence if turn.cost_usd is not None]
    named = case_identity(case, "")
    return CaseReport(
        named.app_name,
        named.eval_set_id,
        named.eval_id,
        named.revision,
        case_status(cells) if cells else "error",
        cells,
        detailed=True,
        evidence=evidence,
        evidence_note=note or ("" if cells else score.error_message),
        cost_usd=total(costs),
        unpriced=len(evidence) - len(costs),
        latency_ms=total(latencies),
    )


def _cell(outcome: MetricOutcome, case: CaseData, limits: Limits) -> Cell:
    recorded = case.get("actualConversation") or case.get("conversation") or ()
    ids = [(turn or {}).get("invocationId") or "" for turn in recorded]
    turns = list(zip(ids, outcome.turns, strict=False))[: limits.turn_scores]
    return Cell(
        outcome.name,
        outcome.status.value,
        outcome.score,
        outcome.threshold,
        cut(readable(outcome.reason), limits.text),
        tuple(
            TurnCell(
                place, name, turn.status.value, turn.score, cut(readable(turn.reason), limits.text)
            )
            for place, (name, turn) in enumerate(turns, start=1)
        ),
        tuple(
            VoteCell(
                name, vote.sample + 1, rubric.id, rubric.score, cut(rubric.reason, limits.text)
            )
            for name, turn in turns
            for vote in turn.votes
            for rubric in vote.rubric_scores
        ),
    )
