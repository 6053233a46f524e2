"""The start of a watch's baseline: after a lasting change, the new level becomes usual."""

from datetime import UTC, datetime

from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time


def start_of(store: StoreReader, watch: str) -> datetime | None:
    """Return the aware time before which turns do not count for a watch; None if all turns count."""
    found = store.rows(
        "SELECT since FROM watch_starts WHERE watch = $watch ORDER BY noted_at DESC LIMIT 1",
        {"watch": watch},
    )
    return found[0][0].replace(tzinfo=UTC) if found else None


def alarmed_watches(store: StoreReader) -> list[str]:
    """Return the names of the watches that have raised an alarm."""
    return [name for (name,) in store.rows("SELECT DISTINCT watch FROM alerts ORDER BY watch")]


def rebase(store: Store, watch: str, since: datetime) -> None:
    """Make a watch learn its baseline again, beginning at an aware time."""
    moment = stored_time(since)
    with store.transaction():
        store.append("watch_starts", [(watch, moment, store.now())])
