"""Score batches of cases as rows: one case after the other, or many at once if they wait for judges."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.cases.origin import NamedCase, is_sampled, traffic_weight
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.evaluators.catalogue import described
from evaltap.evaluator.scoring.judges.settings import criteria_of
from evaltap.evaluator.scoring.results.rows import (
    CuratedCaseRow,
    JudgedTurn,
    ScoreRow,
    ScoreRows,
    TurnScoreRow,
    add_vote_rows,
)
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer, KnownScores
from evaltap.evaluator.scoring.waiting import Together
from evaltap.schemas.data import CaseData
from evaltap.schemas.formats.metric import EvalMetric

BATCH_SECONDS: Final = 1.0
"""Judged cases are slow and cost money: rows are stored every second, so that a killed run loses little."""
CASES_AHEAD: Final = 2
"""Cases per thread: one running, one queued."""
WOKEN_FOR: Final = 8
"""Results are collected once one in this many of the running cases is done."""
Known: TypeAlias = Callable[[CaseIdentity], KnownScores]
Observer: TypeAlias = Callable[[CaseIdentity, CaseData, CaseScore], None]
Progress: TypeAlias = Callable[[int], None]
"""Called with the number of cases scored so far."""


def add_rows(
    rows: ScoreRows,
    identity: CaseIdentity,
    case: Mapping[str, Any],
    score: CaseScore,
    indexes: Sequence[int],
) -> None:
    """Add the rows of a scored case; `indexes` are the run's indexes of the scorer's metrics."""
    app, eval_set, eval_id, revision, turn_revisions = identity
    rows.case_count += 1
    rows.sampled += is_sampled(case)
    if (weight := traffic_weight(case)) is not None:
        rows.curated.append(
            CuratedCaseRow(app_name=app, eval_set_id=eval_set, eval_id=eval_id, weight=weight)
        )
    if not score.metrics:
        rows.scores += _unpaired(identity, case, score, indexes)
        return
    if score.placeholders:
        rows.without_reference += 1
    ids, stored = score.turn_ids, {*score.stored}
    revisions = turn_revisions or (1,) * len(ids)
    keys = ids if turn_revisions else [f"{place}:{name}" for place, name in enumerate(ids)]
    add_score, add_turn_score = rows.scores.append, rows.turn_scores.append
    for index, outcome in zip(indexes, score.metrics, strict=True):
        add_score(
            ScoreRow(
                app, eval_set, eval_id, revision, index,
                outcome.score, outcome.status._value_, outcome.reason, len(ids)
            )
        )  # fmt: skip
        for place, turn in enumerate(outcome.turns):
            if place in stored:
                continue
            name, turn_revision = ids[place], revisions[place]
            add_turn_score(
                TurnScoreRow(
                    app, eval_set, eval_id, keys[place], name, place, turn_revision, index,
                    turn.score, turn.status._value_, turn.reason
                )
            )  # fmt: skip
            if turn.votes or turn.beforehand:
                judged = JudgedTurn(
                    app_name=app, eval_set_id=eval_set, eval_id=eval_id, invocation_id=name,
                    turn_revision=turn_revision, metric_name=outcome.name
                )  # fmt: skip
                add_vote_rows(rows, judged, turn)


def _unpaired(
    identity: CaseIdentity, case: Mapping[str, Any], score: CaseScore, indexes: Sequence[int]
) -> Iterator[ScoreRow]:
    """Yield the rows of a case whose turns could not be paired: each metric gets the reason."""
    app, eval_set, eval_id, revision, _ = identity
    status = Status.CRASHED if score.status is Status.CRASHED else Status.ERROR
    count = len(case.get("actualConversation") or case.get("conversation") or ())
    for index in indexes:
        yield ScoreRow(
            app, eval_set, eval_id, revision, index,
            None, status.value, score.error_message, count
        )  # fmt: skip


def compares(metric: EvalMetric) -> bool:
    """Return whether a metric compares with a reference."""
    return any(one.tool_trajectory or one.final_response for one in criteria_of(metric))


def needs_expected(metric: EvalMetric) -> bool:
    """Return whether a metric has nothing to say of a turn without an expected one."""
    trajectory = metric.criterion.trajectory if metric.criterion else None
    if trajectory is not None and (trajectory.references or trajectory.optimal_steps is not None):
        return False
    evaluator = metric.evaluator_name or metric.metric_name
    return compares(metric) or any(
        one.name == evaluator and one.group == "expected" for one in described()
    )


def score_cases(
    scorer: CaseScorer, cases: Iterable[NamedCase], indexes: Sequence[int]
) -> ScoreRows:
    """Score named cases one after the other."""
    rows = ScoreRows()
    for identity, case in cases:
        add_rows(rows, identity, case, scorer.score(case), indexes)
    return rows


def score_batches(
    scorer: CaseScorer,
    cases: Iterable[NamedCase],
    indexes: Sequence[int],
    size: int,
    threads: int = 1,
    observe: Observer | None = None,
    known: Known | None = None,
) -> Iterator[ScoreRows]:
    """Yield the rows of named cases in order, in batches of `size` cases or of a second.

    Several `threads` suit cases that wait for judges.  `known` returns earlier scores of a case's turns, by
    the index of the scorer's metric.
    """
    rows, until = ScoreRows(), time.monotonic() + BATCH_SECONDS
    for identity, case, score in _scored(scorer, cases, threads, known):
        add_rows(rows, identity, case, score, indexes)
        if observe is not None:
            observe(identity, dict(case), score)
        if rows.case_count >= size or time.monotonic() >= until:
            yield rows
            rows, until = ScoreRows(), time.monotonic() + BATCH_SECONDS
    if rows.case_count:
        yield rows


def _scored(
    scorer: CaseScorer, cases: Iterable[NamedCase], threads: int, known: Known | None
) -> Iterator[tuple[CaseIdentity, Mapping[str, Any], CaseScore]]:
    if threads == 1:
        # One case after the other, while it is in the processor's cache.
        for identity, case in cases:
            yield identity, case, scorer.score(case, known(identity) if known else None)
        return
    named = iter(cases)
    waiting: deque[tuple[CaseIdentity, Mapping[str, Any], Future[CaseScore]]] = deque()
    with Together[CaseScore](threads, "evaltap-judge") as runner:
        try:
            while True:
                for identity, case in islice(named, threads * CASES_AHEAD - len(waiting)):
                    work = partial(scorer.score, case, known(identity) if known else None)
                    waiting.append((identity, case, runner.submit(work)))
                if not waiting:
                    return
                # Waking up for each case would cost as much as a request.
                for place in (min(len(waiting) - 1, threads // WOKEN_FOR), 0):
                    waiting[place][2].exception()
                while waiting and waiting[0][2].done():
                    identity, case, score = waiting.popleft()
                    yield identity, case, score.result()
        finally:
            # The rest is not needed any more: cases that have not started need not be paid for.
            for _, _, score in waiting:
                score.cancel()
