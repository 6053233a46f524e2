"""Why cases of a span failed: groups of reasons, most frequent first, with new ones marked."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.traffic import without_runs
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.page.request import SharedAnswers
from evaltap.evaluator.page.traffic import Span
from evaltap.evaluator.reports.model import pattern, shared_words
from evaltap.evaluator.reports.wording import readable
from evaltap.evaluator.store.queries import StoreReader

_Key = tuple[str, str, str]

SHOWN: Final = 8
CHANCE: Final = 0.05
"""A reason is new if the probability of its earlier absence by chance is below this."""
# The newest verdict of a turn counts, on its newest revision, by the time of the turn, or of the
# score if it never landed.  Only the newest failures of each version are compared with later verdicts:
# comparing all of a million turns takes several times as long, and a new version of a metric replaces
# those of an old one together.
_REASONS: Final = """
WITH failures AS MATERIALIZED (
  SELECT app_name, eval_set_id, eval_id, invocation_id, metric_name
  FROM turn_scores SEMI JOIN (
    SELECT app_name, eval_set_id, eval_id FROM case_index
    WHERE severity >= 3 AND last_at >= $start AND first_at < $until
      AND ($app::VARCHAR = '' OR app_name = $app) AND {apart}
  ) USING (app_name, eval_set_id, eval_id)
  WHERE status IN ('failed', 'error') AND scored_at >= $start
  QUALIFY row_number() OVER (
    PARTITION BY metric_name, metric_digest ORDER BY scored_at DESC
  ) <= 1000
),
newest AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name, status,
         coalesce(reason, '') AS reason, scored_at
  FROM turn_scores
  SEMI JOIN failures USING (app_name, eval_set_id, eval_id, invocation_id, metric_name)
  WHERE scored_at >= $start
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id,
                 if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_name
    ORDER BY turn_revision DESC, scored_at DESC
  ) = 1
),
landed AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision AS revision,
         coalesce(started_at, landed_at) AS turn_at
  FROM turns SEMI JOIN failures USING (app_name, eval_set_id, eval_id, invocation_id)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
    ORDER BY turn_revision DESC, landed_seq
  ) = 1
)
SELECT metric_name, status, reason, count(*), min(happened_at) FROM (
  SELECT metric_name, status, reason, coalesce(turn_at, scored_at) AS happened_at, scored_at
  FROM newest LEFT JOIN landed USING (app_name, eval_set_id, eval_id, invocation_id)
  WHERE status IN ('failed', 'error') AND coalesce(revision, turn_revision) = turn_revision
    AND happened_at >= $start AND happened_at < $until
  ORDER BY scored_at DESC LIMIT 1000
)
GROUP BY metric_name, status, reason ORDER BY max(scored_at) DESC, reason
"""
# A crash counts regardless of metrics, even if there are none.
_CRASHES: Final = """
SELECT kind, 'crashed', message, count(*), min(started_at) FROM (
  SELECT coalesce(error_type, if(status = 'error', 'error', 'did not end')) AS kind,
         coalesce(error_message, '') AS message, started_at
  FROM turns t SEMI JOIN (
    SELECT app_name, eval_set_id, eval_id FROM case_index
    WHERE severity = 5 AND last_at >= $start AND first_at < $until
      AND ($app::VARCHAR = '' OR app_name = $app) AND {apart}
  ) USING (app_name, eval_set_id, eval_id)
  WHERE status IN ('error', 'incomplete') AND started_at >= $start AND started_at < $until
  QUALIFY turn_revision = max(turn_revision) OVER (PARTITION BY app_name, eval_set_id, eval_id, invocation_id)
  ORDER BY started_at DESC LIMIT 1000
)
GROUP BY kind, message ORDER BY max(started_at) DESC, message
"""


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Failures of one kind among the last 1,000."""

    metric: str
    """The metric, or the type of the error that ended the run."""
    status: str
    text: str
    count: int
    since: datetime
    words: str
    """The common text of the reasons, for the filter's `reason:`; empty if it is too short."""
    is_new: bool
    """Whether none of the last 1,000 failures of the previous span has the reason, although it would be
    expected."""


class TurnCounts(NamedTuple):
    """The number of turns that could show a reason: in the span, and in the previous one."""

    now: int
    before: int

    def expects(self, count: int) -> bool:
        """Return whether a reason with this count would almost certainly have occurred before."""
        return self.now > 0 and (1 - min(count, self.now) / self.now) ** self.before < CHANCE


class _RecordedReason(NamedTuple):
    """A reason as recorded and in readable form, with its number of turns and its first occurrence."""

    recorded: str
    text: str
    turns: int
    since: datetime


def reasons(
    reader: StoreReader,
    span: Span,
    app: str,
    *,
    turns: TurnCounts,
    verdicts: Mapping[str, TurnCounts],
    past: SharedAnswers[frozenset[_Key]],
) -> list[ReasonCount]:
    """Return why cases of a span failed or crashed, most frequent first.

    `turns` are those that could crash, `verdicts` those that a metric could fail, by metric; `past` caches
    the reasons of the previous span.
    """
    found: list[tuple[int, bool, _Key, list[_RecordedReason]]] = []
    unscored = TurnCounts(0, 0)
    for query in (_REASONS, _CRASHES):
        groups = _groups(reader, query, span, app)
        counts = {key: sum(one.turns for one in members) for key, members in groups.items()}
        new = {
            key
            for key, count in counts.items()
            if (turns if query is _CRASHES else verdicts.get(key[0], unscored)).expects(count)
        }
        if new:
            before = query, span.before, app
            new -= past.get(before, partial(_kinds, reader, *before))
        found += [(counts[key], key in new, key, members) for key, members in groups.items()]
    found.sort(key=lambda one: -one[0])
    return [
        ReasonCount(
            metric,
            status,
            one_line(members[0].text, 200) or "no reason given",
            count,
            min(one.since for one in members),
            shared_words(one.recorded for one in members),
            is_new,
        )
        for count, is_new, (metric, status, _), members in found[:SHOWN]
    ]


def _kinds(reader: StoreReader, query: str, span: Span, app: str) -> frozenset[_Key]:
    return frozenset(_groups(reader, query, span, app))


def _groups(
    reader: StoreReader, query: str, span: Span, app: str
) -> dict[_Key, list[_RecordedReason]]:
    """Return reasons by metric, status and pattern, the newest of each first."""
    groups: dict[_Key, list[_RecordedReason]] = {}
    query = query.format(apart=without_runs(reader, app="app_name") or "TRUE")
    for metric, status, reason, turns, since in reader.rows(query, span.parameters(app)):
        text = reason if status == "crashed" else readable(reason)
        found_reason = _RecordedReason(reason, text, turns, since)
        groups.setdefault((metric, status, pattern(text)), []).append(found_reason)
    return groups
