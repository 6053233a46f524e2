"""Cases with a run that failed, never ended or was cut off: crashed, whatever the metrics say."""

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import structs

from evaltap.evaluator.cases.turn import Case, Turn, run_failure
from evaltap.evaluator.contract.aggregation import joined_reasons
from evaltap.evaluator.contract.context import MetricScore, Status, TurnScore

RunFailures: TypeAlias = Sequence[str | None]
"""Why the run of each turn failed; None for a turn that ended well."""
Outcome = TypeVar("Outcome", bound=MetricScore)

_NO_ANSWER: Final = "no final answer to score"


def run_failures(turns: Sequence[Turn]) -> RunFailures | None:
    """Return why runs of a case failed; None when none of them did."""
    for turn in turns:
        if turn.run_failed:
            return [run_failure(one.data) for one in turns]
    return None


def recorded_failure(case: Case) -> str | None:
    """Return why runs failed of a case whose turns cannot be paired; None when none is known to."""
    try:
        turns = case.get("actualConversation") or case.get("conversation") or ()
        failures = [run_failure(turn or {}) for turn in turns]
    except (TypeError, AttributeError, KeyError, ValueError):
        return None  # it has another shape than an eval case, and its error says so
    return crash_reason(failures) or None


def crash_reason(failures: RunFailures) -> str:
    """Return why the runs of a case failed as one reason."""
    return joined_reasons([failure or "" for failure in failures])


def no_answers(failures: RunFailures) -> list[TurnScore | None]:
    """Return what turns are under a metric that scores answers; None for those that ended well."""
    return [
        None if failure is None else TurnScore(Status.CRASHED, reason=f"{failure}; {_NO_ANSWER}")
        for failure in failures
    ]


def crashed(
    found: Outcome,
    failures: RunFailures,
    turns: Sequence[TurnScore | None],
    score: float | None,
) -> Outcome:
    """Return the outcome of a metric for a case with failed runs; `turns` is empty when it has no rows."""
    rows = tuple(
        turn if failure is None else _crashed_turn(turn, failure)
        for turn, failure in zip(turns, failures, strict=False)
        if turn is not None
    )
    reason = (
        joined_reasons([row.reason for row in rows])
        if rows
        else _told(crash_reason(failures), found.reason)
    )
    return structs.replace(found, status=Status.CRASHED, score=score, reason=reason, turns=rows)


def _crashed_turn(turn: TurnScore, failure: str) -> TurnScore:
    return structs.replace(turn, status=Status.CRASHED, reason=_told(failure, turn.reason))


def _told(failure: str, reason: str) -> str:
    """Return the failure and what the metric says; the metric alone where it tells of the run itself."""
    if reason.startswith("the run "):
        return reason
    return f"{failure}; {reason}" if reason else failure
