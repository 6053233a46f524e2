"""The spans of one trace as a tree of readings.

Duplicates are merged into one span (the finished one, otherwise the last), children of dropped spans
move to the parent, a span without its parent in the trace is a top, and cycles are broken. The depth
is bounded, because reading a tree looks at all ancestors of each span.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from evaltap.recorder.conventions import read_span
from evaltap.recorder.conventions.messages import since_user
from evaltap.recorder.conventions.reading import Reading, absorb, failure_of
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.node import Node

_DEEPEST: Final = 200
"""The deepest level of a tree. 20,000 spans, each the child of the one before, took more than a minute."""

_CALLS: Final = ("model", "tool")
"""Kinds of spans that rarely hold others: nothing is nested in a trace where none does."""


def build_tree(spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> list[Node]:
    """Return the tops of one trace's trees, in order of start."""
    written: dict[str, list[LogRecord]] = {}
    for log in logs:
        written.setdefault(log.span_id, []).append(log)
    nodes = {
        span.span_id: Node(span, _read(span, written.get(span.span_id, ())))
        for span in _unique(spans)
    }
    for node in nodes.values():
        node.parent = _parent(node, nodes)
    _bound_depth(nodes.values())
    merge_tool_events(nodes.values())
    if any(node.parent is not None and node.parent.kind in _CALLS for node in nodes.values()):
        mark_wrappers(nodes.values())
        merge_nested(nodes.values())
    if merge_duplicates(nodes.values()):
        _bound_depth(nodes.values())
    tops = _link(nodes)
    for node in nodes.values():
        if node.reading.overwritten:
            _restore_calls(node)
    return tops


def _read(span: Span, logs: Sequence[LogRecord]) -> Reading:
    yield_to_agent()
    return read_span(span, sorted(logs, key=lambda log: log.time_ns)) or Reading("")


def _unique(spans: Iterable[Span]) -> list[Span]:
    """Keep one span per id: the finished one, then the one with the most attributes.

    They come in order of start; spans that start at the same time keep the order in which they were
    written.
    """
    best: dict[str, Span] = {}
    for span in spans:
        known = best.get(span.span_id)
        if known is None or _completeness(span) > _completeness(known):
            best[span.span_id] = span
    return sorted(best.values(), key=lambda span: (span.start_ns, span.end_ns))


def _completeness(span: Span) -> tuple[bool, int, int, int, str]:
    return (
        span.end_ns > 0,
        len(span.attributes) + len(span.events),
        span.end_ns,
        span.status_code,
        repr(sorted(span.attributes.items(), key=lambda item: item[0])),
    )


def _parent(node: Node, nodes: dict[str, Node]) -> Node | None:
    return nodes.get(node.span.parent_id or "")


def _bound_depth(nodes: Iterable[Node]) -> None:
    """Break cycles, and move each span that is nested too deeply up to the deepest allowed level."""
    depths: dict[Node, int] = {}
    for node in nodes:
        path = _unknown_path(node, depths)
        for current in reversed(path):
            above = current.parent
            if above is not None and depths[above] == _DEEPEST:
                above = current.parent = above.parent
            depths[current] = 0 if above is None else depths[above] + 1


def _unknown_path(node: Node, known: Container[Node]) -> list[Node]:
    """Return a node and its ancestors up to the first that is known; cut a cycle where it closes."""
    path: dict[Node, None] = {}
    current: Node | None = node
    while current is not None and current not in known:
        path[current] = None
        if current.parent in path:
            current.parent = None
        current = current.parent
    return list(path)


def _link(nodes: dict[str, Node]) -> list[Node]:
    tops: list[Node] = []
    for node in nodes.values():
        if node.kind == "dropped":
            continue
        while node.parent is not None and node.parent.kind == "dropped":
            node.parent = node.parent.parent
        if node.parent is None:
            tops.append(node)
        else:
            node.parent.children.append(node)
    return tops


def _restore_calls(agent: Node) -> None:
    """Give an agent span overwritten by its model calls a node for each of those calls.

    The last request repeats the answers of this turn's earlier calls. A last response that already
    ends that request is left over from the previous call: the last call returned none. The times of
    the calls are unknown, only their order.
    """
    reading = agent.reading
    request, answered = reading.input or (), reading.output or ()
    reading.input = reading.output = None
    if any(node.kind == "model" for node in agent.descendants()):
        return
    past = since_user(request)
    offset = len(request) - len(past)
    calls = [
        (request[: offset + index], message)
        for index, message in enumerate(past)
        if message.role == "assistant"
    ]
    if answered and (not calls or calls[-1][1].parts != answered[-1].parts):
        calls.append((request, answered[-1]))
    for index, (before, answer) in enumerate(calls):
        start_ns = agent.span.start_ns + index
        span = replace(agent.span, start_ns=start_ns, end_ns=start_ns, status_code=0, events=())
        restored = Reading("", kind="model", input=before, output=(answer,), model=reading.model)
        agent.children.insert(index, Node(span, restored, parent=agent))


_EVENT: Final = re.compile(
    r"^tool\.(?:\w+\.)*(?P<tool>\w+)\.(?P<event>start|success|finish|error|retry)(?:-\d+)?$"
)


def merge_tool_events(nodes: Iterable[Node]) -> None:
    """Merge the events of a call into one tool call, with the tool's name and the end's result."""
    open_calls: dict[str, list[Node]] = {}
    events = [node for node in nodes if node.kind == "tool" and node.span.name[:5] == "tool."]
    for node in sorted(events, key=lambda node: (node.span.start_ns, node.span.end_ns)):
        if (found := _EVENT.match(node.span.name)) is None:
            continue
        reading = node.reading
        if reading.tool_name in (None, node.span.name):
            reading.tool_name = found["tool"]
        waiting = open_calls.setdefault(found["tool"], [])
        if found["event"] == "start":
            waiting.append(node)
        elif waiting:
            begun = waiting[0].reading
            begun.result = begun.result or reading.result
            if found["event"] == "error":
                begun.failure = begun.failure or node.failure
            if begun.tool_name == found["tool"]:
                begun.tool_name = reading.tool_name
            reading.kind = "other"
            if found["event"] == "finish" or begun.result is not None:
                waiting.pop(0)
        elif found["event"] == "finish" and reading.arguments is None:
            reading.kind = "other"  # belongs to a call that `success` ended


_STRUCTURAL = ("run", "agent", "model", "tool")
_COMPARED: Final = 200
"""How many calls that run at the same time are compared with the next one: those that started last.

Duplicates start together. Comparing all of 20,000 concurrent calls took more than a minute.
"""


def mark_wrappers(nodes: Iterable[Node]) -> None:
    """Treat a model span as a run if it contains a run and repeats the run's answer.

    So do functions that Langfuse's decorator marks as a generation.
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
    if (content := _content(reading)) is not None:
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
