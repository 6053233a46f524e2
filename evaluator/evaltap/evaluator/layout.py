"""What a case lays before the evaluators: its actual turns, its expected turns, its added rubrics.

Only trace mode can be scored offline, as every other mode runs the agent.  A case with both
conversations compares them; with only one, that one is actual and the expected turns are
placeholders that hold nothing but the user's message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from evaltap.evaluator.context import Turn
from evaltap.evaluator.outlined_case import OutlinedCase
from evaltap.schemas.case import Rubric
from evaltap.schemas.metric import EvalMetric

TurnData = Mapping[str, Any] | None


class CaseProblem(ValueError):
    """Why a case cannot be laid out; the case is then failed with this text."""


class Conversation(Struct, frozen=True, gc=False):
    """The turns of a case: one expected turn, perhaps a placeholder, for each actual one."""

    actual: tuple[Turn, ...]
    expected: tuple[Turn, ...]
    referenced: bool
    """Whether the case holds expected turns of its own."""
    rubrics: Sequence[Mapping[str, Any] | None] = ()
    """Those that the case adds to the metrics."""


def lay_out(case: Mapping[str, Any]) -> Conversation:
    """Return the turns of a trace-mode case; raise CaseProblem when they cannot be scored."""
    if isinstance(case, OutlinedCase) and (paired := case.paired_turns()):
        return Conversation(*paired, True)
    recorded: Sequence[TurnData] = case.get("actualConversation") or ()
    written: Sequence[TurnData] = case.get("conversation") or ()
    _check(case, recorded)
    if recorded:
        _check_recorded(recorded, written)
        actual, expected = recorded, written or [_placeholder(turn) for turn in recorded]
    elif written:
        actual, expected = written, [_placeholder(turn) for turn in written]
    else:
        raise CaseProblem("invocations are empty: give actualConversation, or conversation")
    messages = case.get("contextMessages")
    if messages:
        actual = [_with_context(turn, messages) for turn in actual]
        expected = [_with_context(turn, messages) for turn in expected]
    referenced = bool(recorded and written)
    return Conversation(
        tuple(map(Turn, actual)), tuple(map(Turn, expected)), referenced, case.get("rubrics") or ()
    )


def with_case_rubrics(
    metrics: Sequence[EvalMetric], rubrics: Sequence[Mapping[str, Any] | None]
) -> list[EvalMetric]:
    """Return the metrics with the case's own rubrics appended to the ones they name.

    Raises CaseProblem for a rubric that is null, names no metric with an `llmJudge` criterion, has
    no text or repeats an id.  A blank id becomes `case_rubric_<n>`, n counting from 1.
    """
    added: dict[str, list[Rubric]] = {}
    for number, data in enumerate(rubrics, start=1):
        if data is None:
            raise CaseProblem(f"case rubric {number}: rubric is nil")
        name = str(data.get("metricName") or "").strip()
        if not name:
            raise CaseProblem(f"case rubric {number}: metricName is empty")
        fields = {key: value for key, value in data.items() if key != "metricName"}
        rubric = Rubric.model_validate(fields)
        if rubric.content is None or not rubric.content.text.strip():
            raise CaseProblem(f"case rubric {number}: content text is empty")
        if not rubric.id.strip():
            rubric = rubric.model_copy(update={"id": f"case_rubric_{number}"})
        added.setdefault(name, []).append(rubric)
    names = {metric.metric_name for metric in metrics}
    for name in added:
        if name not in names:
            raise CaseProblem(
                f"case rubrics: metric {name} not found; metrics: {', '.join(sorted(names))}"
            )
    return [_extended(metric, added.get(metric.metric_name)) for metric in metrics]


def _check(case: Mapping[str, Any], recorded: Sequence[TurnData]) -> None:
    if case.get("sessionInput") is None:
        raise CaseProblem("sessionInput is missing; give its appName and userId")
    mode = case.get("evalMode") or ""
    if mode != "trace":
        if recorded:
            raise CaseProblem(
                f"actualConversation is only supported in trace mode; found evalMode '{mode}'"
            )
        raise CaseProblem(
            f"evalMode '{mode}' needs the agent to run; record it and set evalMode to 'trace'"
        )
    if case.get("conversationScenario") is not None:
        raise CaseProblem("conversationScenario is not supported in trace mode")
    if case.get("expectedRunnerEnabled"):
        raise CaseProblem("expectedRunnerEnabled needs a runner; offline scoring has none")


def _check_recorded(recorded: Sequence[TurnData], written: Sequence[TurnData]) -> None:
    if written and len(recorded) != len(written):
        raise CaseProblem(
            f"actual conversation length {len(recorded)} does not match conversation length "
            f"{len(written)}"
        )
    for index, turn in enumerate(recorded):
        if turn is None:
            raise CaseProblem(f"actualConversation[{index}] is nil")
        if turn.get("userContent") is None and not (turn.get("capture") or {}).get("userContent"):
            raise CaseProblem(f"actualConversation[{index}] has no userContent")


def _placeholder(turn: TurnData) -> TurnData:
    if turn is None:
        return {}
    kept = ((key, turn.get(key)) for key in ("invocationId", "userContent"))
    return {key: value for key, value in kept if value is not None}


def _with_context(turn: TurnData, messages: object) -> TurnData:
    if turn is None or turn.get("contextMessages"):
        return turn
    return {**turn, "contextMessages": messages}


def _extended(metric: EvalMetric, rubrics: list[Rubric] | None) -> EvalMetric:
    if rubrics is None:
        return metric
    judge = metric.criterion.llm_judge if metric.criterion else None
    if metric.criterion is None or judge is None:
        raise CaseProblem(
            f"case rubrics: metric {metric.metric_name}: llmJudge criterion is required as rubric "
            "container"
        )
    seen: set[str] = set()
    for rubric in (*judge.rubrics, *rubrics):
        if rubric.id in seen:
            raise CaseProblem(
                f"case rubrics: metric {metric.metric_name} has two rubrics with id '{rubric.id}'"
            )
        seen.add(rubric.id)
    judge = judge.model_copy(update={"rubrics": [*judge.rubrics, *rubrics]})
    criterion = metric.criterion.model_copy(update={"llm_judge": judge})
    return metric.model_copy(update={"criterion": criterion})
