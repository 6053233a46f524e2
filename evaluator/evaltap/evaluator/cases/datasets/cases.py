"""Convert data sets to cases: as an iterator, or as a file of eval cases."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.datasets.rows import ColumnCheck, case_or_bad_line, row_case
from evaltap.evaluator.cases.datasets.tables import read_rows
from evaltap.evaluator.cases.identity import BadLine
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.adk_older import is_older_eval_file
from evaltap.schemas.files.content import read_bytes
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.files.private import private_file


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
    if not (others := [path for path in paths if not _is_adk_eval_file(path)]):
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


def convert_dataset(path: Path, columns: Columns, to: Path) -> list[BadLine]:
    """Write the eval cases of a data set as JSON Lines, each with a unique id; return the invalid rows.

    Raises InputError if it has no rows, or if the file cannot be written.
    """
    bad_lines: list[BadLine] = []
    cases = _with_own_ids(_cases_and_bad_lines(path, columns, bad_lines))
    write_case_lines(to, cases, bad_lines)
    return bad_lines


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
