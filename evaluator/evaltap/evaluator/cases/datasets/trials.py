"""Distinguish the trials of cases that files contain several times.

A case is identified by its input: lines with the same ids and the same user messages are trials of one case;
lines with other messages are not.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final  # of JSON

import msgspec

from evaltap.evaluator.cases.datasets.case_files import CaseFiles, changed_copies
from evaltap.evaluator.cases.identity import CaseIdentity, CaseKey
from evaltap.evaluator.cases.origin import case_identity
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.content import eval_set_name, is_json_lines, iter_case_lines
from evaltap.schemas.files.documents import iter_cases

MOST_BYTES: Final = 64 << 20
"""Larger files are not searched for repeats, because every id would have to be kept in memory."""


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """Files in which each case occurs once, and the repetitions in the given files."""

    files: CaseFiles
    repeated: int = 0
    """The number of cases that occurred several times."""
    most: int = 1
    """The highest number of trials of one case."""


class _Turn(msgspec.Struct):
    userContent: Any = None


class _Session(msgspec.Struct):
    appName: str | None = None


class _Source(msgspec.Struct):
    run: str | None = None
    version: str | None = None


class _Outline(msgspec.Struct):
    """The identity of a case, and its input."""

    evalSetId: str = ""
    evalId: str = ""
    sessionInput: _Session | None = None
    source: _Source | None = None
    conversation: list[_Turn] | None = None
    actualConversation: list[_Turn] | None = None


@dataclass(slots=True)
class _Seen:
    count: int = 0
    questions: set[int] = field(default_factory=set)


@contextmanager
def trials_apart(paths: Sequence[Path]) -> Iterator[TrialFiles]:
    """Yield files in which the n-th trial of each case belongs to the eval set `NAME@trial-n`.

    Yields the original files if no case occurs twice, or if one occurs with different user messages.
    """
    trials = _trials(paths) if _size(paths) <= MOST_BYTES else {}
    if max(trials.values(), default=1) == 1:
        yield TrialFiles(CaseFiles([*paths], []))
        return
    occurred: Counter[CaseKey] = Counter()

    def name_trial(path: Path, case: CaseData) -> CaseData:
        named = case_identity(case, eval_set_name(path))
        if named[:3] not in trials:
            return case  # a repeat with its own name
        occurred[named[:3]] += 1
        return {**case, "evalSetId": f"{named.eval_set_id}@trial-{occurred[named[:3]]}"}

    with changed_copies(paths, name_trial) as files:
        repeated = sum(count > 1 for count in trials.values())
        yield TrialFiles(files, repeated, max(trials.values()))


def _size(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def _trials(paths: Sequence[Path]) -> dict[CaseKey, int]:
    """Return how often each case occurs; empty if cases share an id but differ in their input."""
    seen: dict[CaseKey, _Seen] = {}
    try:
        for named, questions in (one for path in paths for one in _outlines(path)):
            known = seen.setdefault(named[:3], _Seen())
            known.count += 1
            known.questions.add(hash(questions))
    except FormatError:
        return {}  # the command that scores the file reports the error
    if any(len(known.questions) > 1 for known in seen.values()):
        return {}
    return {key: known.count for key, known in seen.items()}


def _outlines(path: Path) -> Iterator[tuple[CaseIdentity, str]]:
    """Yield identities and user messages of the cases without `source.run`."""
    name = eval_set_name(path)
    for case in _outlines_of_lines(path) if is_json_lines(path) else iter_cases(path):
        if not (case.get("source") or {}).get("run"):
            turns = case.get("actualConversation") or case.get("conversation") or ()
            yield (
                case_identity(case, name),
                repr([(turn or {}).get("userContent") for turn in turns]),
            )


def _outlines_of_lines(path: Path) -> Iterator[CaseData]:
    decode = msgspec.json.Decoder(_Outline).decode
    for _, line in iter_case_lines(path):
        try:
            outline = decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if outline.evalId:  # without one, it is no case
            yield msgspec.to_builtins(outline)
