"""Files of eval cases for commands that read these: data sets as such, and copies with changed cases."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.references import JoinCount, References
from evaltap.schemas.data import CaseData, json_bytes
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.content import is_json_lines, iter_case_lines
from evaltap.schemas.files.documents import iter_cases, read_case

SUFFIXES: Final = frozenset({".arrow", ".csv", ".parquet", ".yaml", ".yml"})
"""Extensions that are always data sets; JSON files may be either."""


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
    # With the readers of all formats, which files of cases do not need.
    from evaltap.evaluator.cases.datasets.cases import convert_dataset

    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        made = CaseFiles([], [])
        for number, path in enumerate(paths):
            if _is_dataset(path):
                # The file name becomes the name of the eval set.
                to = Path(folder) / str(number) / f"{path.resolve().stem}.jsonl"
                made.bad_lines.extend(convert_dataset(path, columns, to))
                path = to
            made.paths.append(path)
        yield made


def _is_dataset(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix.lower() in SUFFIXES and path.is_file()
    signs = ("dataset_dict.json", "state.json", "*.parquet", "*/*.parquet", "data/*.jsonl")
    return any(next(path.glob(sign), None) is not None for sign in signs)


@contextmanager
def changed_copies(
    paths: Sequence[Path], change: Callable[[Path, CaseData], CaseData]
) -> Iterator[CaseFiles]:
    """Yield temporary copies of the files, with modified cases, and the lines that are not cases.

    The copies preserve the name of a file's eval set.
    """
    made = CaseFiles([], [])
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        for number, path in enumerate(paths):
            copy = Path(folder) / str(number) / f"{path.name.removesuffix(path.suffix)}.jsonl"
            copy.parent.mkdir()
            with copy.open("wb") as file:
                for case in _cases(path, made.bad_lines):
                    file.write(json_bytes(change(path, case)) + b"\n")
            made.paths.append(copy)
        yield made


def _cases(path: Path, bad_lines: list[BadLine]) -> Iterator[CaseData]:
    if not is_json_lines(path):
        yield from iter_cases(path)
        return
    for number, line in iter_case_lines(path):
        try:
            yield read_case(line, path=str(path), place=f"line {number}")
        except FormatError as error:
            bad_lines.append(BadLine(str(path), number - 1, str(error), line))


@contextmanager
def joined_files(
    paths: Sequence[Path], references: References
) -> Iterator[tuple[CaseFiles, JoinCount]]:
    """Yield temporary copies of the files with the matching reference in each case, and their number."""
    count = JoinCount()

    def join(_: Path, case: CaseData) -> CaseData:
        count.add(references.attach(case), case)
        # Recorded, so a missing reference does not become a placeholder, and its number of turns is free.
        case.setdefault("source", {})
        return case

    with changed_copies(paths, join) as made:
        yield made, count
