"""Join files of recorded cases with the expected turns of a file of references."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.references import JoinCount, References
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import is_json_lines, iter_case_lines, iter_cases, read_case
from evaltap.schemas.formats.case import CaseData


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """Copies of case files, the lines of them that hold no case, and what was joined."""

    paths: list[Path]
    bad_lines: list[BadLine]
    count: JoinCount


@contextmanager
def joined_files(paths: Sequence[Path], references: References) -> Iterator[JoinedFiles]:
    """Yield copies of the files in which each case holds the reference that was found for it.

    They are there while they are needed.
    """
    joined = JoinedFiles([], [], JoinCount())
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        for number, path in enumerate(paths):
            # The name is that of the eval set.
            copy = Path(folder) / str(number) / f"{path.name.removesuffix(path.suffix)}.jsonl"
            copy.parent.mkdir()
            with copy.open("wb") as file:
                for case in _cases(path, joined.bad_lines):
                    found = references.attach(case)
                    joined.count.add(found)
                    if found in ("none", "ambiguous") and not case.get("conversation"):
                        # Who gives references wants no placeholder in the place of one that is missing.
                        case.setdefault("source", {})
                    file.write(orjson.dumps(case) + b"\n")
            joined.paths.append(copy)
        yield joined


def _cases(path: Path, bad_lines: list[BadLine]) -> Iterator[CaseData]:
    if not is_json_lines(path):
        yield from iter_cases(path)
        return
    for number, line in iter_case_lines(path):
        try:
            yield read_case(line, path=str(path), place=f"line {number}")
        except FormatError as error:
            bad_lines.append(BadLine(str(path), number - 1, str(error), line))
