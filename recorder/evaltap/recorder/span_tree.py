"""The spans of one trace as a tree of what they stand for.

Duplicates are one span (the finished one, else the last), dropped spans leave their children to
their parents, a span whose parent is not in the trace is a top, and no cycle survives.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from evaltap.recorder.conventions import read_span
from evaltap.recorder.conventions.messages import since_user
from evaltap.recorder.conventions.reading import Reading, absorb, failure_of
from evaltap.recorder.observation import Failure
from evaltap.recorder.pacing import breathe
from evaltap.recorder.telemetry import LogRecord, Span

NOTHING = Reading("")


@dataclass(slots=True, eq=False)
class Node:
    """One span with what was read from it and its place in the tree."""

    span: Span
    reading: Reading
    parent: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)

    @property
    def kind(self) -> str | None:
        """What the span stands for (see `reading.Kind`)."""
        return self.reading.kind

    @property
    def failure(self) -> Failure | None:
        """Why the span failed, None when it did not."""
        return failure_of(self.span, self.reading.failure)

    def ancestors(self) -> "Iterator[Node]":
        """Yield the parent, its parent, and so on."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def descendants(self) -> "Iterator[Node]":
        """Yield everything below, shallow first, in order of start."""
        level = self.children
        while level:
            yield from level
            level = [child for node in level for child in node.children]


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
    for node in nodes.values():
        _break_cycle(node)
    _merge_repeated(nodes.values())
    tops = _link(nodes)
    for node in nodes.values():
        if node.reading.overwritten:
            _restore_calls(node)
    return tops


def _read(span: Span, logs: Sequence[LogRecord]) -> Reading:
    breathe()
    return read_span(span, sorted(logs, key=lambda log: log.time_ns)) or Reading("")


def _unique(spans: Iterable[Span]) -> list[Span]:
    """Keep one span for each id, whatever the order: the finished one, then the fullest."""
    best: dict[str, Span] = {}
    for span in spans:
        known = best.get(span.span_id)
        if known is None or _completeness(span) > _completeness(known):
            best[span.span_id] = span
    return sorted(best.values(), key=lambda span: (span.start_ns, span.end_ns, span.span_id))


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


def _break_cycle(node: Node) -> None:
    seen = {node.span.span_id}
    current = node
    while current.parent is not None:
        if current.parent.span.span_id in seen:
            current.parent = None
            return
        current = current.parent
        seen.add(current.span.span_id)


def _merge_repeated(nodes: Iterable[Node]) -> None:
    """Let the outermost of several spans for one call speak for all of them.

    A model call inside a model call is one call seen by two layers (a wrapper and the provider's
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


_STRUCTURAL = ("run", "agent", "model", "tool")


def _same_call(outer: Node, inner: Node) -> bool:
    if outer.kind == "model":
        return True
    one, other = outer.reading, inner.reading
    if one.call_id is not None and other.call_id is not None:
        return one.call_id == other.call_id
    return one.tool_name == other.tool_name


def _absorb_call(outer: Node, inner: Node) -> None:
    if outer.kind == "tool" and outer.reading.failure is None:
        failure = inner.failure
        # The outer layer may have turned the failure into a result; the call failed all the same.
        if failure is not None and failure_of(outer.span) is None:
            outer.reading.failure = failure
    absorb(outer.reading, inner.reading)


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
    """Give an agent over whose span its model calls were written a node for each of those calls.

    The last request repeats what the earlier calls of this turn answered.  A last response that is
    the end of it already was left by the call before: the last call brought none.  When each call
    was made is not known, only that they came one after the other.
    """
    reading = agent.reading
    told, answered = reading.input or (), reading.output or ()
    reading.input = reading.output = None
    if any(node.kind == "model" for node in agent.descendants()):
        return
    past = since_user(told)
    asked = len(told) - len(past)
    calls = [
        (told[: asked + index], message)
        for index, message in enumerate(past)
        if message.role == "assistant"
    ]
    if answered and (not calls or calls[-1][1].parts != answered[-1].parts):
        calls.append((told, answered[-1]))
    for index, (before, answer) in enumerate(calls):
        start_ns = agent.span.start_ns + index
        span = replace(agent.span, start_ns=start_ns, end_ns=start_ns, status_code=0, events=())
        restored = Reading("", kind="model", input=before, output=(answer,), model=reading.model)
        agent.children.insert(index, Node(span, restored, parent=agent))
