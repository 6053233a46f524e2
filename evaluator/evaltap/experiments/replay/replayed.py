"""What a replay keeps beside its runs, and the verdicts that its turns got."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.replay.differences import conversations
from evaltap.experiments.replay.recorded import RecordedSession
from evaltap.experiments.units import NAMED, named

_KEPT: Final = ("invocationId", "userContent", "tools", "finalResponse", "capture")
_AT_ONCE: Final = 500


def keep_recorded(
    traffic: StoreReader, sessions: Iterable[RecordedSession], into: Store, experiment_id: str
) -> None:
    """Write the sessions as they were recorded beside their runs; those that are there already stay."""
    there = into.column(
        "SELECT eval_id FROM recorded_sessions WHERE experiment_id = $id", {"id": experiment_id}
    )
    known = set(there)
    new = [one for one in sessions if one.name not in known]
    for start in range(0, len(new), _AT_ONCE):
        some = new[start : start + _AT_ONCE]
        found = conversations(traffic, [one.key for one in some])
        rows = [
            (
                experiment_id,
                one.name,
                orjson.dumps([_kept(turn) for turn in found.get(one.key, ())]).decode(),
                orjson.dumps([{**turn.verdicts} for turn in one.turns]).decode(),
                into.now(),
            )
            for one in some
        ]
        with into.transaction():
            into.append("recorded_sessions", rows)


def _kept(turn: Mapping[str, object]) -> dict[str, object]:
    return {name: turn[name] for name in _KEPT if name in turn}


def verdicts(
    store: StoreReader, keys: Sequence[CaseKey], digests: Mapping[str, str]
) -> dict[CaseKey, dict[int, dict[str, bool]]]:
    """Return whether each turn passed each metric, by case, number of the turn from 0, and metric."""
    found: dict[CaseKey, dict[int, dict[str, bool]]] = {key: {} for key in keys}
    given = named(keys) | {"digests": list(digests.values())}
    for app, eval_set, eval_id, place, metric, status in store.rows(_VERDICTS, given):
        if status in ("passed", "failed", "crashed"):
            turn = found[app, eval_set, eval_id].setdefault(place, {})
            turn[metric] = status == "passed"
    return found


_VERDICTS: Final = f"""
SELECT app_name, eval_set_id, eval_id, turn_index, metric_name, status FROM latest_turn_scores
WHERE metric_digest IN $digests::VARCHAR[] AND {NAMED}
"""
