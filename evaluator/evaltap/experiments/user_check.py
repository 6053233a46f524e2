"""Check a simulated user: did it play its plan, give it away, invent facts, loop, or leave too early?

A bad user makes a conversation invalid, not the agent wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.scoring.contract.context import JudgeProvider, Services, Status, TurnScore
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas.data import CaseData
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.formats.case import ConversationScenario

LOOP: Final = 3
"""So many equal messages in a row, to replies that differ, are a loop."""
_RUBRICS: Final = {
    "plan": "Every message of the user serves the goal of the plan and keeps to its limits.",
    "leak": "No message of the user speaks of a plan, a test, instructions or a stop signal.",
    "facts": "The user states no fact about itself or its case that neither the plan nor the assistant gave.",
    "end": "When the conversation ended, the plan's goal was reached, or had turned out to be out of reach.",
}
"""What a judge is asked about a conversation, by id; `end` only if the user ended it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user said, and the reply."""

    said: str
    reply: str


def obvious_fault(scenario: ConversationScenario, exchanges: Sequence[Exchange]) -> str:
    """Return a fault that needs no judge; empty without one."""
    signal = scenario.stop_signal.strip().casefold()
    for number, one in enumerate(exchanges, 1):
        if signal and signal in one.said.casefold():
            return f"it said the stop signal within message {number}"
        last = exchanges[max(0, number - LOOP) : number]
        replies = {each.reply for each in last[:-1]}
        if len(last) == LOOP and len({each.said for each in last}) == 1 and len(replies) > 1:
            return f"it said the same in {LOOP} messages, up to message {number}"
    return ""


class UserCheck:
    """Asks the judge of EVALTAP_JUDGE_MODEL about finished conversations; may be used by several threads."""

    def __init__(self, judges: JudgeProvider) -> None:
        self._services = Services(judge=judges)

    def fault(
        self, scenario: ConversationScenario, exchanges: Sequence[Exchange], *, left: bool
    ) -> tuple[str, float]:
        """Return what the user did wrong, empty for nothing, and what asking has cost in USD.

        `left`: the user ended the conversation.
        """
        obvious = obvious_fault(scenario, exchanges)
        if obvious or not exchanges:
            return obvious, 0.0
        asked = _RUBRICS if left else {name: _RUBRICS[name] for name in _RUBRICS if name != "end"}
        rubrics = [{"id": name, "content": {"text": text}} for name, text in asked.items()]
        metric = {
            "metricName": "llm_rubric_response",
            "threshold": 1.0,
            "criterion": {"llmJudge": {"rubrics": rubrics}},
        }
        found = CaseScorer(metrics_of([metric]), services=self._services).score(
            _as_case(scenario, exchanges)
        )
        outcome = found.metrics[0]
        turns = outcome.turns
        usd = sum(map(_usd, turns))
        if outcome.status is Status.PASSED:
            return "", usd
        if outcome.status is not Status.FAILED:
            return f"no verdict: {outcome.reason}", usd
        failed = [one for turn in turns for one in turn.rubric_scores if not one.score]
        return "; ".join(f"{one.id}: {one.reason}" for one in failed) or outcome.reason, usd


def _usd(turn: TurnScore) -> float:
    return sum(vote.cost_usd or 0.0 for vote in (*turn.votes, *turn.beforehand))


def _as_case(scenario: ConversationScenario, exchanges: Sequence[Exchange]) -> CaseData:
    """Return the conversation as an answer to the plan, which a judge can grade."""
    conversation = "\n".join(f"user: {one.said}\nassistant: {one.reply}" for one in exchanges)
    turn = {
        "userContent": {
            "role": "user",
            "content": "Play a user with this plan, in a conversation with an assistant:\n"
            + scenario.conversation_plan,
        },
        "finalResponse": {"role": "assistant", "content": conversation},
    }
    return {"evalId": "user", "evalMode": "trace", "sessionInput": {}, "actualConversation": [turn]}
