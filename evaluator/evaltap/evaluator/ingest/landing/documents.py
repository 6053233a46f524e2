"""Read turns as recorded: in portions, so that memory depends neither on their number nor on their size."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

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
