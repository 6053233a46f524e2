"""A DuckDB file as a side of a comparison: the scores of all runs, or of the named runs."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.sides import (
    RecordedTurn,
    Recording,
    ScoreRow,
    Side,
    TrialTurns,
    contents_of,
    metrics_of,
    recording_of,
)
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known

_SEEN = "user_text, final_text, expected_json, cost_usd, latency_ms"
_EVAL_SET = """CASE
  WHEN s.repeat = '' THEN s.eval_set_id
  WHEN s.eval_set_id = s.repeat THEN ''
  ELSE left(s.eval_set_id, len(s.eval_set_id) - len(s.repeat) - 1)
END"""
"""The eval set of a recording (`<set>@<repeat>`, or only the repeat's name), without the repeat."""
_Row = Sequence[Any]  # of a query


def read_store_side(path: Path, runs: Sequence[str] = ()) -> Side:
    """Return the scores of a file, either of the named runs or of all.

    Raises InputError for a run that does not exist, and if nothing is scored.
    """

    def turns(cases: Collection[CaseKey]) -> TrialTurns:
        with open_to_read(path) as again:
            return _actual(_turns(again, runs, "actual_json", cases))

    with open_to_read(path) as store:
        return replace(side_of(store, runs), turns=turns)


def side_of(store: StoreReader, runs: Sequence[str] = ()) -> Side:
    """Return the scores of an open store like `read_store_side`; its turns are read while it is open."""
    path = store.path
    _check_runs(store, path, runs)
    scored = _score_rows(store, runs)
    if not scored:
        raise InputError(f"{path}: no scores yet; score it with `evaltap score {path}`")
    recordings = _recordings(_turns(store, runs, _SEEN))
    name = f"{path}#{','.join(runs)}" if runs else str(path)
    rows = [row for row, *_ in scored]
    count = len({run for _, run, _ in scored})
    stored = {row.case: (row.case[0], name, row.case[2]) for row, _, name in scored}

    def turns(cases: Collection[CaseKey]) -> TrialTurns:
        return _actual(_turns(store, runs, "actual_json", cases))

    return Side(
        name, count, metrics_of(rows), recordings, contents_of(recordings), turns, rows, stored
    )


def _check_runs(store: StoreReader, path: Path, runs: Sequence[str]) -> None:
    known = store.column("SELECT run_id FROM runs ORDER BY started_at")
    for run in runs:
        check_known(run, known, f"{path}: no run '{run}'", f"`evaltap runs {path}` lists them")


def _score_rows(store: StoreReader, runs: Sequence[str]) -> list[tuple[ScoreRow, str, str]]:
    """Return scores with their run and stored eval set, oldest first."""
    query = sql(__name__, "side_scores").format(eval_set=_EVAL_SET)
    rows = store.rows(query, {"runs": list(runs)})
    return [
        (ScoreRow((app, eval_set, eval_id), *score), run, stored_set)
        for app, eval_set, eval_id, *score, run, stored_set in rows
    ]


def _turns(
    store: StoreReader, runs: Sequence[str], columns: str, only: Collection[CaseKey] | None = None
) -> Sequence[_Row]:
    parameters: dict[str, object] = {"runs": list(runs)}
    condition = ""
    if only is not None:
        condition = "WHERE [app_name, eval_set_id, eval_id] IN (SELECT unnest($only))"
        parameters["only"] = [list(key) for key in only]
    query = sql(__name__, "side_turns").format(columns=columns, only=condition, eval_set=_EVAL_SET)
    with store.unlimited_memory():
        return store.rows(query, parameters)


def _by_trial(rows: Iterable[_Row]) -> Iterable[tuple[CaseKey, str, list[_Row]]]:
    for (app, eval_set, eval_id, trial), found in groupby(rows, key=lambda row: tuple(row[:4])):
        yield (app, eval_set, eval_id), trial, [row[4:] for row in found]


def _recordings(rows: Iterable[_Row]) -> Mapping[CaseKey, Sequence[Recording]]:
    found: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    for key, trial, turns in _by_trial(rows):
        seen = [
            RecordedTurn(
                user_text, answer, None if expected is None else orjson.loads(expected), *used
            )
            for user_text, answer, expected, *used in turns
        ]
        found[key].append(recording_of(trial, seen))
    return found


def _actual(rows: Iterable[_Row]) -> TrialTurns:
    found: defaultdict[CaseKey, dict[str, list[Any]]] = defaultdict(dict)
    for key, trial, turns in _by_trial(rows):
        found[key][trial] = [orjson.loads(text) for (text,) in turns]
    return found
