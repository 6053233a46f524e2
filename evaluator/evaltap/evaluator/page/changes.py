"""People's actions on the page in addition to reviews, as append-only rows."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.store.database import utc_now
from evaltap.evaluator.store.queries import StoreReader, StoreWriter
from evaltap.schemas.formats.model import Json


@dataclass(frozen=True, slots=True)
class Change:
    """An action of a person."""

    action: str
    key: CaseKey | None = None
    """The case that was changed."""
    target: str = ""
    detail: Json = None
    undoes: str | None = None


def write(store: StoreWriter, who: Person, changes: Sequence[Change]) -> None:
    """Append actions of a person."""
    now = utc_now()
    rows: list[tuple[Any, ...]] = []
    for number, one in enumerate(changes):
        detail = None if one.detail is None else orjson.dumps(one.detail).decode()
        named = (who.name, one.action, *(one.key or ()), one.target, now.isoformat(), str(number))
        change_id = hashlib.sha256("\0".join(named).encode("utf-8", "surrogatepass")).hexdigest()
        key = one.key or (None, None, None)
        rows.append(
            (
                change_id[:16],
                *key,
                who.name,
                who.role,
                one.action,
                one.target,
                detail,
                one.undoes,
                now,
            )
        )
    if rows:
        with store.transaction():
            store.append("changes", rows)


PICKED: Final = """
SELECT app_name, eval_set_id, eval_id, changed_at FROM changes
WHERE who = $who AND action IN ('pick', 'drop')
QUALIFY row_number() OVER (PARTITION BY app_name, eval_set_id, eval_id ORDER BY changed_at DESC) = 1
  AND action = 'pick'
"""


def picked(store: StoreReader, who: Person) -> dict[CaseKey, datetime]:
    """Return the cases in a person's basket with the times of their addition, the last first."""
    rows = store.rows(f"{PICKED} ORDER BY changed_at DESC, eval_id", {"who": who.name})
    return {(app, name, eval_id): at for app, name, eval_id, at in rows}
