"""Landed cases as eval cases again: the latest revision of each, with its latest turns in order.

Turns are read as recorded, in portions, so that memory depends neither on their number nor on their size.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import orjson

from evaltap.evaluator.cases.contexts import without_repeats
from evaltap.evaluator.cases.datasets.exports.rows import json_lines
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.pairing import nothing_expected
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import Row, StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.private import private_file

PORTION_BYTES: Final = 32 << 20
"""The size of a portion, if its turns are as large as those before."""
FIRST_TURNS: Final = 100
"""Turns of the first portion, whose size is unknown."""
MOST_TURNS: Final = 2_000
"""More take as long per turn, or half as long where the turns of many sessions alternate, and 10 KB each."""


class LandedTurns(NamedTuple):
    """The turns of a case, by their positions in the order of landing (`landed_seq`)."""

    case: CaseKey
    positions: Sequence[int]


class TurnDocuments(NamedTuple):
    """The turns of a case as JSON; an expected turn is None if none was recorded."""

    actual: Sequence[str]
    expected: Sequence[str | None]

    @property
    def size(self) -> int:
        """The number of characters."""
        return sum(map(len, self.actual)) + sum(len(text or "") for text in self.expected)


_Found: TypeAlias = dict[tuple[str, str, str, int], tuple[str, str | None]]
"""Actual and expected turns by case and position, as several files read as one have equal positions."""


class DocumentReader:
    """Reads the turns of cases whose latest turns are known.

    The queries that find these must not contain the JSON: to sort or group turns, DuckDB would hold that of
    all of them in memory.  Neighbours in the order of landing should be neighbours in `read`.
    """

    def __init__(self, store: StoreReader, *, portion_bytes: int = PORTION_BYTES) -> None:
        self._store = store
        self._portion_bytes = portion_bytes
        self._turns = FIRST_TURNS
        """How many turns are likely to have that size."""

    def read(self, cases: Sequence[LandedTurns]) -> Iterator[TurnDocuments]:
        """Yield the turns of each case, in the order of `cases`."""
        portion: list[LandedTurns] = []
        turns = 0
        for case in cases:
            if portion and turns + len(case.positions) > self._turns:
                yield from self._portion(portion)
                portion, turns = [], 0
            portion.append(case)
            turns += len(case.positions)
        yield from self._portion(portion)

    def _portion(self, cases: Sequence[LandedTurns]) -> Iterator[TurnDocuments]:
        positions = [at for case in cases for at in case.positions]
        found = self._query(positions)
        size = 1
        for key, places in cases:
            try:
                texts = [found[(*key, at)] for at in places]
            except KeyError:
                raise _strange_error() from None
            documents = TurnDocuments([one for one, _ in texts], [one for _, one in texts])
            size += documents.size
            yield documents
        most = max(1, len(positions) * self._portion_bytes // size)
        self._turns = min(most, MOST_TURNS)

    def _query(self, positions: Sequence[int]) -> _Found:
        if not positions:
            return {}
        if None in positions:
            raise _strange_error()
        bounds = {"first": min(positions), "last": max(positions)}
        rows = self._store.large_rows(_DOCUMENTS, {"positions": positions, **bounds})
        return {
            (app, name, eval_id, at): (actual, expected)
            for app, name, eval_id, at, actual, expected in rows
        }


def _strange_error() -> InputError:
    return InputError(
        "evaltap did not write this DuckDB file (turns have no position); name another file, or consume the"
        " log into a new one"
    )


# The bounds let DuckDB skip row groups without reading them.
_DOCUMENTS: Final = """
SELECT app_name, eval_set_id, eval_id, landed_seq, actual_json, expected_json
FROM turns
SEMI JOIN (SELECT unnest($positions::BIGINT[]) AS landed_seq) USING (landed_seq)
WHERE landed_seq BETWEEN $first AND $last
"""


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
                file.write(json_lines([case]))
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
    """Return a landed case in the form of files, where a turn without a reference is marked as such.

    An empty `source` does the same for a case without any.
    """
    if expected := case.get("conversation"):
        if not case["source"]:
            del case["source"]
        case["conversation"] = [
            nothing_expected(turn) if reference is None else reference
            for turn, reference in zip(case["actualConversation"], expected, strict=True)
        ]
    return case


_REPEATED: Final = """
SELECT DISTINCT eval_id FROM (
  FROM latest_cases SELECT eval_id GROUP BY eval_id, {apart} HAVING count(*) > 1)
"""
# Files tell a version from others only within a run (`case_identity`).
_APART: Final = """app_name, case_json->>'$.evalSetId', case_json->>'$.source.run',
  if(case_json->>'$.source.run' <> '', case_json->>'$.source.version', '')"""


def repeated_ids(store: StoreReader, *, runs_apart: bool) -> frozenset[str]:
    """Return the eval ids that several cases of the store share.

    With `runs_apart`, those of several repeats (`source.run`), applications or sets do not count, since
    evaltap's own files distinguish them.
    """
    apart = _APART if runs_apart else "''"
    return frozenset(eval_id for (eval_id,) in store.rows(_REPEATED.format(apart=apart)))


def with_own_ids(cases: Iterable[CaseData], repeated: Set[str]) -> Iterator[CaseData]:
    """Yield the cases; append the version or run to repeated ids: `s-1@v2`."""
    taken = set(repeated)
    for case in cases:
        if case["evalId"] in repeated:
            source = case.get("source") or {}
            app = (case.get("sessionInput") or {}).get("appName")
            marked = f"{case['evalId']}@{source.get('run') or source.get('version') or app or 1}"
            name, number = marked, 1
            while name in taken:
                number += 1
                name = f"{marked}.{number}"
            taken.add(name)
            case = {**case, "evalId": name}
        yield case
