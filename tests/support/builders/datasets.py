"""Data sets of other tools, read for tests."""

from pathlib import Path
from typing import Any

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.datasets.rows import row_case
from evaltap.evaluator.cases.datasets.tables import read_rows

DATA = Path(__file__).parents[2] / "data/datasets"


def converted(row: dict[str, Any], **columns: str) -> dict[str, Any]:
    """Return the case of a row."""
    return row_case(row, Columns(columns), number=1, app_name="app", path="f", place="line 1")


def turns(case: dict[str, Any], key: str = "actualConversation") -> list[dict[str, Any]]:
    """Return the turns of a case, without empty ones."""
    return [turn for turn in case.get(key) or [] if turn]


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a table, without their places."""
    return [row for _, row in read_rows(path, **options)]
