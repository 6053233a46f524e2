"""Select the text of a turn that is scored: the final response or the user's message."""

from typing import Final

from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.schemas.text import did_you_mean_one_of

TARGETS: Final = ("finalResponse", "userContent")


def check_target(given: str, part: str) -> str:
    """Return the field that `given` names; raise MetricError for an unknown one."""
    target = given or TARGETS[0]
    if target not in TARGETS:
        raise MetricError(f"{part}.target is '{target}'; {did_you_mean_one_of(target, TARGETS)}")
    return target


def text_of(turn: Turn, target: str) -> str:
    """Return the text that a target names; empty if it is missing."""
    return (turn.final_text if target == TARGETS[0] else turn.user_text) or ""
