"""Pair a case's actual turns with its expected ones, and collect the rubrics it adds.

Only trace mode can be scored offline, as every other mode runs the agent.  A case with both conversations
compares them.  With only one, that one is actual, and the expected turns are placeholders with the user's
message.  tRPC-Agent-Go's files are compared with these placeholders, as that project does.  A case recorded
by evaltap counts as having no reference, so comparing metrics are not evaluated.

A recorded session may go on after the last turn of its reference, or end before it: the turns that both have
are compared, and later turns have no reference.  In tRPC-Agent-Go's files, that is an error of the case.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from evaltap.evaluator.cases.outline import LazyCase
from evaltap.evaluator.cases.turn import Turn
from evaltap.schemas.data import Json
from evaltap.schemas.formats.case import Rubric
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted

TurnData = Mapping[str, Json] | None
Placeholders = Literal["auto", "peer"]


class UnscorableCaseError(ValueError):
    """Raised for a case whose turns cannot be paired; the message becomes the case's error."""


class PairedTurns(Struct, frozen=True, gc=False):
    """The turns of a case: an expected turn, possibly a placeholder, for each actual one."""

    actual: tuple[Turn, ...]
    expected: tuple[Turn, ...]
    placeholders: bool = False
    """Whether the comparison uses placeholders."""
    rubrics: Sequence[Mapping[str, Json] | None] = ()
    """The rubrics that the case adds to metrics."""
    note: str = ""
    """Which turns are not compared, if the reference has another number of turns."""

    def only(self, places: Sequence[int]) -> "PairedTurns":
        """Return the turns at these places."""
        actual, expected = self.actual, self.expected
        return structs.replace(
            self,
            actual=tuple(actual[place] for place in places),
            expected=tuple(expected[place] for place in places),
        )


def pair_turns(case: Mapping[str, Json], placeholders: Placeholders = "auto") -> PairedTurns:
    """Return the paired turns of a trace-mode case; raise UnscorableCaseError if they cannot be scored.

    With `placeholders="peer"`, cases recorded by evaltap are compared with placeholders as well.
    """
    if isinstance(case, LazyCase) and (paired := case.paired_turns()):
        found = PairedTurns(*paired)
        return _compared(found) if placeholders == "peer" else found
    ours = recorded_by_evaltap(case)
    actual, expected, note = _turns_of(case, ours=ours)
    peers = placeholders == "peer" or not ours
    # In a file, null is an absent turn; in a landed case, it is a turn without a reference.
    in_file = bool(expected) and not ours
    expected = expected or [None] * len(actual)
    referenced = [one is not None or in_file for one in expected]
    expected = [
        wanted if known else placeholder(turn)
        for turn, wanted, known in zip(actual, expected, referenced, strict=True)
    ]
    messages = [one for one in case.get("contextMessages") or () if one is not None]
    actual, expected = _with_context(actual, messages), _with_context(expected, messages)
    return PairedTurns(
        tuple(map(Turn, actual)),
        tuple(
            Turn(turn, referenced=known or peers)
            for turn, known in zip(expected, referenced, strict=True)
        ),
        peers and not all(referenced),
        case.get("rubrics") or (),
        note,
    )


def _turns_of(
    case: Mapping[str, Json], *, ours: bool
) -> tuple[Sequence[TurnData], Sequence[TurnData], str]:
    """Return the actual turns, the expected ones if there are any, and which are not compared."""
    recorded: Sequence[TurnData] = case.get("actualConversation") or ()
    written: Sequence[TurnData] = case.get("conversation") or ()
    note = ""
    _check(case, recorded)
    if not recorded:
        if not written:
            raise UnscorableCaseError(
                "invocations are empty: give actualConversation, or conversation"
            )
        return written, (), note
    if ours and written:
        note = other_length(len(recorded), len(written))
        written = [*written, *[None] * (len(recorded) - len(written))][: len(recorded)]
    _check_recorded(recorded, written)
    return recorded, written, note


def unpaired_turns(case: Mapping[str, Json]) -> tuple[Turn, ...]:
    """Return the recorded turns of a case, whether or not they can be paired; none if it is malformed."""
    turns = case.get("actualConversation") or case.get("conversation") or ()
    return tuple(Turn(one) for one in turns if isinstance(one, Mapping))


def other_length(recorded: int, expected: int) -> str:
    """Return what is not compared if a session and its reference have these numbers of turns."""
    if recorded == expected:
        return ""
    if recorded > expected:
        rest = counted(recorded - expected, "later turn")
        return f"{rest} not compared: the reference has only {counted(expected, 'turn')}"
    rest = counted(expected - recorded, "expected turn")
    return f"{rest} not compared: the session has only {counted(recorded, 'turn')}"


def recorded_by_evaltap(case: Mapping[str, Json]) -> bool:
    """Return whether evaltap recorded a case: it has landed, or has a `source`."""
    if isinstance(case, LazyCase) and case.recorded_here:
        return True
    return case.get("source") is not None


def _compared(paired: PairedTurns) -> PairedTurns:
    """Return the turns with placeholders that count as references."""
    if all(turn.referenced for turn in paired.expected):
        return paired
    expected = tuple(
        turn if turn.referenced else Turn(placeholder(here.data))
        for here, turn in zip(paired.actual, paired.expected, strict=True)
    )
    return structs.replace(paired, expected=expected, placeholders=True)


def with_case_rubrics(
    metrics: Sequence[EvalMetric], rubrics: Sequence[Mapping[str, Json] | None]
) -> list[EvalMetric]:
    """Return the metrics with the case's rubrics appended to the metrics that they name.

    Raises UnscorableCaseError for a rubric that is null, has no text, repeats an id, or does not name a
    metric with an `llmJudge` criterion.  A blank id becomes `case_rubric_<n>`, counting from 1.
    """
    added: dict[str, list[Rubric]] = {}
    for number, data in enumerate(rubrics, start=1):
        if data is None:
            raise UnscorableCaseError(f"case rubric {number}: rubric is nil")
        if not (name := str(data.get("metricName") or "").strip()):
            raise UnscorableCaseError(f"case rubric {number}: metricName is empty")
        fields = {key: value for key, value in data.items() if key != "metricName"}
        rubric = Rubric.model_validate(fields)
        if rubric.content is None or not rubric.content.text.strip():
            raise UnscorableCaseError(f"case rubric {number}: content text is empty")
        if not rubric.id.strip():
            rubric = rubric.model_copy(update={"id": f"case_rubric_{number}"})
        added.setdefault(name, []).append(rubric)
    names = {metric.metric_name for metric in metrics}
    for name in added:
        if name not in names:
            raise UnscorableCaseError(
                f"case rubrics: metric {name} not found; metrics: {', '.join(sorted(names))}"
            )
    return [_extended(metric, added.get(metric.metric_name)) for metric in metrics]


def _check(case: Mapping[str, Json], recorded: Sequence[TurnData]) -> None:
    mode = case.get("evalMode") or ""
    if mode != "trace":
        if recorded:
            raise UnscorableCaseError(
                f"actualConversation is only supported in trace mode; found evalMode '{mode}'"
            )
        raise UnscorableCaseError(
            f"evalMode '{mode}' needs the agent to run: do so with `evaltap run`, or record the agent"
            " and set evalMode to 'trace'"
        )
    if case.get("sessionInput") is None:
        raise UnscorableCaseError(
            "sessionInput is missing, which tRPC-Agent-Go requires of a recorded case; add"
            ' "sessionInput": {}, with appName and userId if you know them'
        )
    if case.get("conversationScenario") is not None:
        raise UnscorableCaseError("conversationScenario is not supported in trace mode")
    if case.get("expectedRunnerEnabled"):
        raise UnscorableCaseError("expectedRunnerEnabled needs a runner; offline scoring has none")


def _check_recorded(recorded: Sequence[TurnData], written: Sequence[TurnData]) -> None:
    if written and len(recorded) != len(written):
        raise UnscorableCaseError(
            f"actual conversation length {len(recorded)} does not match conversation length "
            f"{len(written)}"
        )
    for index, turn in enumerate(recorded):
        if turn is None:
            raise UnscorableCaseError(f"actualConversation[{index}] is nil")
        if turn.get("userContent") is None and not (turn.get("capture") or {}).get("userContent"):
            raise UnscorableCaseError(f"actualConversation[{index}] has no userContent")


def placeholder(turn: TurnData) -> TurnData:
    """Return an expected turn with only the user's message."""
    if turn is None:
        return {}
    kept = ((key, turn.get(key)) for key in ("invocationId", "userContent"))
    return {key: value for key, value in kept if value is not None}


def nothing_expected(turn: TurnData) -> dict[str, Json]:
    """Return a turn with only the user's message; without the marks, it would expect no calls."""
    return {
        **(placeholder(turn) or {}),
        "capture": {"finalResponse": "missing", "tools": "missing"},
    }


def _with_context(turns: Sequence[TurnData], messages: list[Json]) -> Sequence[TurnData]:
    if not messages:
        return turns
    return [
        turn
        if turn is None or turn.get("contextMessages")
        else {**turn, "contextMessages": messages}
        for turn in turns
    ]


def _extended(metric: EvalMetric, rubrics: list[Rubric] | None) -> EvalMetric:
    if rubrics is None:
        return metric
    judge = metric.criterion.llm_judge if metric.criterion else None
    if metric.criterion is None or judge is None:
        raise UnscorableCaseError(
            f"case rubrics: metric {metric.metric_name}: llmJudge criterion is required as rubric "
            "container"
        )
    seen: set[str] = set()
    for rubric in (*judge.rubrics, *rubrics):
        if rubric.id in seen:
            raise UnscorableCaseError(
                f"case rubrics: metric {metric.metric_name} has two rubrics with id '{rubric.id}'"
            )
        seen.add(rubric.id)
    judge = judge.model_copy(update={"rubrics": [*judge.rubrics, *rubrics]})
    criterion = metric.criterion.model_copy(update={"llm_judge": judge})
    return metric.model_copy(update={"criterion": criterion})


def has_references(case: Mapping[str, Json]) -> bool:
    """Return whether the case has expected turns of its own, not placeholders."""
    if isinstance(case, LazyCase):
        return bool(case.outline.actualConversation) and bool(case.outline.conversation)
    return bool(case.get("actualConversation")) and bool(case.get("conversation"))
