"""Read the cases of files again for a report, because the store contains their scores but not their turns."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from datetime import UTC
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.origin import case_identity, is_sampled
from evaltap.evaluator.cases.pairing import UnscorableCaseError, pair_turns
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.scope import ReportedScores
from evaltap.evaluator.reports.usage import TurnUse, turn_uses
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.canonical import loads
from evaltap.schemas.files.content import eval_set_name, is_json_lines, iter_case_lines
from evaltap.schemas.files.documents import case_data, iter_cases


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
        ids = None if scored else {eval_id for *_, eval_id in wanted}
        read = ((key, case) for key, case in self._read(paths, ids) if key not in kept)
        for key, case in chain(kept.items(), read):
            if key in scored:
                self.uses += turn_uses(key, case)
                self.words[key] = words_of(case)
                self.sampled += key not in kept and is_sampled(case)
            if key in wanted:
                self.cases.setdefault(key, case)
                if not scored and len(self.cases) == len(wanted):
                    return

    def _read(
        self, paths: Sequence[Path], ids: Container[str] | None
    ) -> Iterator[tuple[CaseKey, CaseData]]:
        for path in paths:
            name = eval_set_name(path)
            for case in scored_cases(path, ids):
                if case is None:
                    self.bad_lines += 1
                else:
                    yield case_identity(case, name)[:3], case


_OF_FILES: Final = """
SELECT run_id, source, started_at FROM runs
WHERE kind = 'files' AND (len($runs) = 0 OR list_contains($runs, run_id))
ORDER BY started_at
"""


def cases_of_runs(
    store: StoreReader, ids: Container[str], runs: Sequence[str] = ()
) -> Iterator[tuple[str, CaseKey, CaseData]]:
    """Yield some cases of the files that runs scored, as far as these are there and unchanged since."""
    for run, source, started in store.rows(_OF_FILES, {"runs": list(runs)}):
        for path in map(Path, source.split(", ")):
            if not path.is_file() or path.stat().st_mtime > started.replace(tzinfo=UTC).timestamp():
                continue
            for case in filter(None, scored_cases(path, ids)):
                yield run, case_identity(case, eval_set_name(path))[:3], case


def scored_turns(store: StoreReader, key: CaseKey, run: str) -> Iterator[tuple[Turn, Case | None]]:
    """Yield the turns of a case of a file as a run scored them, each with the expected turn."""
    found = [case for _, stored, case in cases_of_runs(store, {key[2]}, [run]) if stored == key]
    try:
        pairs = pair_turns(found[-1] if found else {})
    except UnscorableCaseError:
        return
    expected = [
        one.data if one.referenced and not pairs.placeholders else None for one in pairs.expected
    ]
    for place, turn in enumerate(pairs.actual):
        yield turn, expected[place] if place < len(expected) else None


def scored_cases(path: Path, ids: Container[str] | None = None) -> Iterator[CaseData | None]:
    """Yield the cases of a scored file, those with some ids if any are given.

    None stands for a line that is no case, which was not scored either.
    """
    if not is_json_lines(path):
        yield from (case for case in iter_cases(path) if ids is None or case["evalId"] in ids)
        return
    for _, line in iter_case_lines(path):
        try:
            data = loads(line)
            eval_id = data.get("evalId") if isinstance(data, dict) else None
            # The key may be spelled in another case, which the format allows.
            if ids is None or not isinstance(eval_id, str) or eval_id in ids:
                yield case_data(data)
        except FormatError:
            yield None


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
