"""Convert data sets to cases: as an iterator, or as files for commands that read eval cases."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.cases.datasets.columns import (
    ColumnCheck,
    Columns,
    case_or_bad_line,
    row_case,
)
from evaltap.evaluator.cases.datasets.tables import read_rows
from evaltap.evaluator.cases.identity import BadLine
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.adk_older import is_older_eval_file
from evaltap.schemas.files.content import read_bytes
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.files.private import private_file

SUFFIXES: Final = frozenset({".arrow", ".csv", ".parquet", ".yaml", ".yml"})
"""Extensions that are always data sets; JSON files may be either."""


def dataset_cases(
    paths: Sequence[Path], columns: Columns, *, split: str = "", app_name: str = ""
) -> Iterator[CaseData]:
    """Yield the eval cases of data sets, each with a unique id.

    Raises InputError or FormatError for a file that is not a data set, and for a row that is not a case.
    """
    yield from _with_own_ids(_cases(paths, columns, split, app_name))


def _cases(
    paths: Sequence[Path], columns: Columns, split: str, app_name: str
) -> Iterator[CaseData]:
    for path in filter(_is_adk_eval_file, paths):
        yield from iter_cases(path)
    others = [path for path in paths if not _is_adk_eval_file(path)]
    if not others:
        return
    rows = ((path, *row) for path in others for row in read_rows(path, split=split))
    check = ColumnCheck(columns)
    for number, (path, place, row) in enumerate(rows, start=1):
        check.see(row)
        try:
            case = row_case(
                row, columns, number=number, app_name=app_name, path=str(path), place=place
            )
        except FormatError:
            check.require()  # a missing column explains more than the row that lacks it
            raise
        yield case
    check.require()


def _is_adk_eval_file(path: Path) -> bool:
    """Return whether a file is an eval file in ADK's older form, a list of the turns of one conversation."""
    if path.suffix != ".json":
        return False
    try:
        if not path.is_file():
            return False
        return is_older_eval_file(canonical.loads(read_bytes(path)))
    except (FormatError, PermissionError):
        return False


def _cases_and_bad_lines(
    path: Path, columns: Columns, bad_lines: list[BadLine]
) -> Iterator[CaseData]:
    """Yield the eval cases of a data set; invalid rows are appended to `bad_lines`."""
    check = ColumnCheck(columns)
    for number, (place, row) in enumerate(read_rows(path)):
        check.see(row)
        found = case_or_bad_line(row, columns, number=number, path=str(path), place=place)
        if isinstance(found, BadLine):
            bad_lines.append(found)
        else:
            yield found
    check.require()


def _with_own_ids(cases: Iterable[CaseData]) -> Iterator[CaseData]:
    seen: Counter[tuple[str, str]] = Counter()
    for case in cases:
        name, run = case["evalId"], (case.get("source") or {}).get("run") or ""
        given = name
        while (name, run) in seen:
            # A name that several rows share (a source file, a topic) is not an id.
            seen[given, run] += 1
            name = f"{given}-{seen[given, run]}"
        seen[name, run] = 1
        case["evalId"] = name
        yield case


def write_case_lines(
    path: Path, cases: Iterable[CaseData], bad_lines: Sequence[BadLine] = ()
) -> int:
    """Write cases as JSON Lines and return their number.

    Raises InputError if there are neither cases nor bad lines, or if the file cannot be written.
    """
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with private_file(path) as file:
            for case in cases:
                file.write(json.dumps(case, ensure_ascii=False).encode() + b"\n")
                count += 1
            if not count and not bad_lines:
                raise InputError("no rows found; expected at least one")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return count


class CaseFiles(NamedTuple):
    """Files of eval cases, and the invalid rows of the data sets from which they were created."""

    paths: list[Path]
    bad_lines: list[BadLine]


@contextmanager
def as_case_files(paths: Sequence[Path], columns: Columns) -> Iterator[CaseFiles]:
    """Yield the paths, with a temporary file of eval cases in place of each data set."""
    if not any(map(_is_dataset, paths)):
        yield CaseFiles([*paths], [])
        return
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        made = CaseFiles([], [])
        for number, path in enumerate(paths):
            if _is_dataset(path):
                bad_lines: list[BadLine] = []
                cases = _with_own_ids(_cases_and_bad_lines(path, columns, bad_lines))
                # The file name becomes the name of the eval set.
                path = Path(folder) / str(number) / f"{path.resolve().stem}.jsonl"
                write_case_lines(path, cases, bad_lines)
                made.bad_lines.extend(bad_lines)
            made.paths.append(path)
        yield made


def _is_dataset(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix.lower() in SUFFIXES and path.is_file()
    signs = ("dataset_dict.json", "state.json", "*.parquet", "*/*.parquet", "data/*.jsonl")
    return any(next(path.glob(sign), None) is not None for sign in signs)
