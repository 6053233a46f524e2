"""Read the cases of files again for a report, because the store contains their scores but not their turns."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.origin import case_identity, is_sampled
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.scope import ReportedScores
from evaltap.evaluator.reports.usage import TurnUse, turn_uses
from evaltap.evaluator.store.database import sql
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.content import eval_set_name, is_json_lines, iter_case_lines
from evaltap.schemas.files.documents import iter_cases, read_case


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


OPENING: Final = 200
"""The number of characters of the user's first message."""
TOOLS: Final = 20


class CaseWords(NamedTuple):
    """The user's first message on one line, and the distinct names of tools."""

    opening: str = ""
    tools: tuple[str, ...] = ()


def landed_words(scored: ReportedScores) -> dict[CaseKey, CaseWords]:
    """Return the words of the chosen cases that landed."""
    return {
        (app, eval_set, eval_id): CaseWords(one_line(opening, OPENING), tuple(tools[:TOOLS]))
        for app, eval_set, eval_id, opening, tools in scored.rows(sql(__name__, "report_words"))
    }


def words_of(case: CaseData) -> CaseWords:
    """Return the words of a case, from the recorded or otherwise the expected turns."""
    turns = case.get("actualConversation") or case.get("conversation") or ()
    messages = ((turn or {}).get("userContent") or {} for turn in turns)
    texts = (text for message in messages if isinstance(text := message.get("content"), str))
    opening = next(filter(None, texts), "")
    calls = (call for turn in turns for call in (turn or {}).get("tools") or () if call)
    names = sorted({str(call["name"]) for call in calls if call.get("name")})
    return CaseWords(one_line(opening, OPENING), tuple(names[:TOOLS]))
