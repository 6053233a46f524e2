"""The spans of one trace as a tree of readings.

Duplicates are merged into one span (the finished one, otherwise the last), children of dropped spans
move to the parent, a span without its parent in the trace is a top, and cycles are broken. The depth
is bounded, because reading a tree looks at all ancestors of each span.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Final

from evaltap.recorder.conventions import read_span
from evaltap.recorder.conventions.messages import since_user
from evaltap.recorder.conventions.reading import Reading
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.duplicates import mark_wrappers, merge_duplicates, merge_nested
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
        found = _EVENT.match(node.span.name)
        if found is None:
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
            begun.failure = begun.failure or (node.failure if found["event"] == "error" else None)
            begun.tool_name = (
                reading.tool_name if begun.tool_name == found["tool"] else begun.tool_name
            )
            reading.kind = "other"
            if found["event"] == "finish" or begun.result is not None:
                waiting.pop(0)
        elif found["event"] == "finish" and reading.arguments is None:
            reading.kind = "other"  # belongs to a call that `success` ended
