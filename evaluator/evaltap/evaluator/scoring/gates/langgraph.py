"""A gate as nodes of a LangGraph: judge the answer, revise it, and decide which comes next.

The nodes read and write two keys of the graph's state: `answer`, and `gate` with what the gate said last.
They are plain functions, so this module does not import LangGraph.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypedDict

from evaltap.evaluator.scoring.gates.gate import Gate
from evaltap.evaluator.scoring.gates.revision import Agent, Record, begin, judged
from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import EvalCase

ANSWER: Final = "answer"
GATE: Final = "gate"


class GateStep(TypedDict):
    """What a gate said about the latest answer."""

    status: str
    """passed, failed or incomplete."""
    passed: bool
    feedback: str
    attempt: int
    """From 1."""
    loop: str
    """Identifies the attempts of one loop."""


class Node(Protocol):
    """A node of a graph: from its state to what changes in it."""

    def __call__(self, state: Any) -> dict[str, Any]:  # the type of the state is the graph's
        """Return the changes."""
        ...


def eval_node(
    gate: Gate, *, case: EvalCase | Mapping[str, Json] | None = None, record: Record | None = None
) -> Node:
    """Return the node that judges `answer`; arguments as in `revise`.

    An answer after one that did not fail begins another loop.  The node raises InputError if the state has
    no answer.
    """

    def node(state: Any) -> dict[str, Any]:
        if ANSWER not in state:
            raise InputError(f"the state has no '{ANSWER}' to judge; a node before must write it")
        before = _revised(state)
        loop, base = begin(case, before["loop"] if before else "")
        number = before["attempt"] + 1 if before else 1
        feedback = before["feedback"] if before else None
        attempt = judged(state[ANSWER], gate, number, feedback, base, loop)
        if record is not None:
            record(attempt)
        result = attempt.result
        step: GateStep = {
            "status": result.status,
            "passed": result.passed,
            "feedback": result.feedback,
            "attempt": number,
            "loop": loop,
        }
        return {GATE: step}

    return node


def revision_node(agent: Agent) -> Node:
    """Return the node that lets an agent answer: first with None, then with the gate's feedback."""

    def node(state: Any) -> dict[str, Any]:
        before = _revised(state)
        return {ANSWER: agent(before["feedback"] if before else None)}

    return node


def _revised(state: Any) -> GateStep | None:
    """Return what the gate said about the answer that is revised; None in the first step of a loop."""
    step: GateStep | None = state.get(GATE)
    return step if step and step["status"] == "failed" else None


def after_eval(max_attempts: int = 3) -> Callable[[Any], Literal["revise", "done"]]:
    """Return what decides after `eval_node`: `revise` a failed answer, until there are enough attempts."""

    def route(state: Mapping[str, Any]) -> Literal["revise", "done"]:
        step: GateStep = state[GATE]
        over = step["status"] != "failed" or step["attempt"] >= max_attempts
        return "done" if over else "revise"

    return route
