"""The runs of a session beside each other, and beside the recorded session where a replay kept it.

Calls are aligned with those of the first column: the recorded ones, otherwise those of the first run.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

import orjson

from evaltap.evaluator.analysis.forecast.fates import TurnFate, fates, fork_of
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import cut
from evaltap.evaluator.cases.turn import ToolCall, Turn
from evaltap.evaluator.reports.diff_lines import SIGNS, Argument, Differing, DiffLine, lines_of
from evaltap.evaluator.reports.evidence import compared_calls, error_text, made_calls
from evaltap.evaluator.reports.model import Call, Limits
from evaltap.evaluator.reports.reader import landed_data
from evaltap.evaluator.reports.scope import these_cases
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted

LIMITS: Final = Limits(turns=30, calls=100)

CallKind = Literal["base", "same", "changed", "moved", "missing", "not_reached", "extra", "fork"]
"""base: of the column that the others are compared with; not_reached: the run ended before; fork: the call
that the recording did not answer."""
_SIGNS: Final[Mapping[str, str]] = {
    **{str(kind): sign for kind, sign in SIGNS.items()},
    "base": SIGNS["made"],
    "not_reached": "…",
    "fork": "⊘",
}
_WORDS: Final[Mapping[CallKind, str]] = {
    "base": "",
    "same": "the same call",
    "changed": "other arguments",
    "moved": "out of order",
    "missing": "not called",
    "not_reached": "not reached",
    "extra": "only here",
    "fork": "fork",
}


class Said(NamedTuple):
    """A metric's verdict on a turn."""

    metric: str
    status: str


@dataclass(frozen=True, slots=True)
class CallCell:
    """A call in one column, or its absence."""

    kind: CallKind
    sign: str
    word: str
    name: str
    call: Call | None
    """None if the call was not made."""
    arguments: tuple[Argument, ...]
    """Those of a call without a counterpart and of a fork, without those that differ."""
    differing: tuple[Differing, ...]
    """What differs from the counterpart."""
    why: str
    """Why the recording had no result for the call; empty if it is no fork."""

    @property
    def differs(self) -> bool:
        """Whether it is a difference, and thus a target for navigation."""
        return self.kind not in ("base", "same", "not_reached")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended in one column."""

    answer: str | None
    is_same: bool
    """Whether the answer is that of the first column."""
    note: str
    """Why there is no answer, or what the turn is no evidence of."""
    error: str
    verdicts: tuple[Said, ...]
    """Those that did not pass, or that differ between columns."""


@dataclass(frozen=True, slots=True)
class TurnBeside:
    place: int
    """From 1."""
    user: str | None
    rows: tuple[tuple[CallCell | None, ...], ...]
    """The calls; None where a column has none, and none is missing."""
    ends: tuple[TurnEnd, ...]
    differs: bool
    """Whether any run did anything else than the first column."""


@dataclass(frozen=True, slots=True)
class RunHead:
    trial: int
    state: str
    reason: str
    """Why it crashed or is invalid; otherwise, with a simulated user, why the conversation ended."""
    key: CaseKey
    """The case of its turns."""
    has_turns: bool
    """Whether any of its turns is in the store."""


@dataclass(frozen=True, slots=True)
class SessionBeside:
    eval_id: str
    columns: tuple[str, ...]
    is_recorded: bool
    """Whether the first column is the recorded session."""
    runs: tuple[RunHead, ...]
    turns: tuple[TurnBeside, ...]
    note: str
    """What is not shown."""


# -- reading ---------------------------------------------------------------------------------------

_UNITS: Final = """
SELECT eval_id, trial, state, coalesce(reason, 'conversation ended by ' || ended_by, ''), app_name,
       eval_set_id, mocks
FROM latest_units
WHERE experiment_id = $id AND eval_id IN $ids::VARCHAR[] ORDER BY eval_id, trial
"""
_RECORDED: Final = """
SELECT eval_id, conversation, verdicts FROM recorded_sessions
WHERE experiment_id = $id AND eval_id IN $ids::VARCHAR[]
"""
_VERDICTS: Final = """
SELECT app_name, eval_set_id, eval_id, turn_index, metric_name, arg_max(status, scored_at) FROM turn_scores
WHERE eval_id IN $ids::VARCHAR[] AND eval_set_id IN $sets::VARCHAR[] GROUP BY ALL
"""


@dataclass(slots=True)
class _Column:
    turn: Turn | None = None
    """None: nothing was recorded of it."""
    calls: list[ToolCall] | None = None
    """None: the turn was not run."""
    fork: int = -1
    """The place of the call that the recording did not answer."""
    why: str = ""
    is_cut: bool = False
    """Whether the turn ended at the fork."""
    fate: TurnFate | None = None
    verdicts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """The answer; None if it is not known."""
        return None if self.turn is None else self.turn.final_text


@dataclass(slots=True)
class _Run:
    key: CaseKey
    trial: int
    state: str
    reason: str
    answers: Sequence[Mapping[str, Any]]
    """What tools were asked, turn by turn."""
    turns: Sequence[CaseData] = ()
    verdicts: dict[int, dict[str, str]] = field(default_factory=dict)
    """By turn, from 0, and metric."""


def sessions_beside(
    store: StoreReader, experiment_id: str, eval_ids: Sequence[str]
) -> Iterator[SessionBeside]:
    """Yield some sessions of an experiment, in the given order; those without a run are left out."""
    given = {"id": experiment_id, "ids": list(eval_ids)}
    runs: dict[str, list[_Run]] = {}
    for eval_id, trial, state, reason, app, eval_set, mocks in store.rows(_UNITS, given):
        answers = orjson.loads(mocks)["turns"] if mocks else []
        runs.setdefault(eval_id, []).append(
            _Run((app, eval_set, eval_id), trial, state, reason, answers)
        )
    _with_turns(store, {one.key: one for some in runs.values() for one in some})
    recorded = {
        eval_id: (orjson.loads(conversation), orjson.loads(verdicts))
        for eval_id, conversation, verdicts in store.rows(_RECORDED, given)
    }
    for eval_id in eval_ids:
        if eval_id in runs:
            yield _session(eval_id, recorded.get(eval_id), runs[eval_id])


def _with_turns(store: StoreReader, runs: Mapping[CaseKey, _Run]) -> None:
    if not runs:
        return
    with these_cases(store, runs) as cases:
        for key, data in landed_data(store, cases):
            runs[key].turns = data.get("actualConversation") or ()
    ids, sets = {key[2] for key in runs}, {key[1] for key in runs}
    for *parts, place, metric, status in store.rows(
        _VERDICTS, {"ids": sorted(ids), "sets": sorted(sets)}
    ):
        if (run := runs.get((parts[0], parts[1], parts[2]))) is not None:
            run.verdicts.setdefault(place, {})[metric] = status


# -- columns ---------------------------------------------------------------------------------------


def _session(
    eval_id: str,
    recorded: tuple[list[CaseData], list[Mapping[str, bool]]] | None,
    runs: Sequence[_Run],
) -> SessionBeside:
    spoken, verdicts = recorded or ([], [])
    count = max([len(spoken), *(max(len(one.turns), len(one.answers)) for one in runs)])
    fate = {
        one.trial: list(fates(one.state, one.answers, len(spoken))) if recorded else []
        for one in runs
    }
    turns = []
    for place in range(min(count, LIMITS.turns)):
        columns = [_of_run(one, place, fate[one.trial]) for one in runs]
        if recorded:
            columns.insert(0, _of_recorded(spoken, verdicts, place))
        turns.append(_turn(place + 1, columns, is_recorded=recorded is not None))
    several = len(runs) > 1
    names = [f"run {one.trial}" if several or not recorded else "new" for one in runs]
    rest = count - len(turns)
    return SessionBeside(
        eval_id,
        (*(["recorded"] if recorded else []), *names),
        recorded is not None,
        tuple(RunHead(one.trial, one.state, one.reason, one.key, bool(one.turns)) for one in runs),
        tuple(turns),
        f"{counted(rest, 'more turn')} not shown" if rest else "",
    )


def _of_recorded(
    spoken: Sequence[CaseData], verdicts: Sequence[Mapping[str, bool]], place: int
) -> _Column:
    if place >= len(spoken):
        return _Column()
    turn = Turn(spoken[place])
    given = verdicts[place] if place < len(verdicts) else {}
    said = {metric: "passed" if passed else "failed" for metric, passed in given.items()}
    return _Column(turn, [call or {} for call in turn.tools], verdicts=said)


def _of_run(run: _Run, place: int, fate: Sequence[TurnFate]) -> _Column:
    """Return a turn of a run; the one in which a replay forked has not landed."""
    turn = Turn(run.turns[place]) if place < len(run.turns) else None
    asked = run.answers[place] if place < len(run.answers) else None
    found = _Column(
        turn, fate=fate[place] if place < len(fate) else None, verdicts=run.verdicts.get(place, {})
    )
    if turn is not None:
        found.calls = [call or {} for call in turn.tools]
    elif asked is not None:
        made = asked.get("calls") or ()
        found.calls = [{"name": one["tool"], "arguments": one["arguments"]} for one in made]
    if asked is not None and found.calls is not None:
        _mark_fork(found, found.calls, asked)
    return found


def _mark_fork(found: _Column, calls: list[ToolCall], asked: Mapping[str, Any]) -> None:
    """Mark the call at which the run left the recording, if it did."""
    if (fork := fork_of(asked)) is None:
        return
    found.why, found.is_cut = fork.sentence, bool(asked["misses"])
    places = [at for at, one in enumerate(calls) if one.get("name") == fork.tool]
    if found.is_cut:  # the call is the last one, if the turn has landed at all
        places = [at for at in places if found.turn is not None and calls[at].get("error")][-1:]
    places.sort(key=lambda at: calls[at].get("arguments") != fork.arguments)  # equal ones first
    found.fork = places[0] if places else len(calls)
    if not places:
        calls.append({"name": fork.tool, "arguments": fork.arguments})


# -- rows ------------------------------------------------------------------------------------------


def _statuses(columns: Iterable[_Column]) -> Mapping[str, set[str]]:
    """Return the verdicts of each metric."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in columns:
        for metric, status in one.verdicts.items():
            found[metric].add(status)
    return found


def _turn(place: int, columns: list[_Column], *, is_recorded: bool) -> TurnBeside:
    rows = _rows(columns)
    statuses = _statuses(columns)
    shown = {metric for metric, some in statuses.items() if some != {"passed"}}
    ends = [_end(one, columns[0], shown, is_recorded=False) for one in columns[1:]]
    ends.insert(0, _end(columns[0], None, shown, is_recorded=is_recorded))
    user = next((one.turn.user_text for one in columns if one.turn is not None), None)
    same = all(one.is_same for one in ends[1:]) and not any(one.note for one in ends)
    agree = all(len(some) == 1 for some in statuses.values())
    alike = all(cell and not cell.differs for cell in chain.from_iterable(rows))
    differs = not (same and agree and alike)
    return TurnBeside(place, user and cut(user, LIMITS.text), rows, tuple(ends), differs)


def _end(one: _Column, first: _Column | None, shown: Set[str], *, is_recorded: bool) -> TurnEnd:
    """Return how a column ends; `shown` are the metrics whose verdicts are of interest."""
    text = one.text
    telemetry = {} if one.turn is None else one.turn.data.get("telemetry") or {}
    return TurnEnd(
        text and cut(text, LIMITS.text),
        first is not None and text is not None and text == first.text,
        _note(one, is_recorded=is_recorded),
        error_text(telemetry.get("error") or {}),
        tuple(Said(metric, one.verdicts[metric]) for metric in sorted(shown & one.verdicts.keys())),
    )


def _rows(columns: Sequence[_Column]) -> tuple[tuple[CallCell | None, ...], ...]:
    """Return the calls of the first column in order, each with its counterparts, and others between."""
    first = columns[0].calls or []
    base = [
        [_cell(line, columns[0], is_base=True), *[None] * (len(columns) - 1)]
        for line in lines_of(made_calls(first, LIMITS))
    ]
    others: dict[int, list[list[CallCell | None]]] = {}
    for at, column in enumerate(columns[1:], 1):
        if column.calls is None:
            continue
        after, forked = 0, False
        for line in lines_of(compared_calls(first, column.calls, LIMITS)):
            cell = _cell(line, column, is_past=forked and column.is_cut)
            forked = forked or cell.kind == "fork"
            if line.expected_place is None:
                _row_for(cell.name, at, others.setdefault(after, []), len(columns))[at] = cell
                continue
            base[line.expected_place - 1][at] = cell
            if line.kind != "moved":
                after = line.expected_place
    found = [*others.get(0, [])]
    for number, row in enumerate(base, 1):
        found += [row, *others.get(number, [])]
    return tuple(map(tuple, found))


def _row_for(
    name: str, at: int, rows: list[list[CallCell | None]], width: int
) -> list[CallCell | None]:
    """Return the row of other runs' calls of the same tool at this place, or a new one."""
    for row in rows:
        if row[at] is None and any(one is not None and one.name == name for one in row):
            return row
    rows.append([None] * width)
    return rows[-1]


def _cell(
    line: DiffLine, column: _Column, *, is_base: bool = False, is_past: bool = False
) -> CallCell:
    kind: CallKind
    if line.actual_place == column.fork + 1 and column.fork >= 0:
        kind = "fork"
    elif is_base:
        kind = "base"
    elif line.kind == "missing":
        kind = "not_reached" if is_past else "missing"
    else:
        kind = line.kind if line.kind in ("same", "changed", "moved") else "extra"
    return CallCell(
        kind,
        _SIGNS[kind],
        _WORDS[kind],
        line.name,
        None if line.actual is None else _new(line.actual, line.expected),
        line.arguments if kind in ("base", "extra", "fork") else (),
        line.differing,
        column.why if kind == "fork" else "",
    )


def _new(call: Call, recorded: Call | None) -> Call:
    """Return a call without the outcome that it shares with its counterpart."""
    if recorded is None or (call.result, call.error) != (recorded.result, recorded.error):
        return call
    return Call(call.name, call.arguments, agent=call.agent)


def _note(column: _Column, *, is_recorded: bool) -> str:
    fate = column.fate.fate if column.fate is not None else ""
    if column.turn is None and column.calls is None:
        if is_recorded:
            return "not recorded"
        past = fate == "off_script"
        return "not run: the user's message answers something else" if past else "not run"
    if column.is_cut:
        return "ended at the call without a recorded result"
    if fate == "off_script":
        return "off script: the user's message answers something else"
    return "" if column.turn is None or column.turn.final_text is not None else "no answer"
