"""Run an agent on a set and return its cases with what the agent did, to be scored by whoever wants them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import TemporaryStore
from evaltap.experiments.result_file import recorded_units
from evaltap.experiments.running import Request, run_experiment
from evaltap.experiments.units import UnitRow, units_in_order
from evaltap.schemas.data import CaseData
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.text import counted

_GIVEN = ("conversation", "rubrics", "sessionInput")


@dataclass(frozen=True, slots=True)
class AnsweredCases:
    """The cases of a set as an agent answered them."""

    cases: tuple[CaseData, ...]
    """A case for each run; one that crashed has a turn that failed."""
    invalid: tuple[str, ...]
    """Runs without evidence, with their reasons, and those that were not made."""
    varying: frozenset[CaseKey]
    """The cases whose user or expected turns an agent gave, so that each run has others."""


def answered_cases(path: Path, request: Request) -> AnsweredCases:
    """Run an agent on the set at `path`; raise InputError that lists what is wrong, before the first call."""
    given = request.cases
    varying = {one.eval_id for one in given.cases if one.scenario or one.refers}
    originals = {one.get("evalId"): one for one in iter_cases(path)}
    with TemporaryStore() as store:
        finished = run_experiment(request, CaseScorer([]), store)
        rows = units_in_order(store, finished.plan)
        landed = recorded_units(store, rows)
    invalid = [f"{row.eval_id}: {row.reason}" for row in rows if row.state == "invalid"]
    if missing := finished.progress.planned - len(rows):
        invalid.append(f"{counted(missing, 'run')} ({finished.progress.stopped_by})")
    cases = [
        _case(row, originals[row.eval_id], landed, given.name)
        for row in rows
        if row.state != "invalid"
    ]
    keys = [case_identity(one, "")[:3] for one in cases]
    return AnsweredCases(
        tuple(cases), tuple(invalid), frozenset(key for key in keys if key[2] in varying)
    )


def _case(
    row: UnitRow, original: CaseData, landed: Mapping[CaseKey, CaseData], name: str
) -> CaseData:
    found = landed.get(row.key)
    turns = (found or {}).get("actualConversation") or [*_crashed(row, original)]
    kept = {key: original[key] for key in _GIVEN if original.get(key)}
    if found and found.get("conversation"):  # given by another agent
        kept["conversation"] = found["conversation"]
    return {
        "evalSetId": name,
        "evalId": row.eval_id,
        "evalMode": "trace",
        "sessionInput": {},
        **kept,
        "actualConversation": turns,
    }


def _crashed(row: UnitRow, original: CaseData) -> Iterator[CaseData]:
    """Yield the turn of an agent that died before anything was recorded."""
    turns = original.get("conversation") or original.get("actualConversation") or [{}]
    yield {
        "userContent": (turns[0] or {}).get("userContent"),
        "telemetry": {"status": "error", "error": {"message": row.reason or "the agent crashed"}},
    }
