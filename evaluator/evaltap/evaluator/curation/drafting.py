"""Draft a regression case of one recorded case, with a proof that it catches the failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.pairing import nothing_expected, placeholder
from evaltap.evaluator.curation.curate import Redact, metrics_that_failed, sealed
from evaltap.evaluator.curation.expectations import ExcludedTurnError, RegressionCheck, ScorerOf
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.sessions import (
    Session,
    provenance,
    read_sessions,
    recorded_case,
    with_kept_references,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.formats.metric import EvalMetric

_CALLS: Final[Json] = {"metricName": "trajectory_exact", "threshold": 1}
_ANSWER: Final[Json] = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {
        "finalResponse": {"text": {"matchStrategy": "contains", "caseInsensitive": True}}
    },
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """What should have happened in a turn."""

    turn: int = 0
    """From 1; 0 is the last one."""
    calls: Sequence[CaseData] | None = None
    """The calls, with names and arguments; None expects nothing of them."""
    answer: str | None = None
    """What the answer must contain; None expects nothing of it."""

    def __bool__(self) -> bool:
        return self.calls is not None or self.answer is not None


@dataclass(frozen=True, slots=True)
class Draft:
    """A regression case that its metrics fail as recorded, and that can be passed."""

    case: CaseData
    metrics: Sequence[EvalMetric]


def draft(
    store: StoreReader,
    key: CaseKey,
    scorer_of: ScorerOf,
    redact: Redact,
    *,
    expectation: Expectation,
    fixed: CaseKey | None = None,
    metrics: Mapping[str, EvalMetric],
) -> Draft:
    """Return a regression case of a landed case; `fixed` is a recording without the failure.

    Without an expectation, the case keeps the metrics that failed it, and what they expected.  `metrics` are
    those of the set by name, which take the place of new ones.  Raises InputError if the case has not landed,
    and if it proves nothing: its recording passes, or the expected or the fixed one does not.
    """
    session = _session(store, key)
    check = RegressionCheck(
        metrics_that_failed(store, [session]),
        scorer_of,
        () if fixed is None else (recorded_case(_session(store, fixed), "session"),),
    )
    turns = [turn.invocation_id for turn in session.turns]
    case = recorded_case(session, "session")
    if not 0 <= expectation.turn <= len(turns):
        raise InputError(
            f"turn {expectation.turn}: the case has {len(turns)}; expected 1 to {len(turns)}"
        )
    try:
        case, used = (
            _expecting(case, expectation)
            if expectation
            else check.case(case, with_kept_references(store, {key: session})[key], turns, {})
        )
    except ExcludedTurnError as error:
        raise InputError(
            f"{key[2]}: {error}; say what should have happened (the calls, or the answer)"
        ) from None
    used = [metrics.get(one.metric_name, one) for one in used]
    if problem := check.unproven(case, used):
        raise InputError(f"{key[2]}: proves nothing: {problem.why}")
    source = provenance(session, turns, recipe="draft", labels=["draft"], weight=0, members=1)
    return Draft(sealed(case, source, redact), used)


def _session(store: StoreReader, key: CaseKey) -> Session:
    found = read_sessions(store, [TurnKey(*key, "")])
    if key not in found:
        raise InputError(f"{key[2]}: none of its turns has landed")
    return found[key]


def _expecting(case: CaseData, given: Expectation) -> tuple[CaseData, list[EvalMetric]]:
    """Return the case with the expected turn, and the metrics that compare with it."""
    actual = case["actualConversation"]
    place = (given.turn or len(actual)) - 1
    expected: CaseData = dict(placeholder(actual[place]) or {})
    gaps: dict[str, str] = {}
    metrics: list[Json] = []
    if given.calls is None:
        gaps["tools"] = "missing"
    else:
        expected["tools"] = [
            {"id": str(number), **one} for number, one in enumerate(given.calls, 1)
        ]
        metrics.append(_CALLS)
    if given.answer is None:
        gaps["finalResponse"] = "missing"
    else:
        expected["finalResponse"] = {"role": "assistant", "content": given.answer}
        metrics.append(_ANSWER)
    if gaps:
        expected["capture"] = gaps
    conversation = [nothing_expected(one) for one in actual]
    conversation[place] = expected
    return {**case, "conversation": conversation}, metrics_of(metrics)
