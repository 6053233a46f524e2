"""Merge spans that show the same call into one node: nested spans, and duplicate siblings.

Some spans claim to be one call but contain several: a function that Langfuse's decorator marks as a
generation may contain a whole run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from evaltap.recorder.conventions.reading import Reading, absorb, failure_of
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.traces.node import Node

_STRUCTURAL = ("run", "agent", "model", "tool")
_COMPARED: Final = 200
"""How many calls that run at the same time are compared with the next one: those that started last.

Duplicates start together. Comparing all of 20,000 concurrent calls took more than a minute.
"""


def mark_wrappers(nodes: Iterable[Node]) -> None:
    """Treat a model span as a run if it contains a run and repeats the run's answer.

    It contains an agent's run with model calls, or several calls with tools between them. A model call
    that hands over to another agent also contains a run (ADK 1.14), but its answer differs.
    """
    within: dict[Node, _Held] = {}
    for node in nodes:
        if node.kind not in _STRUCTURAL:
            continue
        answer, in_run = _answer(node.reading), False
        for above in node.ancestors():
            if above.kind == "tool":
                break  # the tool's own work
            if above.kind == "model":
                held = within.get(above)
                if held is None:
                    held = within[above] = _Held(_answer(above.reading))
                held.add(node, answer, in_run)
            in_run = in_run or above.kind in ("run", "agent")
    for outer, held in within.items():
        if held.holds_run and held.repeats_answer:
            outer.reading.kind = "run"


@dataclass(slots=True)
class _Held:
    """What a model span with this answer holds, up to the tools that it holds."""

    answer: str | None
    model_in_run: bool = False
    tool: bool = False
    outputs: int = 0
    repeats_answer: bool = False

    @property
    def holds_run(self) -> bool:
        return self.model_in_run or (self.tool and self.outputs > 1)

    def add(self, node: Node, answer: str | None, in_run: bool) -> None:
        """Add a span with its answer; `in_run` if there is a run between the two."""
        self.repeats_answer |= bool(self.answer) and answer == self.answer
        self.tool |= node.kind == "tool"
        if node.kind == "model":
            self.model_in_run |= in_run
            self.outputs += node.reading.output is not None


def _answer(reading: Reading) -> str | None:
    """Return the final text of a model call or a run, if it requests no tool."""
    content = _content(reading)
    if content is not None:
        text, calls = content
        return text if not calls else None
    stated = reading.final or reading.final_fallback
    return stated.value if stated is not None and isinstance(stated.value, str) else None


def merge_nested(nodes: Iterable[Node]) -> None:
    """Merge nested spans of one call into the outermost.

    A model call inside a model call is one call in two nested spans (a wrapper and the provider's
    SDK, ADK's call_llm and generate_content); a tool inside a tool is one call when both have the
    same name or id (execute_tool, MCP client, MCP server).
    """
    for node in sorted(nodes, key=lambda node: -sum(1 for _ in node.ancestors())):
        if node.kind not in ("model", "tool"):
            continue
        outer = next((above for above in node.ancestors() if above.kind in _STRUCTURAL), None)
        if outer is not None and outer.kind == node.kind and _same_call(outer, node):
            _absorb_call(outer, node)
            node.reading.kind = "dropped"


def _same_call(outer: Node, inner: Node) -> bool:
    return outer.kind == "model" or _same_tool(outer.reading, inner.reading)


def _same_tool(one: Reading, other: Reading) -> bool:
    if one.call_id is not None and other.call_id is not None:
        return one.call_id == other.call_id
    return one.tool_name == other.tool_name


def _absorb_call(outer: Node, inner: Node) -> None:
    if outer.kind == "tool" and outer.reading.failure is None:
        failure = inner.failure
        # The outer span may have turned the failure into a result; the call failed nevertheless.
        if failure is not None and failure_of(outer.span) is None:
            outer.reading.failure = failure
    absorb(outer.reading, inner.reading)


def merge_duplicates(nodes: Iterable[Node]) -> bool:
    """Merge two spans of one call, written by two instrumentations, into the first.

    Duplicates have different scopes, neither contains the other, they cover the same time and
    contradict each other nowhere. Children of the dropped one move to the other. Return whether
    there were any.
    """
    calls = [node for node in nodes if node.kind in ("model", "tool")]
    if len({node.span.scope for node in calls}) < 2:
        return False
    calls.sort(key=lambda node: (node.span.start_ns, node.span.end_ns, node.span.span_id))
    found = False
    kept: list[Node] = []
    matched: set[tuple[Node, str]] = set()
    for node in calls:
        yield_to_agent()
        # Later calls start later still: a span that has ended by now has no further duplicates.
        kept = [other for other in kept if other.span.end_ns >= node.span.start_ns][-_COMPARED:]
        duplicate = next((one for one in kept if _is_duplicate(one, node, matched)), None)
        if duplicate is None:
            kept.append(node)
            continue
        _absorb_call(duplicate, node)
        matched.add((duplicate, node.span.scope))
        node.reading.kind, node.parent, found = "dropped", duplicate, True
    return found


def _is_duplicate(one: Node, other: Node, matched: set[tuple[Node, str]]) -> bool:
    return (
        one.kind == other.kind
        and one.span.scope != other.span.scope
        and (one, other.span.scope) not in matched
        and (_same_time(one, other) or _same_usage_within(one, other))
        and (_same_answer if one.kind == "model" else _same_execution)(one.reading, other.reading)
        and one not in other.ancestors()
        and other not in one.ancestors()
    )


def _same_time(one: Node, other: Node) -> bool:
    """Return whether two spans share at least half of the time they jointly cover."""
    begun = one.span.start_ns, other.span.start_ns
    ended = one.span.end_ns, other.span.end_ns
    return 2 * (min(ended) - max(begun)) >= max(ended) - min(begun)


def _same_usage_within(one: Node, other: Node) -> bool:
    """Return whether a span covers the other and used as many tokens: a short call in slow callbacks."""
    used = _tokens(one.reading)
    is_within = one.span.start_ns <= other.span.start_ns and other.span.end_ns <= one.span.end_ns
    return is_within and used is not None and used == _tokens(other.reading)


def _same_answer(one: Reading, other: Reading) -> bool:
    """Return whether two model spans have the same answer: by id, then content, then tokens.

    Two without any of these in common are two calls: agents may run concurrently.
    """
    for identity in (lambda it: it.response_id, _content, _tokens):
        seen = identity(one), identity(other)
        if None not in seen:
            return seen[0] == seen[1]
    return False


def _content(reading: Reading) -> tuple[str, tuple[str | None, ...]] | None:
    """Return an answer's text and the names of its calls, or None when neither was captured."""
    messages = reading.output or ()
    words = (message.text.value for message in messages if message.text is not None)
    text = "".join(word for word in words if isinstance(word, str))
    calls = tuple(call.name for message in messages for call in message.calls)
    return (text, calls) if text or calls else None


def _tokens(reading: Reading) -> tuple[int, int] | None:
    if reading.input_tokens is None or reading.output_tokens is None:
        return None
    return reading.input_tokens, reading.output_tokens


def _same_execution(one: Reading, other: Reading) -> bool:
    """Return whether two tool spans show one execution, as far as both have its id and arguments."""
    if not _same_tool(one, other):
        return False
    if None in (one.call_id, other.call_id) and one.arguments and other.arguments:
        return bool(one.arguments.value == other.arguments.value)
    return True
