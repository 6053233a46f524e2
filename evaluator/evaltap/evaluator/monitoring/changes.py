"""Find what is new in a store since the last evaluation: from which time on turns must be read again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from evaltap.evaluator.store.queries import StoreReader

EVERYTHING: Final = datetime.min
NOTHING: Final = datetime.max


class Changes(NamedTuple):
    """The data that an evaluation must read again."""

    since: datetime = EVERYTHING
    """UTC, without a time zone: turns that started earlier are unchanged since the last evaluation."""
    versions: frozenset[tuple[str, str]] = frozenset()
    """The metrics of new scores and decisions, with their digests."""
    newest: datetime | None = None
    """The start of the newest turn in the store."""


class ChangeFinder:
    """Compares a store with its previous state: new rows by their order, deleted ones by their number."""

    def __init__(self) -> None:
        self._before: Mapping[str, Any] | None = None

    def find(self, reader: StoreReader) -> Changes:
        """Return what is new since the last call; in the first call, everything is."""
        (now,) = reader.records(_STATE)
        before, self._before = self._before, now
        newest = now["newest"]
        if before is None or before["starts"] != now["starts"]:
            return Changes(newest=newest)
        marks = {name: before[name] for name in _MARKS}
        (added,) = reader.records(_ADDED, marks)
        if any(now[name] != before[name] + added[name] for name in added):
            return Changes(newest=newest)
        if not any(added.values()):
            return Changes(NOTHING, newest=newest)
        ((since,),) = reader.rows(_CHANGED, marks)
        scored = {name: before[name] for name in ("scored_at", "decided_at")}
        return Changes(since or NOTHING, frozenset(reader.rows(_VERSIONS, scored)), newest)


_MARKS: Final = ("landed_seq", "scored_at", "decided_at", "feedback_at")

_STATE: Final = """
SELECT
  (SELECT count(*) FROM turns) AS turns,
  (SELECT coalesce(max(landed_seq), 0) FROM turns) AS landed_seq,
  (SELECT max(started_at) FROM turns) AS newest,
  (SELECT count(*) FROM turn_scores) AS turn_scores,
  (SELECT coalesce(max(scored_at), TIMESTAMP '0001-01-01') FROM turn_scores) AS scored_at,
  (SELECT count(*) FROM sampling_decisions) AS decisions,
  (SELECT coalesce(max(decided_at), TIMESTAMP '0001-01-01') FROM sampling_decisions) AS decided_at,
  (SELECT count(*) FROM feedback) AS feedback,
  (SELECT coalesce(max(landed_at), TIMESTAMP '0001-01-01') FROM feedback) AS feedback_at,
  (SELECT count(*) FROM watch_starts) AS starts
"""

_ADDED: Final = """
SELECT
  (SELECT count(*) FROM turns WHERE landed_seq > $landed_seq) AS turns,
  (SELECT count(*) FROM turn_scores WHERE scored_at > $scored_at) AS turn_scores,
  (SELECT count(*) FROM sampling_decisions WHERE decided_at > $decided_at) AS decisions,
  (SELECT count(*) FROM feedback WHERE landed_at > $feedback_at) AS feedback
"""

# A revision may have started at another time than the previous one.
_CHANGED: Final = """
WITH fresh AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id FROM turn_scores WHERE scored_at > $scored_at
  UNION SELECT app_name, eval_set_id, eval_id, invocation_id
  FROM sampling_decisions WHERE decided_at > $decided_at
  UNION SELECT app_name, eval_set_id, eval_id, invocation_id
  FROM turns WHERE landed_seq > $landed_seq AND turn_revision > 1
)
SELECT min(started_at) FROM (
  SELECT started_at FROM turns WHERE landed_seq > $landed_seq
  UNION ALL
  SELECT started_at FROM turns SEMI JOIN fresh USING (app_name, eval_set_id, eval_id, invocation_id)
  UNION ALL
  SELECT t.started_at FROM turns t JOIN feedback f
    ON f.eval_set_id = t.eval_set_id AND f.eval_id = t.eval_id AND f.app_name IN ('', t.app_name)
  WHERE f.landed_at > $feedback_at
)
"""

_VERSIONS: Final = """
SELECT metric_name, metric_digest FROM turn_scores WHERE scored_at > $scored_at
UNION SELECT metric_name, metric_digest FROM sampling_decisions WHERE decided_at > $decided_at
"""
