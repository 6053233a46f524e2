"""Experiments: runs of an agent on a set or on recorded sessions; their units, and a session's runs side by
side."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from evaltap.evaluator.analysis.forecast.fates import Fork, TurnFate, fates, fork_of
from evaltap.evaluator.analysis.forecast.forecast import newly
from evaltap.evaluator.analysis.forecast.model import ReplayedTurn
from evaltap.evaluator.analysis.stats.estimate import Cell, Profile, estimate
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.page.request import PageAnswer, PageRequest, Tab, case_link, link, problem
from evaltap.evaluator.reports.html.beside import SessionBeside, sessions_beside
from evaltap.evaluator.reports.model import pattern
from evaltap.evaluator.store.queries import StoreReader

PER_PAGE: Final = 50
_REASONS: Final = 12
_STATES: Final = ("scored", "crashed", "forked", "invalid", "ran", "begun")
TABS: Final = (
    "newly failing",
    "newly passing",
    "crashed",
    "failed",
    "forked",
    "off script",
    "invalid",
    "unfinished",
    "passed",
    "no verdict",
)
"""The kinds of sessions, in the order in which they are listed; each session is in the first that fits."""
_METRIC: Final = "metric "

_EXPERIMENTS: Final = """
SELECT experiment_id, arg_max(set_name, started_at) AS set_name, arg_max(agent, started_at) AS agent,
       arg_max(version, started_at) AS version, arg_max(runs, started_at) AS runs,
       arg_max(configuration, started_at) AS configuration, min(started_at) AS started_at,
       count(*) AS starts, experiment_id IN (SELECT experiment_id FROM recorded_sessions) AS is_replay
FROM experiments WHERE $id::VARCHAR IN ('', experiment_id)
GROUP BY experiment_id ORDER BY min(experiments.started_at) DESC, experiment_id
"""
_UNITS_BY_STATE: Final = """
SELECT experiment_id, state, count(*) FROM latest_units
WHERE experiment_id IN $ids::VARCHAR[] GROUP BY ALL
"""
# As `evaltap run` counts: a crashed unit passes nothing; one that was not evaluated does not count.
_VERDICTS: Final = """
WITH wanted AS (
  SELECT unnest($of::VARCHAR[]) AS experiment_id, unnest($metrics::VARCHAR[]) AS metric,
         unnest($digests::VARCHAR[]) AS metric_digest
), these AS (
  FROM latest_units WHERE experiment_id IN $of::VARCHAR[] AND state IN ('scored', 'crashed')
), statuses AS (
  SELECT u.experiment_id, u.eval_id, u.trial, w.metric,
         arg_max(s.status, (s.revision, s.scored_at)) AS status
  FROM these u JOIN scores s USING (app_name, eval_set_id, eval_id)
  JOIN wanted w USING (experiment_id, metric_digest) GROUP BY ALL
), by_metric AS (
  SELECT u.experiment_id, u.eval_id, u.trial, w.metric,
         CASE WHEN u.state = 'crashed' OR s.status = 'crashed' THEN false
              WHEN s.status IN ('passed', 'failed') THEN s.status = 'passed' END AS passed
  FROM these u JOIN wanted w USING (experiment_id)
  LEFT JOIN statuses s USING (experiment_id, eval_id, trial, metric)
), by_unit AS (
  SELECT experiment_id, eval_id, trial, '' AS metric, bool_and(passed) AS passed FROM by_metric GROUP BY ALL
)
"""
_PROFILES: Final = f"""
{_VERDICTS}
SELECT experiment_id, metric, n, c, count(*) FROM (
  SELECT experiment_id, metric, eval_id, count(passed) AS n, count_if(passed) AS c
  FROM (FROM by_metric UNION ALL BY NAME FROM by_unit) GROUP BY ALL
) WHERE n > 0 GROUP BY ALL ORDER BY ALL
"""
_UNITS: Final = f"""
{_VERDICTS}
SELECT u.eval_id, u.trial, u.state, coalesce(u.reason, '') AS reason, u.mocks, p.passed
FROM latest_units u LEFT JOIN by_unit p USING (experiment_id, eval_id, trial)
WHERE u.experiment_id = $id ORDER BY u.eval_id, u.trial
"""
_TURN_VERDICTS: Final = """
SELECT u.eval_id, u.trial, s.turn_index, s.metric_name, arg_max(s.status, s.scored_at)
FROM latest_units u JOIN turn_scores s USING (app_name, eval_set_id, eval_id)
WHERE u.experiment_id = $id AND s.metric_digest IN $digests::VARCHAR[] GROUP BY ALL
"""
_RECORDED: Final = "SELECT eval_id, verdicts FROM recorded_sessions WHERE experiment_id = $id"


@dataclass(frozen=True, slots=True)
class StateCount:
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class MetricRate:
    """The runs that passed a metric, or with an empty name all metrics."""

    metric: str
    passed: int
    rate: Rate
    """Its interval knows that runs of one case resemble each other."""


@dataclass(frozen=True, slots=True)
class Experiment:
    experiment_id: str
    set_name: str
    agent: str
    version: str
    runs: int
    started_at: datetime
    """Of the first start, UTC, without a time zone."""
    starts: int
    is_replay: bool
    """Whether it replays recorded sessions that this store has."""
    states: tuple[StateCount, ...]
    rates: tuple[MetricRate, ...]
    """That of all metrics together first; empty without verdicts."""
    href: str


@dataclass(frozen=True, slots=True)
class ExperimentsPage:
    """The content of the list, newest first."""

    experiments: tuple[Experiment, ...]
    total: int
    older_href: str
    newer_href: str


@dataclass(frozen=True, slots=True)
class UnitReason:
    """Why units forked, crashed or are invalid."""

    state: str
    tool: str
    """Of the call without a recorded result; otherwise empty."""
    why: str
    count: int
    eval_ids: tuple[str, ...]
    """Examples."""


class UnitMark(NamedTuple):
    """A run of a session in the list."""

    trial: int
    kind: str
    """passed, failed, crashed, forked, off script, invalid, unfinished or no verdict."""


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session, or a case of a set, with its runs."""

    eval_id: str
    kind: str
    """One of `TABS`."""
    runs: tuple[UnitMark, ...]
    reason: str
    """Of the first run that has one."""
    href: str


@dataclass(frozen=True, slots=True)
class ExperimentPage:
    experiment: Experiment
    reasons: tuple[UnitReason, ...]
    more_reasons: int
    show: str
    """The shown kind of sessions; empty: all."""
    tabs: tuple[Tab, ...]
    sessions: tuple[SessionLine, ...]
    matched: int
    next_href: str
    previous_href: str


@dataclass(frozen=True, slots=True)
class SessionPage:
    """The content of the page of a session: its runs beside each other."""

    experiment: Experiment
    session: SessionBeside
    run_hrefs: tuple[str, ...]
    """The pages of the runs as cases; empty for a run without a whole turn."""
    list_href: str
    self_href: str
    place: str
    previous_href: str
    next_href: str


def read(reader: StoreReader, request: PageRequest) -> ExperimentsPage:
    """Return the page of experiments that begins at the parameter `at`."""
    rows = reader.records(_EXPERIMENTS, {"id": ""})
    at = min(request.count("at"), len(rows))
    until = at + PER_PAGE
    return ExperimentsPage(
        _experiments(reader, rows[at:until]),
        len(rows),
        link("/experiments", at=until) if until < len(rows) else "",
        link("/experiments", at=max(at - PER_PAGE, 0) or None) if at else "",
    )


def _experiments(reader: StoreReader, rows: Sequence[Mapping[str, Any]]) -> tuple[Experiment, ...]:
    ids = [row["experiment_id"] for row in rows]
    counts: dict[str, dict[str, int]] = {}
    for name, state, count in reader.rows(_UNITS_BY_STATE, {"ids": ids}):
        counts.setdefault(name, {})[state] = count
    profiles: dict[str, dict[str, list[tuple[int, int, int]]]] = {}
    for name, metric, n, passed, cases in reader.rows(_PROFILES, _wanted(rows)):
        profiles.setdefault(name, {}).setdefault(metric, []).append((n, passed, cases))
    return tuple(
        Experiment(
            **{name: value for name, value in row.items() if name != "configuration"},
            states=tuple(
                StateCount(state, count)
                for state in _STATES
                if (count := counts.get(row["experiment_id"], {}).get(state))
            ),
            rates=tuple(_rates(profiles.get(row["experiment_id"], {}))),
            href=link("/experiment", id=row["experiment_id"]),
        )
        for row in rows
    )


def _wanted(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"of": [], "metrics": [], "digests": []}
    for row in rows:
        for part, digest in orjson.loads(row["configuration"]).items():
            if part.startswith(_METRIC):
                found["of"].append(row["experiment_id"])
                found["metrics"].append(part.removeprefix(_METRIC))
                found["digests"].append(digest)
    return found


def _rates(profiles: Mapping[str, Sequence[tuple[int, int, int]]]) -> Iterable[MetricRate]:
    for metric, rows in sorted(profiles.items()):
        found = estimate(
            (Profile((Cell(1.0, n, c, c),), cases) for n, c, cases in rows), unit="trials"
        )
        if found is not None:
            yield MetricRate(metric, sum(c * cases for _, c, cases in rows), found.rate)


# -- one experiment ------------------------------------------------------------------------------


def view_one(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read an experiment, or with the parameter `case` one of its sessions; 404 if it does not exist."""
    name, session = request.exact("id"), request.exact("case")
    rows = reader.records(_EXPERIMENTS, {"id": name}) if name else []
    if not rows:
        return problem(404, f"There is no experiment {name!r} in {request.store_path}.")
    (experiment,) = _experiments(reader, rows)
    lines, reasons = _sessions(reader, experiment, rows)
    if session:
        if (found := _session_page(reader, request, experiment, lines)) is None:
            return problem(404, f"There is no session {session!r} in experiment {name!r}.")
        return PageAnswer("beside.html.j2", session, found)
    shown = request["show"] if request["show"] in TABS else ""
    chosen = [one for one in lines if shown in ("", one.kind)]
    at = min(request.count("at"), len(chosen))
    until = at + PER_PAGE

    def to(**changed: str | int | None) -> str:
        return link("/experiment", **{"id": experiment.experiment_id, "show": shown} | changed)

    counts = Counter(one.kind for one in lines)
    page = ExperimentPage(
        experiment=experiment,
        reasons=tuple(reasons[:_REASONS]),
        more_reasons=max(0, len(reasons) - _REASONS),
        show=shown,
        tabs=(
            Tab("all", len(lines), to(show=None)),
            *(Tab(name, counts[name], to(show=name)) for name in TABS if counts[name]),
        ),
        sessions=tuple(replace(one, href=to(case=one.eval_id)) for one in chosen[at:until]),
        matched=len(chosen),
        next_href=to(at=until) if until < len(chosen) else "",
        previous_href=to(at=max(at - PER_PAGE, 0) or None) if at else "",
    )
    return PageAnswer("experiment.html.j2", name, page)


@dataclass(slots=True)
class _Unit:
    """A run, with what it takes to tell what became of it."""

    trial: int
    state: str
    reason: str
    answers: Sequence[Mapping[str, Any]]
    passed: bool | None
    fates: Sequence[TurnFate]
    """Of the recorded turns; empty if it is no replay."""

    @property
    def kind(self) -> str:
        left = {one.fate for one in self.fates} if self.state in ("scored", "forked") else set()
        for fate in ("forked", "invalid", "off_script"):
            if fate in left and (fate != "off_script" or self.passed is not False):
                return fate.replace("_", " ")
        if self.state == "scored":
            return "no verdict" if self.passed is None else "passed" if self.passed else "failed"
        return "unfinished" if self.state in ("begun", "ran") else self.state

    @property
    def fork(self) -> Fork | None:
        return next((one for turn in self.answers if (one := fork_of(turn)) is not None), None)


def _sessions(
    reader: StoreReader, experiment: Experiment, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[SessionLine], list[UnitReason]]:
    wanted = _wanted(rows)
    units: dict[str, list[_Unit]] = {}
    named = {"id": experiment.experiment_id}
    old = {eval_id: orjson.loads(given) for eval_id, given in reader.rows(_RECORDED, named)}
    for eval_id, trial, state, reason, mocks, passed in reader.rows(_UNITS, {**wanted, **named}):
        answers = orjson.loads(mocks)["turns"] if mocks else ()
        found = tuple(fates(state, answers, len(old.get(eval_id, ()))))
        units.setdefault(eval_id, []).append(_Unit(trial, state, reason, answers, passed, found))
    changed = _changed(reader, named, wanted["digests"], units, old) if old else {}
    lines = []
    for eval_id, runs in units.items():
        kinds = {one.kind for one in runs} | changed.get(eval_id, set())
        lines.append(
            SessionLine(
                eval_id,
                next(one for one in TABS if one in kinds),
                tuple(UnitMark(one.trial, one.kind) for one in runs),
                next((one.reason for one in runs if one.reason), ""),
                link("/experiment", id=experiment.experiment_id, case=eval_id),
            )
        )
    lines.sort(key=lambda one: (TABS.index(one.kind), one.eval_id))
    return lines, _reasons(units)


def _changed(
    reader: StoreReader,
    named: Mapping[str, str],
    digests: Sequence[str],
    units: Mapping[str, Sequence[_Unit]],
    old: Mapping[str, Sequence[Mapping[str, bool]]],
) -> dict[str, set[str]]:
    """Return the sessions of a replay that fail or pass now, as its forecast lists them."""
    new: dict[tuple[str, int, int, str], bool] = {}
    for eval_id, trial, place, metric, status in reader.rows(
        _TURN_VERDICTS, {**named, "digests": list(digests)}
    ):
        if status in ("passed", "failed", "crashed"):
            new[eval_id, trial, place, metric] = status == "passed"
    by_metric: dict[str, list[ReplayedTurn]] = {}
    for eval_id, runs in units.items():
        for place, verdicts in enumerate(old.get(eval_id, ())):
            for metric, before in verdicts.items():
                now = tuple(
                    one.fates[place].verdict(new.get((eval_id, one.trial, place, metric)))
                    for one in runs
                )
                row = ReplayedTurn(eval_id, None, 1.0, None, before, now)
                by_metric.setdefault(metric, []).append(row)
    changed: dict[str, set[str]] = {}
    for rows in by_metric.values():
        for kind, ids in zip(("newly failing", "newly passing"), newly(rows), strict=True):
            for eval_id in ids:
                changed.setdefault(eval_id, set()).add(kind)
    return changed


def _reasons(units: Mapping[str, Sequence[_Unit]]) -> list[UnitReason]:
    """Return why units forked, crashed or are invalid, the most frequent first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for eval_id, runs in units.items():
        for one in runs:
            if one.kind not in ("forked", "crashed", "invalid"):
                continue
            fork = one.fork
            tool = fork.tool if fork is not None and not fork.is_lost else ""
            why = pattern(one.reason) if fork is None else fork.why
            found.setdefault((one.kind, tool, why), []).append(eval_id)
    reasons = [
        UnitReason(*key, len(ids), tuple(dict.fromkeys(ids))[:3]) for key, ids in found.items()
    ]
    return sorted(reasons, key=lambda one: (-one.count, one.state, one.tool, one.why))


def _session_page(
    reader: StoreReader, request: PageRequest, experiment: Experiment, lines: Sequence[SessionLine]
) -> SessionPage | None:
    found = next(sessions_beside(reader, experiment.experiment_id, [request.exact("case")]), None)
    if found is None:
        return None
    shown = request["show"] if request["show"] in TABS else ""
    ids = [one.eval_id for one in lines if shown in ("", one.kind)]

    def to(eval_id: str) -> str:
        return link("/experiment", id=experiment.experiment_id, show=shown, case=eval_id)

    at = ids.index(found.eval_id) if found.eval_id in ids else -1
    return SessionPage(
        experiment,
        found,
        tuple(case_link(one.key) if one.has_turns else "" for one in found.runs),
        link("/experiment", id=experiment.experiment_id, show=shown),
        to(found.eval_id),
        f"{at + 1:,} of {len(ids):,}" if at >= 0 else "",
        to(ids[at - 1]) if at > 0 else "",
        to(ids[at + 1]) if 0 <= at < len(ids) - 1 else "",
    )
