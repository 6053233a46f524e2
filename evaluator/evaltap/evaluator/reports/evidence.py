"""Evidence for readers of a report: what happened in the turns of a case, and what was expected."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec.structs import replace

from evaltap.evaluator.cases.costs import cost_of
from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.pairing import (
    UnscorableCaseError,
    has_references,
    pair_turns,
    unpaired_turns,
)
from evaltap.evaluator.cases.text import cut
from evaltap.evaluator.cases.turn import Case, Turn, gaps_of
from evaltap.evaluator.reports.model import (
    ArgumentDifference,
    Call,
    Limits,
    Step,
    StepKind,
    TurnEvidence,
)
from evaltap.evaluator.scoring.criteria.calls.attempts import calls_of, select
from evaltap.evaluator.scoring.criteria.calls.diff import DiffRow, trajectory_diff
from evaltap.evaluator.scoring.criteria.calls.pairs import CallPairs, CallSimilarity
from evaltap.evaluator.scoring.criteria.calls.scores import shares
from evaltap.schemas.formats.criteria import ValueCriterion
from evaltap.schemas.formats.metric import EvalMetric, ToolTrajectoryStrategy
from evaltap.schemas.text import counted

_DIFFERING: Final[frozenset[StepKind]] = frozenset({"changed", "moved", "missing", "extra"})


class Comparison:
    """The comparison of a case's calls for readers: that of the first trajectory metric.

    Without one, `toolTrajectory` determines the tools whose arguments count.  Otherwise names and arguments
    must be equal.  Failed calls count, unless the metric excludes them.
    """

    def __init__(self, metrics: Sequence[EvalMetric] = ()) -> None:
        criteria = [metric.criterion for metric in metrics if metric.criterion]
        given = next((part.trajectory for part in criteria if part.trajectory), None)
        matched = next((part.tool_trajectory for part in criteria if part.tool_trajectory), None)
        self.attempts = "all"
        self.references: list[list[AnyCall]] = []
        self.similarity = CallSimilarity()
        if matched is not None:  # approximates the criterion of tRPC-Agent-Go
            by_tool = {name: _compared(rule) for name, rule in matched.tool_strategy.items()}
            self.similarity = CallSimilarity(_compared(matched.default_strategy), by_tool)
        if given is not None:
            self.similarity = CallSimilarity(given.arguments, given.tool_arguments)
            self.attempts = given.attempts or "successful"
            self.references = [
                [call.model_dump(by_alias=True) for call in reference.tools]
                for reference in given.references
            ]


def _compared(strategy: ToolTrajectoryStrategy | None) -> ValueCriterion:
    if strategy is None:
        return ValueCriterion()
    rule = strategy.arguments
    if rule is None or rule.ignore or rule.match_strategy == "skip":
        return ValueCriterion(mode="ignore")
    return ValueCriterion(tolerance=rule.number_tolerance)


def evidence_of(
    case: Case, comparison: Comparison, limits: Limits
) -> tuple[tuple[TurnEvidence, ...], str]:
    """Return the turns of a case, and what is not shown or compared (empty: nothing is left out)."""
    try:
        conversation = pair_turns(case)
        written, notes = has_references(case), [conversation.note]
        turns = list(zip(conversation.actual, conversation.expected, strict=False))
    except (UnscorableCaseError, TypeError, AttributeError, KeyError) as problem:
        written, notes = False, [f"not compared with a reference: {problem}"]
        turns = [(turn, turn) for turn in unpaired_turns(case)]
    shown = tuple(
        _turn(actual, expected, comparison, limits, written=written and expected.referenced)
        for actual, expected in turns[limits.first_turn - 1 :][: limits.turns]
    )
    if rest := len(turns) - len(shown):
        notes.append(f"{counted(rest, 'more turn')} not shown")
    return shown, "; ".join(filter(None, notes))


def _turn(
    actual: Turn, expected: Turn, comparison: Comparison, limits: Limits, *, written: bool
) -> TurnEvidence:
    telemetry = actual.data.get("telemetry") or {}
    calls = calls_of(actual)
    wanted = [expected, *map(Turn, expected.data.get("references") or ())] if written else []
    references = [calls_of(one) for one in wanted if not one.lacks("tools")]
    references += comparison.references
    steps, omitted = _shown(_steps(references, calls, comparison, limits), limits.calls)
    return TurnEvidence(
        actual.invocation_id,
        _optional(actual.user_text, limits.text),
        _optional(actual.final_text, limits.text),
        _optional(expected.final_text, limits.text) if written else None,
        steps,
        bool(references),
        tuple(gaps_of(actual.data)),
        error_text(telemetry.get("error") or {}),
        tuple(telemetry.get("models") or ()),
        cost_of(telemetry),
        telemetry.get("latencyMs"),
        telemetry.get("inputTokens"),
        telemetry.get("outputTokens"),
        telemetry.get("traceId"),
        omitted,
    )


def _shown(steps: tuple[Step, ...], most: int) -> tuple[tuple[Step, ...], int]:
    """Return the steps that differ and the first others, and the number of omitted ones."""
    room = most - sum(step.kind in _DIFFERING for step in steps)
    shown = []
    for step in steps:
        room -= step.kind not in _DIFFERING
        if room >= 0 or step.kind in _DIFFERING:
            shown.append(step)
    return tuple(shown), len(steps) - len(shown)


def compared_calls(
    expected: Sequence[AnyCall], actual: Sequence[AnyCall], limits: Limits
) -> tuple[Step, ...]:
    """Return the difference between two trajectories, whose names and arguments should be equal."""
    given = [[*expected[: limits.calls]]]
    return _steps(given, actual[: limits.calls], Comparison(), limits)


def made_calls(calls: Sequence[AnyCall], limits: Limits) -> tuple[Step, ...]:
    """Return the calls of a trajectory that is compared with none."""
    return _steps((), calls[: limits.calls], Comparison(), limits)


def _steps(
    references: Sequence[list[AnyCall]],
    calls: Sequence[AnyCall],
    comparison: Comparison,
    limits: Limits,
) -> tuple[Step, ...]:
    if not references:
        return tuple(_made("made", calls, 0, limits))
    candidates = [
        (select(reference, comparison.attempts), select(calls, comparison.attempts, reference))
        for reference in references
    ]
    similarity = comparison.similarity

    def likeness(pair: tuple[Sequence[AnyCall], Sequence[AnyCall]]) -> float:
        return shares(CallPairs(*pair, similarity), ordered=False).f1.score or 0.0

    expected, made = max(candidates, key=likeness) if len(candidates) > 1 else candidates[0]
    counted = {id(call) for call in made}
    places = [place for place, call in enumerate(calls) if id(call) in counted]
    steps: list[Step] = []
    done = 0
    for row in _rows(expected, made, similarity):
        if row.actual is not None:
            steps += _made("left_out", calls[done : places[row.actual]], done, limits)
            done = places[row.actual] + 1
        changes, text = row.changes, limits.text
        step = Step(
            row.kind,
            None if row.expected is None else _call(expected[row.expected], text),
            None if row.actual is None else _call(made[row.actual], text),
            tuple(cut(str(one), text) for one in changes),
            tuple(
                ArgumentDifference(one.path, _value(one.expected, text), _value(one.actual, text))
                for one in changes
            ),
            None if row.expected is None else row.expected + 1,
            None if row.actual is None else places[row.actual] + 1,
        )
        steps.append(step)
    return (*steps, *_made("left_out", calls[done:], done, limits))


def _rows(
    expected: Sequence[AnyCall], made: Sequence[AnyCall], similarity: CallSimilarity
) -> Iterator[DiffRow]:
    """Yield the rows of the difference; equal calls at both ends are not aligned, which is quadratic."""
    begin = _equal(expected, made)
    end = _equal(expected[begin:][::-1], made[begin:][::-1])
    pairs = CallPairs(
        expected[begin : len(expected) - end], made[begin : len(made) - end], similarity
    )
    for place in range(begin):
        yield _same(expected, place, place)
    for row in trajectory_diff(pairs):
        yield replace(
            row,
            expected=None if row.expected is None else row.expected + begin,
            actual=None if row.actual is None else row.actual + begin,
        )
    for back in range(end, 0, -1):
        yield _same(expected, len(expected) - back, len(made) - back)


def _same(expected: Sequence[AnyCall], one: int, other: int) -> DiffRow:
    return DiffRow("same", str(expected[one].get("name") or ""), one, other, 1.0)


def _equal(expected: Sequence[AnyCall], made: Sequence[AnyCall]) -> int:
    """Return the number of first calls that are equal on both sides."""
    for place, (one, other) in enumerate(zip(expected, made, strict=False)):
        if any(one.get(name) != other.get(name) for name in ("name", "arguments")):
            return place
    return min(len(expected), len(made))


def _made(kind: StepKind, calls: Sequence[AnyCall], before: int, limits: Limits) -> list[Step]:
    """Return calls without anything to compare; `before` is the number of preceding calls."""
    return [
        Step(kind, None, _call(call, limits.text), actual_place=place)
        for place, call in enumerate(calls, before + 1)
    ]


def _value(value: object, limit: int) -> str | None:
    if value is ...:
        return None
    return "null" if value is None else _json(value, limit)


def _call(call: AnyCall, limit: int) -> Call:
    error = call.get("error") or {}
    if not isinstance(error, Mapping):
        error = {"message": str(error)}
    return Call(
        str(call.get("name") or "(no name)"),
        _json(call.get("arguments"), limit),
        _json(call.get("result"), limit),
        cut(error_text(error) or ("failed" if error else ""), limit),
        str(call.get("agent") or ""),
        call.get("durationMs"),
    )


def error_text(error: Mapping[str, Any]) -> str:
    """Return the type and the message of a recorded error, as far as they were recorded."""
    return ": ".join(str(error[key]) for key in ("type", "message") if error.get(key))


def _json(value: object, limit: int) -> str:
    if value is None:
        return ""
    try:
        return cut(orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode(), limit)
    except (TypeError, orjson.JSONEncodeError):  # half of a surrogate pair, or a huge number
        return cut(repr(value), limit)


def _optional(text: str | None, limit: int) -> str | None:
    return None if text is None else cut(text, limit)
