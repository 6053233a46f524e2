"""The sources of text for the variables of a judge template."""

from collections.abc import Callable, Mapping
from typing import Final

import orjson

from evaltap.evaluator.cases.json_path import extract, read_path
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import MissingEvidence
from evaltap.evaluator.scoring.evaluators.judged.evaluator import TurnView, lacking, reference_text
from evaltap.evaluator.scoring.evaluators.judged.rubric_prompt import rubric_lines
from evaltap.schemas.formats.metric import VariableBinding
from evaltap.schemas.text import did_you_mean_one_of

Source = Callable[[TurnView], str | MissingEvidence]
"""Returns the text of a variable for a turn, or a description of the missing evidence."""


def compile_source(binding: VariableBinding) -> Source:
    """Return the source of a binding; raise MetricError if it does not exist."""
    source, variable = binding.source, binding.template_variable
    if source is None:
        raise MetricError(f"variable '{variable}' has no source; give its scope and field")
    node = source.selector.node_id if source.selector else ""
    make = _SOURCES.get((source.scope, source.field))
    if make is None:
        name = f"{source.scope}.{source.field}"
        hint = did_you_mean_one_of(name, [f"{scope}.{field}" for scope, field in _SOURCES])
        raise MetricError(f"variable '{variable}' comes from '{name}'; {hint}")
    if source.field.startswith("traceStep") and not node:
        raise MetricError(f"variable '{variable}' needs selector.nodeID to choose a step")
    text_of = make(node)
    path = source.path
    if not path:
        return text_of
    try:
        read_path(path)
    except ValueError as error:
        raise MetricError(f"variable '{variable}': {error}") from None

    def at_path(view: TurnView) -> str | MissingEvidence:
        text = text_of(view)
        if isinstance(text, MissingEvidence):
            return text
        try:
            return extract(text, path)
        except ValueError as error:
            return MissingEvidence(f"variable '{variable}' at {path}: {error}")

    return at_path


def _user(_: str) -> Source:
    return lambda view: _text(view.turn, "userContent", view.turn.user_text)


def _final(_: str) -> Source:
    return lambda view: _text(view.turn, "finalResponse", view.turn.final_text)


def _reference(_: str) -> Source:
    return lambda view: reference_text(view.wanted)


def _rubrics(_: str) -> Source:
    def lines(view: TurnView) -> str | MissingEvidence:
        return "\n".join(rubric_lines(view.rubrics)) or MissingEvidence("the metric has no rubrics")

    return lines


def _step(key: str) -> Callable[[str], Source]:
    def of_node(node: str) -> Source:
        def text(view: TurnView) -> str | MissingEvidence:
            trace = view.turn.data.get("executionTrace") or {}
            steps = [step for step in trace.get("Steps") or () if step.get("NodeID") == node]
            if not steps:
                return MissingEvidence(f"executionTrace has no step of node '{node}'")
            return _step_text(steps[-1].get(key), node, key)

        return text

    return of_node


def _step_text(value: object, node: str, key: str) -> str | MissingEvidence:
    """Return the part of a step: the text of an input or output, otherwise JSON."""
    if isinstance(value, Mapping) and isinstance(value.get("Text"), str):
        value = value["Text"]
    if value is None:
        return MissingEvidence(f"{key} of the last step of node '{node}' is absent")
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _text(turn: Turn, field: str, text: str | None) -> str | MissingEvidence:
    reason = lacking(turn, field)
    if reason is not None or text is None:
        return MissingEvidence(reason or f"{field} is absent")
    return text


_SOURCES: Final[dict[tuple[str, str], Callable[[str], Source]]] = {
    ("actual", "userContent"): _user,
    ("actual", "finalResponse"): _final,
    ("actual", "traceStepInput"): _step("Input"),
    ("actual", "traceStepOutput"): _step("Output"),
    ("actual", "traceStepTools"): _step("Tools"),
    ("actual", "traceStepSkills"): _step("Skills"),
    ("expected", "finalResponse"): _reference,
    ("metric", "rubrics"): _rubrics,
}
