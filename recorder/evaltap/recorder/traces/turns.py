"""Several turns under one root: a trace around a conversation (`with trace("chat"):` of openai-agents).

Runs below one root are usually one turn: agents that hand over, steps of a pipeline, parallel
helpers. They are separate turns when the root has no content of its own, the previous run has
answered, and the next one answers something else: another user message, which does not quote that
answer, or the same message again, after that answer.
"""

from collections.abc import Iterator
from dataclasses import replace

from evaltap.recorder.conventions.reading import Reading
from evaltap.recorder.traces.node import Node
from evaltap.recorder.traces.trajectory import Trajectory


def turns_of(root: Node) -> list[Node]:
    """Return a root for each turn below this one; just itself if there is only one."""
    runs = (
        [] if has_content(root) else sorted(_runs_below(root), key=lambda node: node.span.start_ns)
    )
    if len(runs) < 2:
        return [root]
    turns: list[list[Trajectory]] = []
    for run in map(Trajectory, runs):
        if turns and not _answers_something_else(turns[-1], run):
            turns[-1].append(run)
        else:
            turns.append([run])
    if len(turns) < 2:
        return [root]
    return [
        _root_of_turn(root, [run.root for run in turn], n == 0, n == len(turns) - 1)
        for n, turn in enumerate(turns)
    ]


def joined(runs: list[Node]) -> list[Node]:
    """Merge each handover into one run: a run without an answer, and the sibling that continues it.

    Some instrumentations write no span around a run's agents, so the agent that hands over and the
    one that takes over are siblings with the same input.
    """
    found: list[list[Node]] = []
    for run in runs:
        if found and _is_handover(found[-1][-1], run):
            found[-1].append(run)
        else:
            found.append([run])
    return [group[0] if len(group) == 1 else _enclosing_node(group) for group in found]


def _is_handover(before: Node, run: Node) -> bool:
    if not run.span.parent_id or run.span.parent_id != before.span.parent_id:
        return False
    if run.span.start_ns < before.span.end_ns or before.failure is not None:
        return False
    first, second = Trajectory(before), Trajectory(run)
    return (
        not _text(first.final)
        and bool(question := _text(first.user))
        and question == _text(second.user)
    )


def _enclosing_node(runs: list[Node]) -> Node:
    """Return a node around runs, with the id of the first; it has no span of its own."""
    first, end_ns = runs[0], max(run.span.end_ns for run in runs)
    span = replace(first.span, end_ns=end_ns, attributes={}, events=(), status_code=0)
    turn = Node(span, Reading("", kind="run"), parent=first.parent, children=runs)
    for run in runs:
        run.parent = turn
    return turn


def has_content(root: Node) -> bool:
    """Return whether a run's own span shows any of its input or output."""
    reading = root.reading
    stated = (reading.user, reading.user_fallback, reading.final, reading.final_fallback)
    return any(item is not None for item in (*stated, reading.input, reading.output))


def _runs_below(root: Node) -> Iterator[Node]:
    """Yield the topmost runs below a root; spans of kind `other` are skipped."""
    for child in root.children:
        if child.kind in ("run", "agent"):
            yield child
        elif child.kind in (None, "other"):
            yield from _runs_below(child)


def _answers_something_else(turn: list[Trajectory], run: Trajectory) -> bool:
    before = turn[-1]
    if run.root.span.start_ns < max(one.root.span.end_ns for one in turn):
        return False
    answer = _text(before.final)
    question, latest = _text(turn[0].user), _text(run.user)
    again = any(answer == text.strip() for role, text in run.history if role == "assistant")
    return (
        bool(answer and question and latest)
        and (question != latest or again)
        and answer not in latest
    )


def _text(evidence: object) -> str:
    value = getattr(evidence, "value", None)
    return value.strip() if isinstance(value, str) else ""


def _root_of_turn(root: Node, runs: list[Node], first: bool, last: bool) -> Node:
    """Return a copy of the root around these runs; the first keeps its id, the last its failure."""
    span = replace(
        root.span,
        span_id=root.span.span_id if first else runs[0].span.span_id,
        start_ns=runs[0].span.start_ns,
        end_ns=root.span.end_ns if last else max(run.span.end_ns for run in runs),
    )
    if not last:
        span = replace(span, status_code=0, status_message="", events=())
    reading = root.reading if last else replace(root.reading, failure=None)
    turn = Node(span, reading, parent=root.parent, children=runs)
    for run in runs:
        run.parent = turn
    return turn
