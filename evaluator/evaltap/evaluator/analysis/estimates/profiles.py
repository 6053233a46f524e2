"""Read the sessions of the chosen turns in the form that estimators need."""

from evaltap.evaluator.analysis.stats.sample import Cell, Profile
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader


def read_profiles(
    store: StoreReader, slices: int = 0, *, value: str = "has::DOUBLE"
) -> dict[tuple[object, ...], list[Profile]]:
    """Return the sessions of `estimate_turns`, grouped into profiles, by slice, metric and digest.

    `slices` is the number of columns of a slice; `value` is SQL for the score of a turn, from 0 to 1.
    """
    columns = slice_columns(slices)
    found: dict[tuple[object, ...], list[Profile]] = {}
    for row in store.rows(sql(__name__, "profiles").format(slices=columns, value=value)):
        cells = tuple(
            Cell(p, int(turns), total, squares, q, bool(by_turn))
            for p, turns, total, squares, q, by_turn in row[-2]
        )
        found.setdefault(row[: slices + 2], []).append(Profile(cells, row[-1]))
    return found


def slice_columns(slices: int) -> str:
    """Return the columns of a slice as a prefix for more columns in SQL."""
    return "".join(f"by_{place}, " for place in range(slices))
