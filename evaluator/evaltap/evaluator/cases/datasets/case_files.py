"""Data sets as files of eval cases, for commands that read these."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.identity import BadLine

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
