"""Run the new agent on recorded sessions, with the recorded results of their tools, and forecast."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import orjson

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.forecast.draw import draw_sessions
from evaltap.evaluator.analysis.forecast.fates import Fork, TurnFate, fates
from evaltap.evaluator.analysis.forecast.forecast import faithful_share, forecast
from evaltap.evaluator.analysis.forecast.model import Options, ReplayedTurn
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import run_failure
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.sessions import Session, read_sessions, recorded_case
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.loop import Progress, UnitDone
from evaltap.experiments.mocks.drift import ToolDrift, drift_of, renamed
from evaltap.experiments.mocks.recorded import names, recording_of
from evaltap.experiments.plan import (
    CaseSet,
    RunCase,
    read_case,
    without_examples,
    without_instructions,
)
from evaltap.experiments.process import AgentProcess
from evaltap.experiments.replay.recorded import (
    RecordedSession,
    RecordedTurn,
    documents,
    recorded_sessions,
)
from evaltap.experiments.replay.result import ForkedTool, ReplayResult
from evaltap.experiments.running import Finished, Request, Start, run_experiment, tried_agent
from evaltap.experiments.units import NAMED, UnitRow, named, read_units
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

SET: Final = "replay"
"""The name of the set that replayed sessions are in."""
MOST_SHOWN: Final = 20
"""Sessions of each list whose calls are compared."""
_LONGEST: Final = 500
"""Characters of a call or an answer in a difference."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The sessions of the traffic, those that are replayed, and those that cannot be."""

    sessions: tuple[RecordedSession, ...]
    chances: Mapping[str, float]
    """By the name of a drawn session: the probability with which it was drawn."""
    cases: CaseSet
    """Of the drawn sessions that can be replayed."""
    lost: Mapping[str, str]
    """Why the others cannot be, by name."""


def digests_of(scorer: CaseScorer) -> dict[str, str]:
    """Return the digests of the metrics, by name, under which the traffic was scored."""
    return {one.metric.metric_name: one.digest for one in run_metrics(scorer)}


def draw(
    store: StoreReader, choice: Choice, digests: Mapping[str, str], sample: int | None
) -> Drawn:
    """Return what is to be replayed; raise InputError if no session is recorded, or lacks verdicts."""
    sessions = recorded_sessions(store, choice, digests)
    chances = dict.fromkeys((one.name for one in sessions), 1.0)
    if sample is not None and sample < len(sessions):
        chances = draw_sessions({one.name: one.probability for one in sessions}, sample)
    chosen = [one for one in sessions if one.name in chances]
    found = documents(store, chosen)
    cases, lost = [], {}
    for one in chosen:
        try:
            cases.append(_case(one, found[one.key]))
        except InputError as error:
            why = " ".join(str(error).splitlines()[-1].split())
            lost[one.name] = why.removeprefix(f"{one.key[2]}: ")
    return Drawn(tuple(sessions), chances, CaseSet(SET, without_examples(cases)), lost)


def _case(session: RecordedSession, recorded: Session) -> RunCase:
    """Return a session as a case: what the user said, and what the tools returned."""
    if recorded.has_holes:
        raise InputError("earlier turns of the session were not recorded")
    if len(recorded.whole().turns) < len(recorded.turns):
        raise InputError("a turn paused and went on in another process, so it was recorded twice")
    case = read_case(recorded_case(recorded, "session"))
    return replace(
        case,
        eval_id=session.name,
        app_name=session.key[0],
        context=tuple(without_instructions(case.context)),
        expected=(),
        has_reference=False,
        recording=recording_of({"actualConversation": [one.actual for one in recorded.turns]}),
        crashes=frozenset(
            place for place, one in enumerate(recorded.turns) if run_failure(one.actual) is not None
        ),
        is_recorded=True,
    )


def possible(drawn: Drawn, request: Request) -> Drawn:
    """Return the draw without the sessions that go on from messages which the agent cannot be given.

    If there are such sessions, the agent's process is started to ask what it takes.
    """
    going_on = [one.eval_id for one in drawn.cases.cases if one.context]
    abilities = tried_agent(request)[0] if going_on else None
    if abilities is None or abilities.context:
        return drawn
    why = "what was said before cannot be given to the agent, which takes only the user's message"
    rest = tuple(one for one in drawn.cases.cases if not one.context)
    return replace(
        drawn, cases=CaseSet(SET, rest), lost={**drawn.lost, **dict.fromkeys(going_on, why)}
    )


@dataclass(frozen=True, slots=True)
class ReplayedSession:
    """What became of a drawn session, run by run."""

    session: RecordedSession
    rows: tuple[UnitRow | None, ...]
    fates: tuple[tuple[TurnFate, ...], ...]
    verdicts: tuple[Mapping[int, Mapping[str, bool]], ...]
    """By run: the verdicts of its turns, by number and metric."""


def replayed_sessions(
    drawn: Drawn, store: Store, finished: Finished, digests: Mapping[str, str], runs: int
) -> list[ReplayedSession]:
    """Read what an experiment made of the drawn sessions."""
    units = read_units(store, finished.plan.experiment_id)
    settled = [row.key for row in units.values() if row.state in ("scored", "crashed", "forked")]
    found = verdicts(store, settled, digests)
    sessions = []
    for one in drawn.sessions:
        if one.name not in drawn.chances:
            continue
        rows = tuple(units.get((one.name, trial)) for trial in range(1, runs + 1))
        sessions.append(
            ReplayedSession(
                one,
                rows,
                tuple(_fates(row, len(one.turns)) for row in rows),
                tuple({} if row is None else found.get(row.key, {}) for row in rows),
            )
        )
    return sessions


def _fates(row: UnitRow | None, turns: int) -> tuple[TurnFate, ...]:
    answers = ((row and row.answers) or {"turns": []})["turns"]
    return tuple(fates(row and row.state, answers, turns))


def others_of(drawn: Drawn) -> list[tuple[RecordedSession, int]]:
    """Return the sessions that were not drawn: one of those that are alike, and how many these are."""
    found: dict[object, list[RecordedSession]] = {}
    for session in drawn.sessions:
        if session.name not in drawn.chances:
            alike = tuple(
                (one.probability, one.first_tool, *sorted(one.verdicts.items()))
                for one in session.turns
            )
            found.setdefault(alike, []).append(session)
    return [(sessions[0], len(sessions)) for sessions in found.values()]


def turns_of(
    drawn: Drawn,
    replayed: Sequence[ReplayedSession],
    others: Sequence[tuple[RecordedSession, int]],
    metric: str | None,
) -> list[ReplayedTurn]:
    """Return the turns of the traffic as a forecast of a metric needs them; None: whether they are
    faithful.
    """
    rows = [
        replace(_turn(session, turn, metric), sessions=count)
        for session, count in others
        for turn in session.turns
    ]
    for one in replayed:
        for place, turn in enumerate(one.session.turns):
            rows.append(_replayed_turn(one, place, turn, drawn.chances, metric))
    return rows


def _turn(session: RecordedSession, turn: RecordedTurn, metric: str | None) -> ReplayedTurn:
    return ReplayedTurn(
        session.name,
        turn.first_tool,
        1 / turn.probability,
        None,
        True if metric is None else turn.verdicts.get(metric),
        length=len(session.turns),
    )


def _replayed_turn(
    found: ReplayedSession,
    place: int,
    turn: RecordedTurn,
    chances: Mapping[str, float],
    metric: str | None,
) -> ReplayedTurn:
    runs = zip(found.fates, found.verdicts, strict=True)
    new = tuple(_new(run[place], seen.get(place, {}), metric) for run, seen in runs)
    forks = (run[place].fork for run in found.fates if run[place].fate == "forked")
    fork = next(forks, None)
    return replace(
        _turn(found.session, turn, metric),
        replayed=1 / (turn.probability * chances[found.session.name]),
        new=new,
        fork=None if fork is None else fork.tool,
    )


def _new(fate: TurnFate, seen: Mapping[str, bool], metric: str | None) -> bool | None:
    if metric is None:
        return fate.is_faithful or None
    return fate.verdict(seen.get(metric))


def result_of(
    drawn: Drawn, replayed: Sequence[ReplayedSession], metrics: Iterable[str], options: Options
) -> ReplayResult:
    """Return the forecasts, and what they rest on."""
    others = others_of(drawn)
    figure = faithful_share(turns_of(drawn, replayed, others, None))
    runs_of_all = chain.from_iterable(session.fates for session in replayed)
    fates = Counter(one.fate for one in chain.from_iterable(runs_of_all))
    runs = len(replayed[0].rows) if replayed else 1
    drift = drift_of(row.answers for session in replayed for row in session.rows if row is not None)
    forecasts = {
        name: forecast(turns_of(drawn, replayed, others, name), options) for name in metrics
    }
    return ReplayResult(
        sessions=len(replayed),
        turns=sum(len(one.session.turns) for one in replayed),
        effective_sessions=None if figure is None else figure.effective_sessions,
        faithful=None if figure is None else figure.rate,
        metrics=forecasts,
        forks=tuple(_forks(drawn, replayed)),
        off_script=fates["off_script"],
        invalid=fates["invalid"],
        runs=runs,
        recorded=len(drawn.sessions) if len(replayed) < len(drawn.sessions) else None,
        drift={name: one.data() for name, one in drift.items()},
        notes=(*_without_evidence(drawn, replayed), *_renamed(drawn, drift)),
    )


_WHYS: Final = 5
"""The most frequent reasons for runs that are no evidence."""


def _without_evidence(drawn: Drawn, replayed: Sequence[ReplayedSession]) -> Iterator[str]:
    """Say why sessions were not replayed, and why runs are no evidence."""
    for why, count in Counter(drawn.lost.values()).items():
        yield f"not replayed: {counted(count, 'session')}: {why}"
    invalid = Counter(_invalid(one for one in replayed if one.session.name not in drawn.lost))
    for why, count in invalid.most_common(_WHYS):
        yield f"invalid: {counted(count, 'run')}: {why}"


def _invalid(replayed: Iterable[ReplayedSession]) -> Iterator[str]:
    """Yield why runs are no evidence about the agent, wholly or from a turn on."""
    for session in replayed:
        for row, run in zip(session.rows, session.fates, strict=True):
            if (first := next((turn for turn in run if turn.fate == "invalid"), None)) is not None:
                reason = (row and row.reason) or "it was not run"
                yield first.fork.why if first.fork is not None else reason


def _renamed(drawn: Drawn, drift: Mapping[str, ToolDrift]) -> Iterator[str]:
    """Say which tools seem to have another name now."""
    known = names(one.recording for one in drawn.cases.cases)
    asked = [tool for tool, one in drift.items() if one.hits]
    return renamed((tool for tool, one in drift.items() if one.misses), known, asked)


def _forks(drawn: Drawn, replayed: Sequence[ReplayedSession]) -> list[ForkedTool]:
    """Return the forks by tool, the most frequent first."""
    found: dict[str, list[tuple[float, Fork, str]]] = {}
    total = 0.0
    for one in replayed:
        chance = drawn.chances[one.session.name]
        weights = [1 / (turn.probability * chance) for turn in one.session.turns]
        for run in one.fates:
            total += sum(weights)
            for place, turn in enumerate(run):
                if turn.fate == "forked" and turn.fork is not None:
                    lost = sum(weights[place:])
                    found.setdefault(turn.fork.tool, []).append((lost, turn.fork, one.session.name))
    forks = [
        ForkedTool(
            tool,
            len(some),
            sum(lost for lost, *_ in some) / total,
            some[0][1].arguments,
            some[0][1].why,
            tuple(dict.fromkeys(name for *_, name in some)),
        )
        for tool, some in found.items()
    ]
    return sorted(forks, key=lambda one: (-one.share, one.tool))


def with_differences(
    found: ReplayResult, replayed: Sequence[ReplayedSession], old: StoreReader, new: StoreReader
) -> ReplayResult:
    """Return the result with the calls and answers of the sessions that fail or pass now."""
    metrics = found.metrics.values()
    failing = {name for one in metrics for name in one.newly_failing[:MOST_SHOWN]}
    named = failing | {name for one in metrics for name in one.newly_passing[:MOST_SHOWN]}
    sessions = [one for one in replayed if one.session.name in named]
    before = conversations(old, [one.session.key for one in sessions])
    telling = {
        one.session.name: _telling(one, fails=one.session.name in failing) for one in sessions
    }
    keys = {name: row.key for name, row in telling.items() if row is not None}
    after = conversations(new, keys.values())
    return replace(
        found,
        differences={
            one.session.name: difference_of(
                before.get(one.session.key, []), after.get(keys[one.session.name], [])
            )
            for one in sessions
            if one.session.name in keys
        },
    )


def _telling(session: ReplayedSession, *, fails: bool) -> UnitRow | None:
    """Return the first run that ended as the session is said to end now."""
    for row, of_turns, seen in zip(session.rows, session.fates, session.verdicts, strict=True):
        nothing: list[bool | None] = [None]
        verdicts = [
            fate.verdict(verdict)
            for place, fate in enumerate(of_turns)
            for verdict in [*seen.get(place, {}).values()] or nothing
        ]
        if row is not None and (False in verdicts if fails else all(verdicts)):
            return row
    return session.rows[0]


def replay(
    store: StoreReader,
    drawn: Drawn,
    request: Request,
    scorer: CaseScorer,
    into: Store,
    options: Options,
    *,
    report: Callable[[UnitDone, Progress], None] = lambda *_: None,
    start: Start = AgentProcess,
) -> tuple[ReplayResult, Finished]:
    """Run the agent on what was drawn, and forecast; raise InputError before the first call."""
    finished = run_experiment(request, scorer, into, report=report, start=start)
    replayable = {one.eval_id for one in drawn.cases.cases}
    sessions = [one for one in drawn.sessions if one.name in replayable]
    keep_recorded(store, sessions, into, finished.plan.experiment_id)
    digests = digests_of(scorer)
    replayed = replayed_sessions(drawn, into, finished, digests, request.runs)
    return with_differences(
        result_of(drawn, replayed, digests, options), replayed, store, into
    ), finished


_KEPT: Final = ("invocationId", "userContent", "tools", "finalResponse", "capture")
_AT_ONCE: Final = 500


def keep_recorded(
    traffic: StoreReader, sessions: Iterable[RecordedSession], into: Store, experiment_id: str
) -> None:
    """Write the sessions as they were recorded beside their runs; those that are there already stay."""
    there = into.column(
        "SELECT eval_id FROM recorded_sessions WHERE experiment_id = $id", {"id": experiment_id}
    )
    new = [one for one in sessions if one.name not in {*there}]
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


def conversations(store: StoreReader, keys: Iterable[CaseKey]) -> dict[CaseKey, list[CaseData]]:
    """Return the recorded turns of some cases."""
    found = read_sessions(store, [TurnKey(*key, "") for key in keys])
    return {key: [turn.actual for turn in one.turns] for key, one in found.items()}


def difference_of(old: list[CaseData], new: list[CaseData]) -> list[str]:
    """Return the lines of a diff: calls and answers of turns that are not alike, cost and latency.

    Cost and latency are those of the turns that both have.
    """
    lines: list[str] = []
    for number, turn in enumerate(new):
        before = [*_lines(old[number])] if number < len(old) else []
        after = [*_lines(turn)]
        if before != after:
            lines += [f"  user: {_said(turn.get('userContent'))}"]
            lines += [one for one in difflib.ndiff(before, after) if not one.startswith("?")]
    return [*lines, *_figures(old[: len(new)], new)] if lines else []


_FIGURES: Final = (
    ("cost", "costUsd", "${:.4f}", ""),
    (
        "latency",
        "latencyMs",
        "{:,.0f} ms",
        " (answered tools only take their time with --mock-latency)",
    ),
)


def _figures(old: list[CaseData], new: list[CaseData]) -> Iterator[str]:
    for name, key, form, note in _FIGURES:
        sums = [_sum(turns, key) for turns in (old, new)]
        if None not in sums:
            yield f"  {name}: {' -> '.join(map(form.format, sums))}{note}"


def _sum(turns: list[CaseData], key: str) -> float | None:
    values = [(turn.get("telemetry") or {}).get(key) for turn in turns]
    known = [one for one in values if isinstance(one, int | float)]
    return float(sum(known)) if len(known) == len(values) else None


def _lines(turn: CaseData) -> Iterator[str]:
    for tool in turn.get("tools") or ():
        if tool:
            arguments = orjson.dumps(tool.get("arguments") or {}, option=orjson.OPT_SORT_KEYS)
            yield _cut(f"{tool.get('name')}({arguments.decode()})")
    yield f"answer: {_said(turn.get('finalResponse'))}"


def _said(message: Mapping[str, object] | None) -> str:
    content = (message or {}).get("content")
    return _cut(" ".join(str(content or "-").split()))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
