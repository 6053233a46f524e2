"""The counts in the navigation bar: reviews, basket, missing turns, and firing alarms."""

import threading
import time
from collections.abc import Mapping
from typing import Final

from evaltap.evaluator.ingest.landing.seq_ranges import size
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.pipeline.maintenance.completeness import landed_accounts
from evaltap.evaluator.store.queries import StoreReader

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
        self._review = ""
        self._delivery = ""
        self._alerts = ""
        self._baskets: dict[str, str] = {}

    def of(self, person: Person) -> Mapping[str, str]:
        """Return the counts next to the entries of the bar, by path."""
        found = {
            "/review": self._review, "/basket": self._baskets.get(person.name, ""),
            "/delivery": self._delivery, "/alerts": self._alerts,
        }  # fmt: skip
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
        self._review = f"{waiting:,}" if waiting else ""
        ((firing,),) = reader.rows(_FIRING)
        self._alerts = f"{firing:,}" if firing else ""
        missing = sum(size(one.lost) for one in landed_accounts(reader))
        self._delivery = "!" if missing else ""
