"""Cases of data sets: one after the other, or as files for a command that reads eval cases."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from evaltap.evaluator.datasets.columns import Columns, row_case
from evaltap.evaluator.datasets.tables import read_rows
from evaltap.schemas.case import CaseData
from evaltap.schemas.errors import InputError

SUFFIXES: Final = frozenset({".arrow", ".csv", ".parquet"})
"""Files that can be nothing but a data set; JSON may be either."""


def dataset_cases(
    paths: Sequence[Path], columns: Columns, *, split: str = "", app_name: str = ""
) -> Iterator[CaseData]:
    """Yield the eval cases of data sets, each with an id of its own.

    Raises InputError or FormatError for what is no data set, and for a row that makes no case.
    """
    seen: dict[str, int] = {}
    number = 0
    for path in paths:
        for place, row in read_rows(path, split=split):
            number += 1
            case = row_case(
                row, columns, number=number, app_name=app_name, path=str(path), place=place
            )
            name = case["evalId"]
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                # A name that several rows share (a source file, a topic) is no id by itself.
                case["evalId"] = f"{name}-{seen[name]}"
            yield case


def write_case_lines(path: Path, cases: Iterable[CaseData]) -> int:
    """Write cases as JSON Lines, one after the other, and return their number; no case is no file.

    Raises InputError when there is none, or the file cannot be written.
    """
    temporary, count = path.with_name(path.name + ".tmp"), 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for case in cases:
                file.write(json.dumps(case, ensure_ascii=False).encode() + b"\n")
                count += 1
        if not count:
            raise InputError("no row; expected at least one")
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        temporary.unlink(missing_ok=True)
    return count


@contextmanager
def as_case_files(paths: Sequence[Path], columns: Columns) -> Iterator[list[Path]]:
    """Yield the paths with a file of eval cases in the place of each data set, while they are needed."""
    if not any(map(_is_dataset, paths)):
        yield [*paths]
        return
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        made = []
        for number, path in enumerate(paths):
            if _is_dataset(path):
                cases = dataset_cases([path], columns)
                # The name is that of the eval set.
                path = Path(folder) / str(number) / f"{path.resolve().stem}.jsonl"
                write_case_lines(path, cases)
            made.append(path)
        yield made


def _is_dataset(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix.lower() in SUFFIXES and path.is_file()
    signs = ("dataset_dict.json", "state.json", "*.parquet", "*/*.parquet")
    return any(next(path.glob(sign), None) is not None for sign in signs)
