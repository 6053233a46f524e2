"""Read the cases of files again for a report, because the store contains their scores but not their turns."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from evaltap.evaluator.cases.identity import CaseKey, case_identity, is_sampled
from evaltap.evaluator.reports.usage import TurnUse, turn_uses
from evaltap.evaluator.reports.words import CaseWords, words_of
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import (
    eval_set_name,
    is_json_lines,
    iter_case_lines,
    iter_cases,
    read_case,
)
from evaltap.schemas.formats.case import CaseData


class FileCases:
    """The data of a report from files: cases shown in full, words and usage of all scored cases.

    `judged` are cases that a gate has stored; they precede those of the files.  If only some cases are
    wanted, reading stops after the last of them.  Raises InputError for an unreadable file; lines that are
    not cases are counted.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        wanted: Collection[CaseKey],
        scored: Collection[CaseKey],
        judged: Iterable[tuple[CaseKey, CaseData]] = (),
    ) -> None:
        self.cases: dict[CaseKey, CaseData] = {}
        self.uses: list[TurnUse] = []
        self.words: dict[CaseKey, CaseWords] = {}
        self.bad_lines = 0
        self.sampled = 0
        """Scored cases of the files that were sampled with a probability below 1."""
        kept = dict(judged)
        read = ((key, case) for key, case in self._read(paths) if key not in kept)
        for key, case in chain(kept.items(), read):
            if key in scored:
                self.uses += turn_uses(key, case)
                self.words[key] = words_of(case)
                self.sampled += key not in kept and is_sampled(case)
            if key in wanted:
                self.cases.setdefault(key, case)
                if not scored and len(self.cases) == len(wanted):
                    return

    def _read(self, paths: Sequence[Path]) -> Iterator[tuple[CaseKey, CaseData]]:
        for path in paths:
            name = eval_set_name(path)
            for case in self._cases(path):
                yield case_identity(case, name)[:3], case

    def _cases(self, path: Path) -> Iterator[CaseData]:
        if not is_json_lines(path):
            yield from iter_cases(path)
            return
        for _, line in iter_case_lines(path):
            try:
                yield read_case(line)
            except FormatError:
                self.bad_lines += 1
