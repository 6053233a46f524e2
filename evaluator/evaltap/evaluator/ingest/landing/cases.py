"""Landed cases as eval cases again: the latest revision of each, with its latest turns in order."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import orjson

from evaltap.evaluator.cases.contexts import without_repeats
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.pairing import placeholder
from evaltap.evaluator.ingest.landing.documents import DocumentReader, LandedTurns
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import Row, StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.private import private_file
from evaltap.schemas.formats.case import CaseData


def landed_cases(store: StoreReader) -> Iterator[CaseData]:
    """Yield every landed case, in the order in which the cases first landed."""
    documents = DocumentReader(store)
    for chunk in store.stream(sql(__name__, "landed_cases")):
        for _, case in assembled(documents, chunk):
            yield _written(case)


def assembled(documents: DocumentReader, rows: Iterable[Row]) -> Iterator[tuple[CaseKey, CaseData]]:
    """Yield cases with their turns, given the rows of a query: names, header and positions of turns."""
    found = [
        (LandedTurns((app, name, eval_id), at), header) for app, name, eval_id, header, at in rows
    ]
    texts = documents.read([turns for turns, _ in found])
    for (turns, header), (actual, expected) in zip(found, texts, strict=True):
        yield turns.case, assemble(header, actual, expected)


def write_json_lines(path: Path, cases: Iterable[CaseData]) -> int:
    """Write the cases as JSON Lines; return their number.  Memory use is constant."""
    count = 0
    try:
        # Write to a device or pipe directly; only regular files are replaced.
        in_place = path.exists() and not path.is_file()
        with path.open("wb") if in_place else private_file(path) as file:
            for case in cases:
                file.write(orjson.dumps(case, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return count


def assemble(header: str, actual: Sequence[str], expected: Sequence[str | None]) -> CaseData:
    """Return a landed case with its turns; raise InputError when it is not JSON."""
    try:
        return with_turns(
            orjson.loads(header),
            [orjson.loads(turn) for turn in actual],
            [None if text is None else orjson.loads(text) for text in expected],
        )
    except orjson.JSONDecodeError as error:
        raise InputError(
            f"evaltap did not write this DuckDB file (a case is not valid JSON: {error}); name another"
            " file, or consume the log into a new one"
        ) from None


def with_turns(
    case: CaseData, turns: Sequence[CaseData], expected: Sequence[CaseData | None]
) -> CaseData:
    """Add turns to a case; `expected` is None for a turn without a reference."""
    case.setdefault("source", {})  # marks the case as recorded
    case["actualConversation"] = without_repeats(turns)
    if any(turn is not None for turn in expected):
        case["conversation"] = expected
    return case


def _written(case: CaseData) -> CaseData:
    """Return a landed case in the form of files: a turn without a reference expects the user's message."""
    if not case["source"]:
        del case["source"]
    if expected := case.get("conversation"):
        case["conversation"] = [
            placeholder(turn) if reference is None else reference
            for turn, reference in zip(case["actualConversation"], expected, strict=True)
        ]
    return case
