"""Read the details of a report's cells: scores of turns, votes and answers of judges."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import cut
from evaltap.evaluator.reports.model import CaseReport, JudgeCall, Limits, TurnCell, Usage, VoteCell
from evaltap.evaluator.reports.scope import ReportedScores
from evaltap.evaluator.reports.usage import TurnUse, usage_of
from evaltap.evaluator.reports.wording import RubricReason, readable, with_rubrics
from evaltap.evaluator.store.database import sql

CellKey: TypeAlias = tuple[str, str, str, str]
"""The key of a case, and the name of a metric."""
Row = TypeVar("Row")


class JudgeCalls:
    """The judges' answers for the scores of a report: in full for some cases, totals for all."""

    def __init__(
        self, scored: ReportedScores, detailed: Collection[CaseKey], limits: Limits
    ) -> None:
        self.by_cell: dict[CellKey, list[JudgeCall]] = {}
        uses: list[TurnUse] = []
        cached = 0
        for row in scored.rows(sql(__name__, "report_judge_calls")):
            app, eval_set, eval_id, metric_name, invocation, sample, judge, model, status, *rest = (
                row
            )
            reason, from_cache, tokens_in, tokens_out, cost, latency = rest
            key = app, eval_set, eval_id
            if status != "not_evaluated" or sample < 0:  # otherwise, the judge was not called
                uses.append(TurnUse(key, cost, tokens_in, tokens_out, latency))
                cached += from_cache
            if key in detailed:
                call = JudgeCall(
                    invocation, sample + 1, judge, model, status, cut(reason, limits.text),
                    from_cache, tokens_in, tokens_out, cost, latency,
                )  # fmt: skip
                self.by_cell.setdefault((*key, metric_name), []).append(call)
        self.usage: Usage | None = replace(usage_of(uses), cached=cached) if uses else None


def with_details(
    scored: ReportedScores, cases: Iterable[CaseReport], calls: JudgeCalls, limits: Limits
) -> Iterable[CaseReport]:
    """Yield the cases with the details of their cells."""
    turns: dict[CellKey, list[TurnCell]] = {}
    for row in scored.rows(sql(__name__, "report_turn_scores")):
        app, eval_set, eval_id, metric_name, index, invocation, status, score, reason = row
        turn = TurnCell(index + 1, invocation, status, score, readable(reason))
        turns.setdefault((app, eval_set, eval_id, metric_name), []).append(turn)
    votes: dict[CellKey, list[VoteCell]] = {}
    verdicts: dict[CellKey, list[RubricReason]] = {}
    for row in scored.rows(sql(__name__, "report_votes")):
        app, eval_set, eval_id, metric_name, invocation, sample, rubric, score, reason, *more = row
        evidence, found, confidence = more
        vote = VoteCell(
            invocation, sample + 1, rubric, score, cut(reason, limits.text),
            cut(evidence, limits.text), found, confidence,
        )  # fmt: skip
        at = app, eval_set, eval_id, metric_name
        votes.setdefault(at, []).append(vote)
        verdicts.setdefault(at, []).append(
            RubricReason((invocation, sample), rubric, score, reason)
        )
    for case in cases:
        cells = []
        for cell in case.cells:
            at = case.app_name, case.eval_set_id, case.eval_id, cell.metric_name
            cells.append(
                replace(
                    cell,
                    reason=cut(with_rubrics(cell.reason, _at(verdicts, at)), limits.text),
                    turns=tuple(
                        replace(
                            one,
                            reason=cut(with_rubrics(one.reason, _at(verdicts, at)), limits.text),
                        )
                        for one in _at(turns, at)[: limits.turn_scores]
                    ),
                    votes=_at(votes, at),
                    calls=_at(calls.by_cell, at),
                )
            )
        yield replace(case, cells=tuple(cells), detailed=True)


def _at(rows: Mapping[CellKey, list[Row]], key: CellKey) -> tuple[Row, ...]:
    return tuple(rows.get(key, ()))
