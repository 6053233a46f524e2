"""Reads one trace into the observations of its runs.

A run is one turn: the topmost runner, workflow or agent span. A run below another run, or below a
tool span, belongs to the enclosing turn. Creating an agent is not a run. A trace of model or tool
spans without any such span is one turn of a plain chat application, rooted in its top span.

Whatever is not in the spans is reported as missing, never guessed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from evaltap.recorder.conventions import framework_of
from evaltap.recorder.conventions.additions import MCP_METHOD
from evaltap.recorder.conventions.reading import Reading
from evaltap.recorder.observation import (
    MAX_CONTEXT,
    MAX_HISTORY,
    PAUSED,
    ContextMessage,
    Origin,
    Responded,
    RunEnded,
    RunEvent,
    RunStarted,
    RunStatus,
    UserMessage,
)
from evaltap.recorder.telemetry.spans import (
    ENVIRONMENTS,
    SERVICE_NAME,
    SERVICE_VERSION,
    LogRecord,
    Span,
)
from evaltap.recorder.traces.node import Node
from evaltap.recorder.traces.trajectory import Trajectory
from evaltap.recorder.traces.tree import build_tree


def observe_trace(
    spans: Iterable[Span],
    logs: Iterable[LogRecord] = (),
    *,
    close_reason: str = "root_span_ended",
    known_runs: Mapping[str, str] | None = None,
) -> list[list[RunEvent]]:
    """Return the observations of each run of one trace, in order of start.

    A root that is still open (`end_ns` 0) or was never exported yields an incomplete run, with
    `close_reason` as the reason. `known_runs` maps the root span ids of earlier runs to their run
    ids: when a missing parent arrives late, its run keeps the id.
    """
    known = known_runs or {}
    tops = build_tree(spans, logs)
    runs = [_observe_run(root, _run_id(root, known), close_reason) for root in find_runs(tops)]
    for top in tops:
        for node in (top, *top.descendants()):
            node.parent = None  # without cycles, the tree need not wait for the garbage collector
    return runs


def _run_id(root: Node, known: Mapping[str, str]) -> str:
    for node in (root, *root.descendants()) if known else ():
        if node.span.span_id in known:
            return known[node.span.span_id]
    return f"{root.span.trace_id}-{root.span.span_id}"


def find_runs(tops: Sequence[Node]) -> list[Node]:
    """Return the roots of the turns among the trees of one trace."""
    roots: list[Node] = []
    pending = list(reversed(tops))
    while pending:
        node = pending.pop()
        if node.kind in ("run", "agent"):
            roots.append(node)
        elif node.kind not in ("tool", "model", "guardrail"):
            pending.extend(reversed(node.children))
    runs = [root for root in roots if _is_run(root)]
    if len(runs) > 1 and any(map(_has_content, runs)):
        runs = [
            root for root in runs if _has_calls(root) or has_content(root) or not _is_over(root)
        ]
    return [turn for run in joined(runs) for turn in turns_of(run)] or _runs_without_agent(tops)


def _runs_without_agent(tops: Sequence[Node]) -> list[Node]:
    """Return a root for each chat, and one for all calls whose shared parent was never exported.

    Several calls without a parent are the remains of one run, killed or cut off before its own span
    was written. A single one may just as well be a chat below a span that was deliberately not
    exported.
    """
    chats = [top for top in tops if _has_calls(top) and not _only_serves_tools(top)]
    orphans = [top for top in chats if top.kind in ("model", "tool") and top.span.parent_id]
    if len(orphans) < 2:
        return chats
    first = orphans[0].span
    stand_in = replace(
        first,
        span_id=first.parent_id or "",
        parent_id=None,
        name="",
        end_ns=0,
        attributes={},
        events=(),
    )
    lost = Node(stand_in, Reading(""), children=orphans)
    for orphan in orphans:
        orphan.parent = lost
    return [lost, *(top for top in chats if top not in orphans)]


def _only_serves_tools(top: Node) -> bool:
    """Return whether a trace is that of an MCP server, which an agent called without passing its own."""
    calls, pending = [], [top]
    while pending:
        node = pending.pop()
        if node.kind in ("model", "tool"):
            calls.append(node)
        else:
            pending += node.children
    return top.span.parent_id is None and all(MCP_METHOD in one.span.attributes for one in calls)


def _is_run(root: Node) -> bool:
    """An agent's span is always a run, a workflow's only if something happened in it."""
    return root.kind == "agent" or _has_content(root)


def _has_content(root: Node) -> bool:
    reading = root.reading
    stated = (reading.user, reading.final, reading.input, reading.output)
    return _has_calls(root) or any(item is not None for item in stated)


def _is_over(root: Node) -> bool:
    """Return whether a run ended well; without content it is a gateway's view of a neighboring run."""
    return root.span.end_ns > 0 and root.failure is None


def _has_calls(top: Node) -> bool:
    if top.kind in ("model", "tool"):
        return True
    return any(node.kind in ("model", "tool", "agent") for node in top.descendants())


def _observe_run(root: Node, run_id: str, close_reason: str) -> list[RunEvent]:
    span, trajectory = root.span, Trajectory(root)
    final = trajectory.final
    answer = final if final is not None and final.value is not None else None
    unfinished = span.end_ns == 0 or (answer is None and _is_part_of_open(root))
    end_ns = max(span.end_ns, span.start_ns)
    failure = trajectory.failure
    status: RunStatus = "incomplete" if unfinished else "error" if failure is not None else "ok"
    observations: list[RunEvent] = [_started(root, trajectory, run_id)]
    user = trajectory.user
    observations.append(
        UserMessage(
            run_id,
            span.start_ns,
            user.value if user is not None else None,
            {} if user is not None and user.value is not None else {"userContent": _flaw(user)},
            user.media if user is not None else (),
        )
    )
    observations.extend(_context(trajectory, run_id, span.start_ns))
    observations.extend(trajectory.calls(run_id))
    if answer is not None:
        observations.append(
            Responded(
                run_id, end_ns, answer.value, parts=answer.media, reasoning=trajectory.reasoning
            )
        )
    elif status == "ok":
        observations.append(Responded(run_id, end_ns, None, {"finalResponse": _flaw(final)}))
    if not unfinished:
        close_reason = _close_reason(status, trajectory)
    observations.append(
        RunEnded(
            run_id,
            end_ns,
            status,
            failure,
            close_reason,
            resumed=trajectory.is_resumed,
            awaits=trajectory.awaited,
        )
    )
    return observations


def _close_reason(status: RunStatus, trajectory: Trajectory) -> str:
    return PAUSED if status == "ok" and trajectory.has_paused else "root_span_ended"


def _is_part_of_open(root: Node) -> bool:
    """Return whether a run is a step of one that has not ended.

    OpenInference's LangChain spans get their attributes when they end, so an open one is not read as a run.
    """
    return any(
        above.span.end_ns == 0 and above.span.scope == root.span.scope for above in root.ancestors()
    )


def _context(trajectory: Trajectory, run_id: str, start_ns: int) -> Iterator[RunEvent]:
    """Yield the models' instructions, each text once, in order, and the preceding conversation."""
    told = trajectory.context
    texts = dict.fromkeys(str(one.value) for one in told if one.value)
    for place, content in enumerate(islice(texts, MAX_CONTEXT)):
        yield ContextMessage(run_id, start_ns + place, content)
    flaw = "truncated" if len(texts) > MAX_CONTEXT else next((t.flaw for t in told if t.flaw), None)
    if flaw:
        yield ContextMessage(run_id, start_ns, None, {"contextMessages": flaw})
    history = trajectory.history
    cut = {"contextMessages": "truncated"} if len(history) > MAX_HISTORY else {}
    for place, (role, content) in enumerate(history[-MAX_HISTORY:]):
        yield ContextMessage(run_id, start_ns + MAX_CONTEXT + place, content, cut, role)


def _started(root: Node, trajectory: "Trajectory", run_id: str) -> RunStarted:
    span = root.span
    session_id = trajectory.session_id
    service = span.resource.get(SERVICE_NAME)
    named = isinstance(service, str) and not service.startswith("unknown_service")
    return RunStarted(
        run_id,
        span.start_ns,
        session_id=session_id,
        app_name=trajectory.app_name or (str(service) if named else None),
        user_id=trajectory.user_id,
        agent_name=trajectory.agent_name,
        origin=Origin(
            service=str(service) if named else None,
            framework=framework_of(trajectory.scope),
            convention=trajectory.convention or None,
            version=_stated(span, SERVICE_VERSION),
            environment=_stated(span, *ENVIRONMENTS),
        ),
        trace_id=span.trace_id,
        root_span_id=span.span_id,
        invocation_id=trajectory.invocation_id,
        capture=trajectory.unseen
        | trajectory.contradictions
        | ({} if session_id is not None else {"sessionId": "synthesized"}),
    )


def _stated(span: Span, *keys: str) -> str | None:
    """Return the resource's value of the first key that it has."""
    found = (span.resource.get(key) for key in keys)
    return next((one for one in found if isinstance(one, str) and one), None)


def _flaw(evidence: object) -> str:
    return getattr(evidence, "flaw", None) or "missing"


def turns_of(root: Node) -> list[Node]:
    """Return a root for each turn below this one; just itself if there is only one.

    Runs below one root are usually one turn: agents that hand over, steps of a pipeline, parallel helpers.
    They are several in a trace around a conversation (`with trace("chat"):` of openai-agents): when the root
    has no content of its own, the previous run has answered, and the next one answers another user message,
    which does not quote that answer, or the same one again, after that answer.
    """
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
    one that takes over are siblings with the same input. An agent that runs at the provider stops at
    each call of the program's tools, and continues with their results.
    """
    found: list[list[Node]] = []
    for run in runs:
        if found and _is_handover(found[-1][-1], run):
            found[-1].append(run)
        else:
            found.append([run])
    return [group[0] if len(group) == 1 else _enclosing_node(group) for group in found]


def _is_handover(before: Node, run: Node) -> bool:
    if run.span.parent_id != before.span.parent_id:
        return False
    if run.span.start_ns < before.span.end_ns or before.failure is not None:
        return False
    first, second = Trajectory(before), Trajectory(run)
    return (
        not _text(first.final)
        and bool(question := _text(first.user))
        and (question == (asked := _text(second.user)) or (not asked and _is_given_results(run)))
    )


def _is_given_results(run: Node) -> bool:
    """Return whether the last message that a run was given has results of tools."""
    given = run.reading.input or ()
    return bool(given) and bool(given[-1].answers)


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
