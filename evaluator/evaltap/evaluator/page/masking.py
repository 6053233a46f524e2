"""Hide the texts of users and agents from readers who may only see figures."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from evaltap.evaluator.analysis.filters.language import Filter
from evaltap.evaluator.ingest.landing.seq_ranges import size
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.request import PageAnswer
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.pipeline.maintenance.completeness import landed_accounts
from evaltap.evaluator.store.queries import StoreReader

HIDDEN: Final = "(hidden)"
CONTENTS: Final = frozenset(
    {
        "actual",
        "answer",
        "arguments",
        "changes",
        "comment",
        "correction",
        "detail",
        "distance",
        "error",
        "evidence",
        "example",
        "expected",
        "expected_answer",
        "failure",
        "message",
        "opening",
        "pattern",
        "raw",
        "reason",
        "result",
        "sentence",
        "user",
        "why",
    }
)
"""Fields that contain or may quote recorded text: questions, answers, arguments, reasons."""
CONTENTS_OF: Final[Mapping[str, frozenset[str]]] = {
    "Argument": frozenset({"name", "value"}),
    "ArgumentDifference": frozenset({"path"}),
    "Differing": frozenset({"path"}),
    "GateVerdict": frozenset({"feedback"}),
    "ReasonCount": frozenset({"text", "words"}),
}
"""Fields that contain such text only in these classes."""
_ASKS: Final = frozenset({"", "reason"})


def masked(shown: PageAnswer) -> PageAnswer:
    """Return a page without contents; its JSON contains none either."""
    return replace(shown, data=_walked(shown.data))


def without_words(found: Filter) -> tuple[Filter, list[str]]:
    """Return a filter that does not search contents, and notes on the removed terms.

    The number of cases that contain a word would reveal the content.
    """
    kept = tuple(term for term in found.terms if term.field not in _ASKS)
    if len(kept) == len(found.terms):
        return found, []
    return replace(found, terms=kept), [
        "content is hidden from viewers, so words and reason: match nothing"
    ]


def _walked(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        names = CONTENTS | CONTENTS_OF.get(type(value).__name__, frozenset())
        made = {
            one.name: _item(one.name, getattr(value, one.name), names)
            for one in fields(value)
            if one.init
        }
        return replace(value, **made)
    if isinstance(value, Mapping):
        return {name: _item(str(name), item, CONTENTS) for name, item in value.items()}
    if isinstance(value, tuple) and (named := getattr(value, "_fields", ())):
        names = CONTENTS | CONTENTS_OF.get(type(value).__name__, frozenset())
        return type(value)(
            *(_item(name, item, names) for name, item in zip(named, value, strict=True))
        )
    if isinstance(value, tuple | list):
        return type(value)(map(_walked, value))
    return value


def _item(name: str, value: Any, names: frozenset[str]) -> Any:
    if name not in names:
        return _walked(value)
    if isinstance(value, str):
        return HIDDEN if value else value
    if isinstance(value, Sequence):
        return type(value)(HIDDEN if isinstance(one, str) else _walked(one) for one in value)  # type: ignore[call-arg]
    return _walked(value)


_EVERY_SECONDS: Final = 10.0
_WAITING: Final = """
SELECT count(*) FROM v_review_items WHERE waiting
"""
_FIRING: Final = """
SELECT count(*) FILTER (status = 'firing')
FROM (FROM alerts QUALIFY row_number() OVER (PARTITION BY alert_id ORDER BY noted_at DESC) = 1)
"""


class Marks:
    """Reads the shared counts at most every ten seconds, and a basket whenever it may have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = -_EVERY_SECONDS
        self._shared: dict[str, str] = {}
        self._baskets: dict[str, str] = {}

    def of(self, person: Person) -> Mapping[str, str]:
        """Return the counts next to the entries of the bar, by path."""
        found = self._shared | {"/basket": self._baskets.get(person.name, "")}
        return {path: mark for path, mark in found.items() if mark}

    def is_due(self, person: Person) -> bool:
        """Return whether `refresh` would read anything."""
        return self._lacks_basket(person) or time.monotonic() - self._read_at >= _EVERY_SECONDS

    def _lacks_basket(self, person: Person) -> bool:
        return person.may("reviewer") and person.name not in self._baskets

    def refresh(self, reader: StoreReader, person: Person, *, force: bool = False) -> None:
        """Update the marks; called with the reader of a page, before the page is read."""
        if self._lacks_basket(person) or (force and person.may("reviewer")):
            self._baskets[person.name] = str(len(changes.picked(reader, person)) or "")
        now = time.monotonic()
        with self._lock:
            if not force and now - self._read_at < _EVERY_SECONDS:
                return
            self._read_at = now
        ((waiting,),) = reader.rows(_WAITING)
        ((firing,),) = reader.rows(_FIRING)
        missing = sum(size(one.lost) for one in landed_accounts(reader))
        self._shared = {
            "/review": f"{waiting:,}" if waiting else "",
            "/alerts": f"{firing:,}" if firing else "",
            "/delivery": "!" if missing else "",
        }
