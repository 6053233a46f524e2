"""Draft the plan of a simulated user: from a recorded conversation, or from a scenario of DeepEval."""

from collections.abc import Sequence
from typing import Final

from evaltap.schemas.data import CaseData

STOP_SIGNAL: Final = "###STOP###"
_TURNS_EACH: Final = 2
"""Turns that a simulated user may need for what a person said in one."""
_MORE_TURNS: Final = 2


def drafted_scenario(said: Sequence[str], so_far: Sequence[str] = ()) -> CaseData:
    """Return a `conversationScenario` of a user who wants what a person said, message by message.

    With `so_far`, the person's messages that have been said already, the conversation goes on after them;
    otherwise it begins with the person's first message.  The draft invents nothing; people may edit it.
    """
    plan = ["You want what a person wanted who wrote the messages below."]
    if so_far:
        plan += ["So far you have written:", *_listed(so_far), "You still want what these say:"]
    plan += _listed(said)
    plan += [
        "Write one message at a time, in your own words, and only what fits the reply.",
        "Leave out what the assistant has settled. Know no fact that the messages do not state.",
    ]
    return {
        "startingPrompt": "" if so_far else said[0],
        "conversationPlan": "\n".join(plan),
        "stopSignal": STOP_SIGNAL,
        "maxAllowedInvocations": _TURNS_EACH * len(said) + _MORE_TURNS,
    }


def described_scenario(scenario: str, user: str, outcome: str) -> CaseData:
    """Return a `conversationScenario` of a situation, who the user is, and what is to come of it."""
    parts = (("", scenario), ("You are this user: ", user), ("You are done once: ", outcome))
    plan = "\n".join(f"{name}{text}" for name, text in parts if text)
    return {"conversationPlan": plan, "stopSignal": STOP_SIGNAL}


def _listed(messages: Sequence[str]) -> list[str]:
    return [f"- {' '.join(one.split())}" for one in messages]
