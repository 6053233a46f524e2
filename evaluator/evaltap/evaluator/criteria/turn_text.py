"""Which text of a turn is looked at: the final response or the user's message."""

from typing import Final

from evaltap.evaluator.context import Turn
from evaltap.evaluator.errors import MetricError

TARGETS: Final = ("finalResponse", "userContent")


def check_target(given: str, part: str) -> str:
    """Return the field that is meant; raise MetricError when there is no such text."""
    target = given or TARGETS[0]
    if target not in TARGETS:
        raise MetricError(f"{part}.target is '{target}'; expected one of {', '.join(TARGETS)}")
    return target


def read_text(turn: Turn, target: str) -> tuple[str, str | None]:
    """Return the text and None, or an empty text and which evidence is not there."""
    reason = turn.lacks(target)
    text = turn.final_text if target == TARGETS[0] else turn.user_text
    if reason is None and text is None:
        reason = f"{target} is absent"
    return ("", reason) if reason is not None or text is None else (text, None)
