"""Names of cases: the eval id, with or without its eval set, or a part that matches only one case."""

from collections.abc import Sequence
from typing import Final

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

SHORT: Final = 17
"""The length of a shortened id: both ends suffice to distinguish UUIDs that begin with the time."""
_LEAST_PIECE: Final = 4
_MOST_SHOWN: Final = 100
"""Characters of a name in a message."""
_MOST_NAMED: Final = 5

IS_CASE: Final = "(eval_id = $case OR eval_set_id || '/' || eval_id = $case)"
"""SQL: whether a row belongs to the case with a given full name."""

NAMES: Final = """
SELECT DISTINCT app_name, eval_set_id, eval_id FROM (
  SELECT app_name, eval_set_id, eval_id FROM cases
  UNION SELECT app_name, eval_set_id, eval_id FROM scores
)"""
"""SQL: every case, landed or scored from a file."""
_REPEATED = f"""
SELECT eval_id FROM ({NAMES} WHERE list_contains($ids, eval_id))
GROUP BY eval_id HAVING count(*) > 1
"""
_IDS = "(SELECT eval_id FROM cases UNION SELECT eval_id FROM scores)"
_FITTING = f"""
SELECT eval_id FROM {_IDS}
WHERE starts_with(eval_id, $start) AND ends_with(eval_id, $end) AND length(eval_id) >= $length
ORDER BY eval_id LIMIT {_MOST_NAMED + 1}
"""
_NEAREST = f"""
SELECT eval_id FROM {_IDS}
ORDER BY jaro_winkler_similarity(eval_id, $case) DESC, eval_id LIMIT {_MOST_NAMED}
"""


def shortened(eval_id: str, width: int = SHORT) -> str:
    """Return an id shortened in its middle, so that both ends remain distinguishing: `01a20ae4…25c88bb8`."""
    if len(eval_id) <= width:
        return eval_id
    end = (width - 1) // 2
    return f"{eval_id[: width - 1 - end]}…{eval_id[-end:]}"


def full_name(store: StoreReader, case: str) -> str:
    """Return the full name of a case, given the full name, the beginning of an id or a shortened id.

    A name that matches no case is returned unchanged.

    Raises InputError if a part matches several cases.
    """
    for table in ("cases", "scores"):
        if store.rows(f"SELECT 1 FROM {table} WHERE {IS_CASE} LIMIT 1", {"case": case}):
            return case
    start, _, end = case.replace("...", "…").partition("…")
    if len(start) + len(end) < _LEAST_PIECE:
        return case
    piece = {"start": start, "end": end, "length": len(start) + len(end)}
    found = store.column(_FITTING, piece)
    if len(found) > 1:
        more = ", …" if len(found) > _MOST_NAMED else ""
        names = _listed(found[:_MOST_NAMED])
        raise InputError(f"{case!r} is part of several ids; give a longer part: {names}{more}")
    return found[0] if found else case


def repeated_ids(store: StoreReader, ids: Sequence[str]) -> set[str]:
    """Return the eval ids that several cases share: repeats, versions, applications."""
    return set(store.column(_REPEATED, {"ids": list(ids)}))


def nearest(store: StoreReader, case: str) -> str:
    """Return the ids most similar to an unknown name, for a message."""
    return _listed(store.column(_NEAREST, {"case": case})) or "none"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(one_line(name, _MOST_SHOWN) for name in names)
