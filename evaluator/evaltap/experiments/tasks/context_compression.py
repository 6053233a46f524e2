"""`context-compression`: how much of a growing conversation survives when it is summed up.

A row has `messages` (`role`, `content`) and `facts` that must survive: texts, or `{"text", "at"}` where `at`
is after how many messages the fact is known.  Each checkpoint is a turn: the agent sums up all messages up
to it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.experiments.tasks.base import ColumnTask, TaskOptions
from evaltap.schemas.data import CaseData, Json

NAME: Final = "context-compression"
_TASK: Final = """\
Sum up this conversation so that the work can go on from the summary alone. Keep names, numbers and \
what is still to be done.

"""


def task() -> ColumnTask:
    return ColumnTask(NAME, ("messages", "facts"), format_row)


def format_row(row: Mapping[str, Json], options: TaskOptions) -> CaseData:
    """Return a case with a turn for each checkpoint; raise ValueError for a row of another form."""
    messages, facts = _messages(row["messages"]), _facts(row["facts"])
    points = row.get("checkpoints") or options.checkpoints or [len(messages)]
    if not isinstance(points, Sequence) or any(points.count(one) > 1 for one in points):
        raise ValueError(f"checkpoints is {points!r:.80}; expected a list of different numbers")
    turns = []
    for point in points:
        if not isinstance(point, int) or not 1 <= point <= len(messages):
            raise ValueError(
                f"checkpoint {point} is not one of its messages (1 to {len(messages)})"
            )
        known = [text for text, at in facts if at <= point]
        turns.append(
            {
                "invocationId": f"checkpoint-{point}",
                "userContent": {"role": "user", "content": _TASK + "\n".join(messages[:point])},
                "state": {"facts": known},
            }
        )
    return {"conversation": turns}


def _messages(given: Json) -> list[str]:
    if not isinstance(given, list):
        raise ValueError(f"messages is {type(given).__name__}; expected a list")
    lines = []
    for number, one in enumerate(given, 1):
        content = one.get("content") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(content, str):
            raise ValueError(f"message {number} has no text in content")
        lines.append(f"{one.get('role') or 'user'}: {content}")
    return lines


def _facts(given: Json) -> Sequence[tuple[str, int]]:
    found = []
    for one in given if isinstance(given, list) else []:
        text, at = (one.get("text"), one.get("at", 0)) if isinstance(one, dict) else (one, 0)
        if not isinstance(text, str) or not isinstance(at, int):
            raise ValueError(f"{one!r:.80} is no fact; expected a text, or text and at")
        found.append((text, at))
    if not found:
        raise ValueError("facts is not a list of texts")
    return found
