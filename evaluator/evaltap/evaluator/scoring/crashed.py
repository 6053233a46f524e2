"""Cases whose run failed, never ended or was cut off have crashed, whatever their metrics' scores."""

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import structs

from evaltap.evaluator.cases.turn import Case, Turn, run_failure
from evaltap.evaluator.scoring.contract.aggregation import joined_reasons
from evaltap.evaluator.scoring.contract.context import MetricScore, Status, TurnScore

RunFailures: TypeAlias = Sequence[str | None]
"""Why the run of each turn failed; None for a turn whose run succeeded."""
Outcome = TypeVar("Outcome", bound=MetricScore)

_NO_ANSWER: Final = "no final answer to score"


def run_failures(turns: Sequence[Turn]) -> RunFailures | None:
    """Return why the runs of a case failed, by turn; None if none failed."""
    for turn in turns:
        if turn.run_failed:
            return [run_failure(one.data) for one in turns]
    return None


def recorded_failure(case: Case) -> str | None:
    """Return why runs of a case failed whose turns cannot be paired; None if none is known to have failed."""
    try:
        turns = case.get("actualConversation") or case.get("conversation") or ()
        failures = [run_failure(turn or {}) for turn in turns]
    except (TypeError, AttributeError, KeyError, ValueError):
        return None  # malformed, as the case's own error says
    return crash_reason(failures) or None


def crash_reason(failures: RunFailures) -> str:
    """Return the reasons for failed runs as one text."""
    return joined_reasons([failure or "" for failure in failures])


def no_answers(failures: RunFailures) -> list[TurnScore | None]:
    """Return the scores of failed turns under a metric that reads answers; None for the other turns."""
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
    """Return the outcome of a metric for a case with failed runs; `turns` is empty without rows."""
    rows = tuple(
        turn if failure is None else _crashed_turn(turn, failure)
        for turn, failure in zip(turns, failures, strict=False)
        if turn is not None
    )
    reason = (
        joined_reasons([row.reason for row in rows])
        if rows
        else _with_failure(crash_reason(failures), found.reason)
    )
    return structs.replace(found, status=Status.CRASHED, score=score, reason=reason, turns=rows)


def _crashed_turn(turn: TurnScore, failure: str) -> TurnScore:
    return structs.replace(turn, status=Status.CRASHED, reason=_with_failure(failure, turn.reason))


def _with_failure(failure: str, reason: str) -> str:
    """Return a metric's reason after the failure, unless the reason is about the run itself."""
    if reason.startswith("the run "):
        return reason
    return f"{failure}; {reason}" if reason else failure
