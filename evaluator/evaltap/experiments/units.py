"""The units of experiments in the store: what was begun, ran, was scored, crashed or is invalid."""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version as release_of
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.agents.base import Unit
from evaltap.experiments.plan import Plan
from evaltap.schemas.data import CaseData
from evaltap.schemas.wire.record import in_recording, recording_name

_NOTHING: Final[Mapping[CaseKey, Sequence[CaseData]]] = {}
UnitState: TypeAlias = Literal["begun", "ran", "scored", "crashed", "invalid", "forked"]
"""forked: a replay that ended at a call that the recording does not answer."""


class UnitRow(NamedTuple):
    """A row of `units`; the fields are its columns."""

    experiment_id: str
    app_name: str
    eval_set_id: str
    eval_id: str
    trial: int
    attempt: int
    state: UnitState
    reason: str | None
    turn_count: int
    seconds: float | None
    mocks: str | None = None
    """What tools were asked, as JSON (`Tape.data`); None without mocks."""
    ended_by: str | None = None
    """Why a simulated conversation ended; None without a simulated user."""
    partners_usd: float | None = None
    """What the simulated user and the agent that gives expected turns have cost."""

    @property
    def answers(self) -> dict[str, Any] | None:
        """What tools were asked."""
        found: dict[str, Any] | None = None if self.mocks is None else json.loads(self.mocks)
        return found

    @property
    def missed(self) -> bool:
        """Whether a tool call had no answer."""
        return any(turn["misses"] for turn in (self.answers or {}).get("turns", ()))

    @property
    def may_be_tried(self) -> bool:
        """Whether another attempt at an invalid trial may end otherwise."""
        return not self.missed and self.ended_by not in ("simulator_error", "reference_error")

    @property
    def key(self) -> CaseKey:
        """The case that the unit's turns land in."""
        return self.app_name, self.eval_set_id, self.eval_id


def row_of(plan: Plan, unit: Unit, state: UnitState, **given: Any) -> UnitRow:
    """Return the row of a unit in a state; `given` are other fields of the row."""
    recording = recording_name(plan.version, unit.run)
    return UnitRow(
        experiment_id=plan.experiment_id,
        app_name=unit.app_name,
        eval_set_id=in_recording(unit.eval_set_id, unit.eval_id, recording),
        eval_id=unit.eval_id,
        trial=unit.trial,
        attempt=unit.attempt,
        state=state,
        reason=given.get("reason") or None,
        turn_count=given.get("turn_count", len(unit.turns)),
        seconds=given.get("seconds"),
        mocks=None if given.get("mocks") is None else json.dumps(given["mocks"]),
        ended_by=given.get("ended_by") or None,
        partners_usd=given.get("partners_usd") or None,
    )


def append_units(
    store: Store, rows: Iterable[UnitRow], expected: Mapping[CaseKey, Sequence[CaseData]] = _NOTHING
) -> None:
    """Write rows, and the expected turns of some of their cases, in one transaction."""
    now = store.now()
    if written := [(*row[:11], now, *row[11:]) for row in rows]:
        with store.transaction():
            for key, turns in expected.items():
                _expect(store, key, turns)
            store.append("units", written)


def _expect(store: Store, key: CaseKey, turns: Sequence[CaseData]) -> None:
    given: dict[str, object] = {"app": key[0], "set": key[1], "id": key[2]}
    for (place,), turn in zip(store.rows(_PLACES, given), turns, strict=False):
        store.execute(
            f"UPDATE turns SET expected_json = $turn WHERE {_ONE_CASE} AND landed_seq = $place",
            given | {"turn": orjson.dumps(turn).decode(), "place": place},
        )


def start(store: Store, plan: Plan, configuration: Mapping[str, str]) -> None:
    """Write that an experiment starts, or goes on."""
    row = (
        plan.experiment_id,
        plan.cases.name,
        plan.agent,
        plan.version,
        plan.runs,
        json.dumps(configuration),
        release_of("evaltap"),
        store.now(),
    )
    with store.transaction():
        store.append("experiments", [row])


def last_started(store: StoreReader, set_name: str) -> tuple[str, Mapping[str, str]] | None:
    """Return the id and the configuration of the experiment on a set that was started last."""
    rows = store.rows(_LAST, {"name": set_name})
    return (rows[0][0], json.loads(rows[0][1])) if rows else None


def read_units(store: StoreReader, experiment_id: str) -> dict[tuple[str, int], UnitRow]:
    """Return the newest row of each trial, by eval id and trial."""
    rows = [UnitRow(*row) for row in store.rows(_UNITS, {"id": experiment_id})]
    return {(row.eval_id, row.trial): row for row in rows}


def units_in_order(store: StoreReader, plan: Plan) -> list[UnitRow]:
    """Return the newest rows of a plan's trials: by trial, and within it in the order of the set."""
    places = {one.eval_id: place for place, one in enumerate(plan.cases.cases)}
    rows = [row for row in read_units(store, plan.experiment_id).values() if row.eval_id in places]
    return sorted(rows, key=lambda row: (row.trial, places[row.eval_id]))


def past(store: StoreReader, set_name: str) -> tuple[float | None, float | None]:
    """Return what a unit on a set has cost on average in USD, and the share of units that have passed.

    None for what is not known.
    """
    return store.rows(_PAST, {"name": set_name})[0]


NAMED: Final = """
(app_name, eval_set_id, eval_id) IN (
  SELECT unnest($apps::VARCHAR[]), unnest($sets::VARCHAR[]), unnest($ids::VARCHAR[])
)"""
"""Whether a row is of one of the cases whose parameters `named` returns."""
UNJUDGED: Final = f"""
metric_digest IN $digests::VARCHAR[] AND status NOT IN ('passed', 'failed', 'crashed') AND {NAMED}"""
"""Whether a score of one of them, under one of the metrics `digests`, is no verdict."""


def named(keys: Iterable[CaseKey]) -> dict[str, Any]:
    """Return the parameters of `NAMED` for these cases."""
    keys = list(keys)
    return {
        "apps": [key[0] for key in keys],
        "sets": [key[1] for key in keys],
        "ids": [key[2] for key in keys],
    }


def verdicts_of(
    store: StoreReader, keys: Iterable[CaseKey], digests: Sequence[str]
) -> dict[CaseKey, dict[str, str]]:
    """Return the latest status of each case by metric; empty for a case without a score."""
    found: dict[CaseKey, dict[str, str]] = {key: {} for key in keys}
    given = named(found) | {"digests": digests}
    for app, eval_set, eval_id, metric, status in store.rows(_STATUSES, given):
        found[app, eval_set, eval_id][metric] = status
    return found


class LandedTurns(NamedTuple):
    """The turns of a case that have landed, by status."""

    whole: int
    failed: int
    cost_usd: float | None


NO_TURNS: Final = LandedTurns(0, 0, None)


def landed_turns(store: StoreReader, keys: Sequence[CaseKey]) -> dict[CaseKey, LandedTurns]:
    """Return how many turns of each case have landed."""
    rows = store.rows(_TURNS, named(keys))
    return {(row[0], row[1], row[2]): LandedTurns(*row[3:]) for row in rows}


def judged_usd(store: StoreReader, keys: Iterable[CaseKey]) -> float:
    """Return what judges have cost for some cases, as far as prices are known."""
    found: float = store.rows(_JUDGED, named(keys))[0][0]
    return found


def drop_last_turns(store: Store, keys: Iterable[CaseKey]) -> None:
    """Delete the last turn of each case, in which a replay forked: it has not ended, so it has no verdict."""
    with store.transaction():
        for key in keys:
            given: dict[str, object] = {"app": key[0], "set": key[1], "id": key[2]}
            last = store.rows(_LAST_TURN, given)
            for (invocation,) in last:
                for table in ("turns", "tool_calls"):
                    store.execute(
                        f"DELETE FROM {table} WHERE {_ONE_CASE} AND invocation_id = $turn",
                        given | {"turn": invocation},
                    )
                store.execute(_WITHOUT_A_TURN, given)


def drop_attempts(store: Store, keys: Sequence[CaseKey]) -> None:
    """Delete what an abandoned attempt has delivered: its turns are of no run."""
    if not keys:
        return
    with store.transaction():
        for table in _OF_CASES:
            store.execute(f"DELETE FROM {table} WHERE {NAMED}", named(keys))


def drop_unjudged(store: Store, keys: Iterable[CaseKey], digests: Sequence[str]) -> None:
    """Delete the scores without a verdict, so that they are made again."""
    with store.transaction():
        for table in ("scores", "turn_scores"):
            store.execute(
                f"DELETE FROM {table} WHERE {UNJUDGED}", named(keys) | {"digests": digests}
            )


_JUDGED: Final = f"SELECT coalesce(sum(cost_usd), 0)::DOUBLE FROM judge_calls WHERE {NAMED}"
_ONE_CASE: Final = "app_name = $app AND eval_set_id = $set AND eval_id = $id"
_PLACES: Final = f"""
SELECT landed_seq FROM latest_turns WHERE {_ONE_CASE} ORDER BY started_at NULLS FIRST, landed_seq
"""
_LAST_TURN: Final = f"""
SELECT invocation_id FROM turns WHERE {_ONE_CASE} ORDER BY landed_seq DESC LIMIT 1
"""
_WITHOUT_A_TURN: Final = f"""
UPDATE cases SET revision = revision - 1, turn_count = turn_count - 1
WHERE {_ONE_CASE} AND revision = (SELECT max(revision) FROM cases WHERE {_ONE_CASE})
"""
_OF_CASES: Final = (
    "cases",
    "turns",
    "tool_calls",
    "scores",
    "turn_scores",
    "rubric_votes",
    "judge_calls",
)
_LAST: Final = """
SELECT experiment_id, configuration FROM experiments
WHERE set_name = $name ORDER BY started_at DESC LIMIT 1
"""
_UNITS: Final = """
SELECT experiment_id, app_name, eval_set_id, eval_id, trial, attempt, state, reason, turn_count, seconds,
       mocks, ended_by, partners_usd
FROM latest_units WHERE experiment_id = $id
"""
_PAST: Final = """
WITH done AS (
  SELECT * FROM latest_units
  WHERE state IN ('scored', 'crashed')
    AND experiment_id IN (SELECT experiment_id FROM experiments WHERE set_name = $name)
), costs AS (
  SELECT app_name, eval_set_id, eval_id, sum(cost_usd) AS usd FROM (
    SELECT app_name, eval_set_id, eval_id, cost_usd FROM judge_calls
    UNION ALL SELECT app_name, eval_set_id, eval_id, cost_usd FROM latest_turns
    UNION ALL SELECT app_name, eval_set_id, eval_id, partners_usd FROM done
  ) GROUP BY ALL
), verdicts AS (
  SELECT app_name, eval_set_id, eval_id, bool_and(status = 'passed') AS passed FROM latest_scores
  WHERE status IN ('passed', 'failed', 'crashed') GROUP BY ALL
)
SELECT avg(c.usd), avg(if(d.state = 'crashed', 0, v.passed::INTEGER)) FROM done d
LEFT JOIN costs c USING (app_name, eval_set_id, eval_id)
LEFT JOIN verdicts v USING (app_name, eval_set_id, eval_id)
"""
_STATUSES: Final = f"""
SELECT app_name, eval_set_id, eval_id, metric_name, status FROM latest_scores
WHERE metric_digest IN $digests::VARCHAR[] AND {NAMED}
"""
_TURNS: Final = f"""
SELECT app_name, eval_set_id, eval_id, count(*) FILTER (status = 'ok'),
       count(*) FILTER (status IN ('error', 'incomplete')), sum(cost_usd)
FROM latest_turns WHERE {NAMED} GROUP BY ALL
"""
