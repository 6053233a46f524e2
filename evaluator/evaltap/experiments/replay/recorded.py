"""What a replay starts from: recorded sessions with their weights and the verdicts that they got."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from evaltap.evaluator.analysis.filters.choice import Choice, chosen_keys
from evaltap.evaluator.analysis.filters.language import Filter
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.sessions import Session, read_sessions
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.worker import EXPERIMENT
from evaltap.schemas.errors import InputError

_OUTCOMES: Final = frozenset(
    {"status", "metric", "score", "error", "feedback", "reason", "reviewed", "label"}
)


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn of the traffic as far as a forecast needs it."""

    invocation_id: str
    probability: float
    """With which it was recorded."""
    first_tool: str | None
    verdicts: Mapping[str, bool]
    """By metric: whether it passed; without those that have no verdict."""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session of the traffic."""

    key: CaseKey
    name: str
    """Unique among the sessions: its eval id, with more if several share it."""
    probability: float
    """With which it was recorded."""
    turns: tuple[RecordedTurn, ...]


def outcome_terms(chosen: Filter) -> list[str]:
    """Return the terms that choose sessions by how they ended, which forecast nothing.

    Answers vary, so that of the sessions that failed some pass the second time by themselves.
    """
    return [term.field for term in chosen.terms if term.field in _OUTCOMES]


def recorded_sessions(
    store: StoreReader, choice: Choice, digests: Mapping[str, str]
) -> list[RecordedSession]:
    """Return the whole sessions that a filter chooses, without those that experiments ran.

    `digests` are the metrics' by name.  Raises InputError if there are none, and if a metric has no verdict
    on any of them.
    """
    keys = chosen_keys(store, choice)
    by_case: dict[CaseKey, list[RecordedTurn]] = {}
    empty = "SELECT app_name, eval_set_id, eval_id FROM cases LIMIT 0"
    names = {digest: name for name, digest in digests.items()}
    verdicts = cache(partial(_verdicts, names))
    with store.scratch(empty, rows=keys) as chosen:
        parameters = {"experiment": EXPERIMENT, "digests": [*names]}
        for app, set_, eval_id, invocation, p, tool, statuses in store.rows(
            _TURNS.format(chosen=chosen), parameters
        ):
            turn = RecordedTurn(invocation, p, tool, verdicts(statuses))
            by_case.setdefault((app, set_, eval_id), []).append(turn)
    if not by_case:
        raise InputError(
            f"{store.path}: no recorded session"
            + (f" matches {choice.text}" if choice else "; land some with `evaltap consume`")
        )
    _check_verdicts(store, by_case, digests)
    counts: dict[str, int] = {}
    for key in by_case:
        counts[key[2]] = counts.get(key[2], 0) + 1
    return [
        RecordedSession(
            key,
            key[2] if counts[key[2]] == 1 else "/".join(part for part in key if part),
            max(turn.probability for turn in turns),
            tuple(turns),
        )
        for key, turns in by_case.items()
    ]


def _verdicts(names: Mapping[str, str], statuses: str) -> Mapping[str, bool]:
    """Return whether a turn passed, by metric; `names` are by digest.  Most turns have the same few."""
    pairs = (one.split("=") for one in statuses.split())
    return {
        names[digest]: status == "passed"
        for digest, status in pairs
        if status in ("passed", "failed", "crashed")
    }


def _check_verdicts(
    store: StoreReader,
    by_case: Mapping[CaseKey, Sequence[RecordedTurn]],
    digests: Mapping[str, str],
) -> None:
    seen = {name for turns in by_case.values() for turn in turns for name in turn.verdicts}
    if not (lacking := [name for name in digests if name not in seen]):
        return
    if rows := store.rows(_WITHOUT_VERDICT, {"digests": [digests[name] for name in lacking]}):
        name, status, reason = rows[0]
        raise InputError(
            f"{store.path}: {name}: no recorded turn has a verdict with which the new ones could be compared,"
            f" but {status.replace('_', ' ')}: {reason}; leave the metric out of --metrics, or mend that"
        )
    raise InputError(
        f"{store.path}: {', '.join(lacking)}: the recorded turns have no verdict under this version of"
        f" the metric, with which the new ones could be compared; score them first: `evaltap score"
        f" {store.path} --metrics METRICS`"
    )


def documents(store: StoreReader, sessions: Iterable[RecordedSession]) -> dict[CaseKey, Session]:
    """Return the conversations of some sessions."""
    return read_sessions(
        store, [TurnKey(*one.key, turn.invocation_id) for one in sessions for turn in one.turns]
    )


_WITHOUT_VERDICT: Final = """
SELECT metric_name, status, reason FROM latest_turn_scores
WHERE metric_digest IN $digests::VARCHAR[] AND status IN ('not_evaluated', 'error')
GROUP BY ALL ORDER BY count(*) DESC, metric_name, reason LIMIT 1
"""

_TURNS: Final = """
WITH these AS (FROM latest_turns SEMI JOIN {chosen} USING (app_name, eval_set_id, eval_id)),
verdicts AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         string_agg(metric_digest || '=' || status, ' ' ORDER BY metric_digest) AS verdicts
  FROM latest_turn_scores WHERE metric_digest IN $digests::VARCHAR[] GROUP BY ALL
),
calls AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         arg_min(tool_name, call_index) AS tool
  FROM latest_tool_calls SEMI JOIN {chosen} USING (app_name, eval_set_id, eval_id) GROUP BY ALL
)
SELECT app_name, eval_set_id, eval_id, invocation_id, coalesce(inclusion_probability, 1), tool,
       coalesce(verdicts, '')
FROM these
LEFT JOIN calls USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN verdicts USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
WHERE environment IS DISTINCT FROM $experiment AND coalesce(inclusion_probability, 1) > 0
ORDER BY app_name, eval_set_id, eval_id, started_at NULLS FIRST, first_landed_seq
"""
