"""Join files of recorded cases with the expected turns of a file of references."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evaltap.evaluator.cases.datasets.copies import changed_copies
from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.references import JoinCount, References
from evaltap.schemas.formats.case import CaseData


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """Copies of case files, their lines that are not cases, and the number of joined references."""

    paths: list[Path]
    bad_lines: list[BadLine]
    count: JoinCount


@contextmanager
def joined_files(paths: Sequence[Path], references: References) -> Iterator[JoinedFiles]:
    """Yield temporary copies of the files in which each case contains the matching reference."""
    count = JoinCount()

    def join(_: Path, case: CaseData) -> CaseData:
        count.add(references.attach(case), case)
        # Recorded, so a missing reference does not become a placeholder, and its number of turns is free.
        case.setdefault("source", {})
        return case

    with changed_copies(paths, join) as made:
        yield JoinedFiles(made.paths, made.bad_lines, count)
