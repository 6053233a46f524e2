"""`summary`: how good the summary of a text is.

A row has `text` and `summary` (a good one, to compare with).
"""

from collections.abc import Mapping
from typing import Any, Final

from evaltap.experiments.tasks.base import ColumnTask, TaskOptions, text_of
from evaltap.schemas.data import CaseData, Json

NAME: Final = "summary"
_TASK: Final = "Sum up this text in a few sentences. Add nothing.\n\n"


def task() -> ColumnTask:
    golden = {"input": "text", "expected_output": "summary", "expectedOutput": "summary"}
    return ColumnTask(NAME, ("text", "summary"), format_row, golden)


def format_row(row: Mapping[str, Json], options: TaskOptions) -> CaseData:
    """Return a case with one turn; raise ValueError for a row of another form."""
    turn: dict[str, Any] = {
        "invocationId": "summary",
        "userContent": {"role": "user", "content": _TASK + text_of(row, "text")},
        "finalResponse": {"role": "assistant", "content": text_of(row, "summary")},
    }
    return {"conversation": [turn]}
