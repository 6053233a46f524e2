"""Corrections to the spans of a run before they are read as a trajectory."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from evaltap.recorder.conventions.messages import since_user
from evaltap.recorder.traces.node import Node


def name_tools(nodes: list[Node]) -> None:
    """Treat a span of unknown kind as a tool's if a model of this run requested a tool of its name."""
    unnamed = [node for node in nodes if node.kind is None and node.reading.tool_name]
    if not unnamed:
        return
    asked = {
        call.name
        for node in nodes
        for message in (*(node.reading.input or ()), *(node.reading.output or ()))
        for call in message.calls
    }
    for node in unnamed:
        if node.reading.tool_name in asked:
            node.reading.kind = "tool"


_CHECK: Final = re.compile(r"(?<!with)[ _.-]?guardrails?(?:[ _.:-].*)?$", re.IGNORECASE)


def checks_beside(root: Node) -> dict[Node, Node | None]:
    """Return the spans within a run's guardrails, each with the guardrail's span.

    Some instrumentations write a guardrail as a chain: then its name tells, unless nothing else answers.
    """
    checks = [node for node in root.descendants() if _is_check(node)]
    if not checks:
        return {}
    stated = [node for node in checks if node.kind == "guardrail"]
    for chosen in (checks, stated):
        beside: dict[Node, Node | None] = {
            below: check for check in chosen for below in (check, *check.descendants())
        }
        if any(node.kind == "model" and node not in beside for node in root.descendants()):
            return beside
    return beside


def _is_check(node: Node) -> bool:
    named = node.kind in ("run", "other", None) and _CHECK.search(node.span.name)
    return node.kind == "guardrail" or bool(named)


def flattens(nodes: list[Node]) -> bool:
    """Return whether a framework writes the spans of sub-agents beside those of their tools."""
    return any(node.reading.flattens_agents for node in nodes)


def flattened_agents(nodes: list[Node]) -> dict[Node, Node]:
    """Map agents to the sibling tool spans that ran them: the tool spans that lasted longer."""
    tools = [node for node in nodes if node.kind == "tool"]
    adopted: dict[Node, Node] = {}
    for agent in (node for node in nodes if node.kind == "agent"):
        around = [tool for tool in tools if _spans(tool, agent) and tool not in agent.descendants()]
        if around and not any(above.kind == "tool" for above in agent.ancestors()):
            adopted[agent] = min(around, key=lambda tool: tool.span.end_ns - tool.span.start_ns)
    return adopted


def _spans(outer: Node, inner: Node) -> bool:
    one, other = outer.span, inner.span
    return one.start_ns <= other.start_ns and other.end_ns <= one.end_ns


def without_repeats(models: Iterator[Node]) -> Iterator[Node]:
    """Skip a model call already seen through another instrumentation: same response id."""
    seen: set[str] = set()
    for node in models:
        response = node.reading.response_id
        if response is not None and response in seen:
            continue
        if response is not None:
            seen.add(response)
        yield node


def recover_outputs(level: list[Node]) -> None:
    """Recover the missing output of a model call from the input of the next one.

    The last assistant message in a call's input is the answer of the call before.
    """
    for node, later in pairwise(level):
        if node.reading.output is None and node.failure is None:
            instructions = since_user(later.reading.input or ())
            answers = [message for message in instructions if message.role == "assistant"]
            node.reading.output = (answers[-1],) if answers else None
