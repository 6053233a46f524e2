"""Cases as users have them in Python: paths, data frames, lists of dicts or of cases."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb

from evaltap.evaluator.cases.datasets.case_files import as_case_files
from evaltap.evaluator.cases.datasets.cases import dataset_cases
from evaltap.evaluator.cases.datasets.columns import parse_columns
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import EvalCase

Cases: TypeAlias = str | Path | Sequence[str | Path | EvalCase | Mapping[str, Any]] | object
"""Files, eval cases, rows of a table as dicts, or a data frame of pandas, polars or Arrow."""
_OF_CASES: Final = ("conversation", "actualConversation", "conversationScenario")


@contextmanager
def case_files(cases: Cases, columns: Mapping[str, str]) -> Iterator[list[Path]]:
    """Yield files of eval cases; `columns` maps fields of a case to columns of a table.

    Raises InputError for what is none of `Cases`, and for a row that makes no case.
    """
    pairs = parse_columns([f"{field}={column}" for field, column in columns.items()])
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        paths = _paths(cases)
        if paths is None:
            # The file name becomes the name of the eval set.
            paths = [Path(folder) / "cases.jsonl"]
            rows = _rows(cases)
            _write(paths[0], rows)
            if not all(any(key in row for key in _OF_CASES) for row in rows):
                _write(paths[0], list(dataset_cases(paths, pairs)))
        with as_case_files(paths, pairs) as files:
            if files.bad_lines:
                raise InputError("\n".join(line.message for line in files.bad_lines[:5]))
            yield files.paths


def _paths(cases: Cases) -> list[Path] | None:
    """Return the given files; None if anything else is given."""
    given = [cases] if isinstance(cases, str | Path) else cases
    if not isinstance(given, list | tuple) or not given:
        return None
    paths = [Path(one) for one in given if isinstance(one, str | Path)]
    return paths if len(paths) == len(given) else None


def _rows(cases: Cases) -> list[CaseData]:
    if isinstance(cases, list | tuple):
        if not cases:
            raise InputError("cases: an empty list; expected at least one case")
        return [_row(one, place) for place, one in enumerate(cases)]
    with duckdb.connect() as connection:
        try:
            connection.register("frame", cases)
        except (duckdb.Error, TypeError):
            raise InputError(
                f"cases: found {type(cases).__name__}; expected paths, a data frame, or a list of eval"
                " cases or of rows"
            ) from None
        found = connection.execute("FROM frame")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _row(one: object, place: int) -> CaseData:
    if isinstance(one, EvalCase):
        return one.model_dump(by_alias=True)
    if isinstance(one, Mapping):
        return dict(one)
    raise InputError(
        f"cases[{place}]: found {type(one).__name__}; expected an eval case or a row as a dict"
    )


def _write(path: Path, rows: Sequence[CaseData]) -> None:
    path.write_text(
        "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows), "utf-8"
    )
