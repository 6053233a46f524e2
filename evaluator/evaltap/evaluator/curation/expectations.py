"""The expectations of curated cases: none, the approved behaviour, or that a failure does not recur."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from evaltap.evaluator.cases.evalsets.content import plain_turn, plain_turns, user_texts
from evaltap.evaluator.cases.pairing import nothing_expected, placeholder
from evaltap.evaluator.cases.scenarios import drafted_scenario
from evaltap.evaluator.cases.turn import absent_state, run_failure
from evaltap.evaluator.curation.sessions import LandedTurn, Session
from evaltap.evaluator.scoring.batch import needs_expected
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer
from evaltap.schemas.data import CaseData
from evaltap.schemas.formats.metric import EvalMetric

_BAD: Final = frozenset({"failed", "crashed"})
_MEASURED: Final = (
    "status",
    "error",
    "latencyMs",
    "costUsd",
    "inputTokens",
    "outputTokens",
    "models",
    "usage",
)
_NOT_EXPECTED: Final = frozenset({"capture", "telemetry", "state"})

ScorerOf = Callable[[Sequence[EvalMetric]], CaseScorer]


class ExcludedTurnError(Exception):
    """Report why a turn does not become a case; the message is for users."""


def as_inputs(case: CaseData) -> CaseData:
    """Return a case with only the user's input, for runs of a live agent."""
    turns = case.get("actualConversation") or []
    kept = ("invocationId", "contextMessages", "userContent")
    made = {key: value for key, value in case.items() if key != "actualConversation"}
    made["evalMode"] = ""
    made["conversation"] = [{key: turn[key] for key in kept if turn.get(key)} for turn in turns]
    return made


def expecting_itself(case: CaseData, *, keeps_actual: bool) -> CaseData:
    """Return a recorded case that expects what it recorded; for a run of a live agent, or as it was."""
    turns = case["actualConversation"]
    expected = {**case, "conversation": [_reference(one) for one in plain_turns(turns)]}
    if keeps_actual:
        return expected
    del expected["actualConversation"]
    return expected | {"evalMode": ""}


def as_scenario(case: CaseData) -> CaseData:
    """Return a case with the draft of a plan for a simulated user, who wants what the recorded one wanted.

    Raises ExcludedTurnError if a user's message is not text.
    """
    said = user_texts(case)
    if not all(said):
        raise ExcludedTurnError("a user's message is empty, or was not recorded as text")
    made = {key: value for key, value in case.items() if key != "actualConversation"}
    return made | {"evalMode": "", "conversationScenario": drafted_scenario(said)}


@dataclass(frozen=True, slots=True)
class Good:
    """The criteria by which a turn becomes a reference."""

    metrics: Collection[str]
    """The turn passed one of these."""
    approved: Collection[str]
    """The ids of turns that a reviewer approved."""
    rejected: Collection[str]
    """The ids of turns that a reviewer rejected, whatever metrics say."""
    corrected: Mapping[str, CaseData]
    """Turns as edited by reviewers, by their ids."""

    def holds(self, turn: LandedTurn) -> bool:
        """Return whether the behaviour in a turn may be expected."""
        if turn.invocation_id in self.rejected:
            return False
        return turn.invocation_id in self.approved or any(
            metric in self.metrics and status == "passed" for metric, _, status in turn.verdicts
        )


def as_expected(
    case: CaseData, session: Session, invocation_ids: Collection[str], good: Good
) -> CaseData:
    """Return a case that expects the recorded behaviour, or the reviewers' edited version.

    Raises ExcludedTurnError unless all of the given turns are good and their runs ended; nothing is expected
    of other turns that are not good.
    """
    of_case = session.turns[-len(case["actualConversation"]) :]
    conversation: list[CaseData] = []
    for turn, plain in zip(of_case, case["actualConversation"], strict=True):
        if turn.invocation_id in good.corrected:
            edited = plain_turn(good.corrected[turn.invocation_id], plain["invocationId"])
            before = {key: plain[key] for key in ("contextMessages",) if key in plain}
            conversation.append(edited | before)
        elif (failure := run_failure(turn.actual)) and turn.invocation_id in invocation_ids:
            raise ExcludedTurnError(
                f"{failure}, so no agent could be expected to do the same; edit the turn in the review"
            )
        elif good.holds(turn) and failure is None:
            conversation.append(_reference(plain))
        elif turn.invocation_id in invocation_ids:
            raise ExcludedTurnError(
                "neither approved by a reviewer nor passed by"
                f" {', '.join(good.metrics) or 'a metric (name some with --metric)'}"
            )
        else:
            conversation.append(nothing_expected(plain))
    made = {key: value for key, value in case.items() if key != "actualConversation"}
    return made | {"evalMode": "", "conversation": conversation}


def _reference(turn: CaseData) -> CaseData:
    """Return what a turn expects of the next run; of calls or an answer that were not recorded, nothing."""
    made = {key: value for key, value in turn.items() if key not in _NOT_EXPECTED}
    marks = {
        name: state for name in ("finalResponse", "tools") if (state := absent_state(turn, name))
    }
    return made | {"capture": marks} if marks else made


def _reads_telemetry(metric: EvalMetric) -> bool:
    evaluator = metric.evaluator_name or metric.metric_name
    return bool(metric.criterion and metric.criterion.operations) or evaluator == "run_succeeded"


def _measured(turn: CaseData) -> CaseData:
    """Return what limits of time, cost and tokens read of a turn's telemetry."""
    telemetry = turn.get("telemetry") or {}
    return {name: telemetry[name] for name in _MEASURED if name in telemetry}


def failed_metrics(session: Session, invocation_ids: Collection[str]) -> dict[str, str]:
    """Return names and digests of the metrics under which some turns failed."""
    return {
        metric: digest
        for turn in session.turns
        if turn.invocation_id in invocation_ids
        for metric, digest, status in turn.verdicts
        if status in _BAD
    }


class Unproven(NamedTuple):
    """The reason why a regression case proves nothing."""

    why: str
    undecided: bool = False
    """Whether a metric had no verdict, for example because its judge was unavailable, so that a retry may
    help."""


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """Makes regression cases, and proves each before it is written."""

    metrics: Mapping[str, EvalMetric]
    """The metrics that failed, by digest."""
    scorer_of: ScorerOf
    fixed: Sequence[CaseData] = ()
    """Recordings of a version without the failures."""

    def _failed(self, session: Session, invocation_ids: Collection[str]) -> list[EvalMetric]:
        digests = failed_metrics(session, invocation_ids)
        metrics = [self.metrics[digest] for digest in digests.values() if digest in self.metrics]
        if not metrics:
            raise ExcludedTurnError("no metric failed it, so no metric would catch the failure")
        return metrics

    def case(
        self,
        case: CaseData,
        session: Session,
        invocation_ids: Collection[str],
        corrected: Mapping[str, CaseData],
    ) -> tuple[CaseData, list[EvalMetric]]:
        """Return the case and its failed metrics; raise ExcludedTurnError without any, or a reference.

        `corrected` are the expected turns that reviewers wrote, by invocation id.
        """
        metrics = self._failed(session, invocation_ids)
        of_case = session.turns[-len(case["actualConversation"]) :]
        expected: list[CaseData | None] = []
        for turn, plain in zip(of_case, case["actualConversation"], strict=True):
            is_chosen = turn.invocation_id in invocation_ids
            wanted = _expected(turn, plain, corrected, is_chosen=is_chosen)
            # Of a reference that was given beside the recording, the store has not kept the question.
            expected.append(wanted and {**wanted, **(placeholder(plain) or {})})
        comparing = [metric.metric_name for metric in metrics if needs_expected(metric)]
        if not any(expected):
            metrics = [one for one in metrics if one.metric_name not in comparing]
        if not metrics:
            raise ExcludedTurnError(
                f"{', '.join(comparing)} compared it with a reference that no longer exists, and nobody"
                " corrected the answer"
            )
        # Where nothing is expected, the failure would be: a run without expected turns expects what was
        # recorded, and other metrics of the set compare with it.
        conversation = [
            nothing_expected(plain) if one is None else one
            for one, plain in zip(expected, case["actualConversation"], strict=True)
        ]
        recorded = case["actualConversation"]
        if any(map(_reads_telemetry, metrics)):
            recorded = [
                {**plain, "telemetry": _measured(turn.actual)}
                for turn, plain in zip(of_case, recorded, strict=True)
            ]
        return {**case, "conversation": conversation, "actualConversation": recorded}, metrics

    def unproven(self, case: CaseData, metrics: Sequence[EvalMetric]) -> Unproven | None:
        """Return why a case proves nothing; None if the recording fails and the case can be passed."""
        scorer = self.scorer_of(metrics)
        recorded = scorer.score(case)
        if why := _undecided(recorded):
            return Unproven(f"undecided: the recorded turns have no verdict ({why})", True)
        if recorded.status is Status.FAILED and recorded.score is None:
            return Unproven(f"cannot be scored: {recorded.error_message}")
        if recorded.status is Status.PASSED:
            return Unproven("not caught: the recorded turns passed under its own metrics")
        ideal = [turn for turn in case.get("conversation") or () if turn]
        of_content = [one for one in metrics if not _reads_telemetry(one)]
        if of_content and any(turn != nothing_expected(turn) for turn in ideal):
            found = self.scorer_of(of_content).score({**case, "actualConversation": ideal})
            if why := _undecided(found):
                return Unproven(f"undecided: the expected answer has no verdict ({why})", True)
            if found.status is not Status.PASSED:
                return Unproven(f"unsatisfiable: the expected answer itself {found.status.value}")
        return self._not_fixed(case, scorer)

    def _not_fixed(self, case: CaseData, scorer: CaseScorer) -> Unproven | None:
        if not self.fixed:
            return None
        texts = user_texts({"actualConversation": case["actualConversation"]})
        for one in self.fixed:
            turns = one.get("actualConversation") or []
            same = one.get("evalId") == case["evalId"]
            if same or user_texts({"actualConversation": turns}) == texts:
                found = scorer.score({**case, "actualConversation": turns})
                if found.status is Status.PASSED:
                    return None
                if why := _undecided(found):
                    return Unproven(f"undecided: the fixed recording has no verdict ({why})", True)
                return Unproven(f"not fixed: the fixed recording {found.status.value}")
        return Unproven("not fixed: the fixed recordings do not contain this session")


def _expected(
    turn: LandedTurn, plain: CaseData, corrected: Mapping[str, CaseData], *, is_chosen: bool
) -> CaseData | None:
    """Return what is expected of a turn by a reviewer, by a user's correction, or by a reference."""
    name = plain["invocationId"]
    if turn.invocation_id in corrected:
        return plain_turn(corrected[turn.invocation_id], name)
    wanted = plain_turn(turn.expected, name) if turn.expected else None
    return _corrected(wanted, plain, turn.correction) if is_chosen and turn.correction else wanted


def _corrected(wanted: CaseData | None, recorded: CaseData, answer: str) -> CaseData:
    """Return an expected turn with a corrected answer; the calls of a turn that failed are not expected."""
    wanted = wanted or {**(placeholder(recorded) or {}), "capture": {"tools": "missing"}}
    return wanted | {"finalResponse": {"role": "assistant", "content": answer}}


def _undecided(found: CaseScore) -> str:
    """Return why a case has no verdict; empty if it has one or is itself broken."""
    lacking = [one for one in found.metrics if one.status in (Status.NOT_EVALUATED, Status.ERROR)]
    return "" if found.score is not None or not lacking else lacking[0].reason
