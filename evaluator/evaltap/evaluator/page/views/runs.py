"""The scoring runs of a store, and the page of one run with its metrics and its worst cases."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from evaltap.evaluator.page.request import PageAnswer, PageRequest, case_link, link, problem
from evaltap.evaluator.reports.summary import CaseRow, Summary, summarise
from evaltap.evaluator.scoring.results.runs import RunState, listed_runs, run_states
from evaltap.evaluator.store.queries import StoreReader

PER_PAGE: Final = 50
WORST: Final = 20


@dataclass(frozen=True, slots=True)
class ScoringRun:
    """A run; counts are of scores: one for each case and metric."""

    run_id: str
    kind: str
    source: str
    started_at: datetime
    """UTC, without a time zone."""
    ended_at: datetime | None
    last_scored_at: datetime | None
    cases: int
    passed: int
    failed: int
    crashed: int
    not_evaluated: int
    errors: int
    gate: Mapping[str, int] | None
    """For a gate's run: the number of results, and how many passed, failed or are incomplete."""
    state: RunState
    pass_rate: float | None
    """The pass rate of the scores with a verdict."""


@dataclass(frozen=True, slots=True)
class RunLine:
    run: ScoringRun
    href: str
    role: str
    """The role in the form's comparison: `a`, `b` or neither."""


@dataclass(frozen=True, slots=True)
class RunsPage:
    """The content of the list, newest first."""

    runs: tuple[RunLine, ...]
    total: int
    older_href: str
    newer_href: str
    landed: bool
    versions: int
    """The number of the agent's versions in the traffic."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """A case that did not pass, with its link."""

    case: CaseRow
    href: str


@dataclass(frozen=True, slots=True)
class RunPage:
    run: ScoringRun
    summary: Summary
    worst: tuple[WorstCase, ...]
    cases_href: str
    """The list of its cases; empty if none of them has landed."""
    others: tuple[RunLine, ...]
    """Runs to compare with, newest first."""


def read(reader: StoreReader, request: PageRequest) -> RunsPage:
    """Return the page of runs that begins at the parameter `at`."""
    lines = newest_first(reader, landing=request.live)
    at = min(request.count("at"), len(lines))
    shown = lines[at : at + PER_PAGE]
    with_scores = [line.run.run_id for line in shown if line.run.cases][:2]
    if len(with_scores) == 2:
        roles = dict(zip(with_scores, "ba", strict=True))
        shown = [replace(one, role=roles.get(one.run.run_id, "")) for one in shown]
    return RunsPage(
        tuple(shown),
        len(lines),
        link("/runs", at=at + PER_PAGE) if at + PER_PAGE < len(lines) else "",
        link("/runs", at=max(at - PER_PAGE, 0) or None) if at else "",
        bool(reader.rows("SELECT 1 FROM cases LIMIT 1")),
        reader.rows("SELECT count(DISTINCT version) FROM turns WHERE version <> ''")[0][0],
    )


def newest_first(reader: StoreReader, *, landing: bool = False) -> list[RunLine]:
    """Return the runs with their links; `landing` is whether a consumer is landing turns in the store."""
    rows = listed_runs(reader)
    states = run_states(rows, landing=landing)
    lines = [
        RunLine(_run(row, state), link("/run", id=row["run_id"]), "")
        for row, state in zip(rows, states, strict=True)
    ]
    return lines[::-1]


def _run(row: Mapping[str, Any], state: RunState) -> ScoringRun:
    known = row["passed"] + row["failed"] + row["crashed"]
    times = {
        name: None if row[name] is None else datetime.fromisoformat(row[name])
        for name in ("started_at", "ended_at", "last_scored_at")
    }
    rate = row["passed"] / known if known else None
    return ScoringRun(**{**row, **times, "state": state, "pass_rate": rate})


def view_one(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read a run; 404 if it does not exist."""
    if (found := read_one(reader, request.exact("id"), landing=request.live)) is None:
        return problem(404, f"There is no run {request.exact('id')!r} in {request.store_path}.")
    return PageAnswer("run.html.j2", request.exact("id"), found)


def read_one(reader: StoreReader, run_id: str, *, landing: bool = False) -> RunPage | None:
    """Return the page of a run; None if it does not exist."""
    lines = newest_first(reader, landing=landing)
    if (this := next((line for line in lines if line.run.run_id == run_id), None)) is None:
        return None
    summary = summarise(reader, run_id=run_id, worst=WORST)
    return RunPage(
        this.run,
        summary,
        tuple(WorstCase(one, case_href(one, run_id)) for one in summary.worst),
        link("/cases", q=f'run:"{run_id}"') if reader.rows(_LANDED, {"run": run_id}) else "",
        tuple(line for line in lines if line is not this and line.run.cases)[:PER_PAGE],
    )


_LANDED: Final = """
SELECT 1 FROM scores SEMI JOIN cases USING (app_name, eval_set_id, eval_id) WHERE run_id = $run LIMIT 1
"""


def case_href(case: CaseRow, run_id: str) -> str:
    """Return the link to a case under the scores of a run."""
    key = case.app_name, case.eval_set_id, case.eval_id
    return case_link(key, run=run_id, metric=case.metric_name)
