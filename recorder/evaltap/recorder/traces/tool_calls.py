"""The tool calls of one run: the union of the calls models requested and the tool spans.

A call is identified by its id. A span without one is matched by name and arguments, in order, with
the calls that models requested. Calls are in the order in which the models made them, which for
parallel calls is not the order in which their spans end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from evaltap.recorder.conventions.messages import since_user
from evaltap.recorder.conventions.reading import failure_of_answer
from evaltap.recorder.observation import RunEvent, ToolCalled, ToolReturned
from evaltap.recorder.telemetry.spans import canonical_json
from evaltap.recorder.traces.node import Node
from evaltap.schemas.chat.evidence import Evidence
from evaltap.schemas.chat.messages import Answer, Call, Message


@dataclass(slots=True, eq=False)
class _Slot:
    """One tool call, with the evidence found for it so far."""

    owner: Node | None
    time_ns: int
    agent_name: str | None
    call_id: str | None = None
    name: str | None = None
    requested: Evidence | None = None
    batch: Node | None = None
    tool: Node | None = None
    answer: Answer | None = None
    key: str = ""

    def may_be(self, node: Node) -> bool:
        """Return whether a model requested the call before this span, and no span is known for it."""
        if self.tool is not None or self.batch is None:
            return False
        return self.batch.span.start_ns <= node.span.start_ns


class ToolCalls:
    """Collects the tool calls of one run; `owner` maps each node to its enclosing tool call."""

    def __init__(
        self,
        root: Node,
        nodes: Sequence[Node],
        models: Sequence[Node],
        owner: Mapping[Node, Node | None],
    ) -> None:
        self._root = root
        self._owner = owner
        self._models = models
        self._slots: list[_Slot] = []
        self.has_unknown_answers = False
        """Whether a model received the result of a call that appears nowhere else."""
        self._requested: dict[str | None, list[_Slot]] = {}
        self._tools = sorted(
            (node for node in nodes if node.kind == "tool"), key=lambda node: node.span.start_ns
        )
        self._output_tools = frozenset[str]().union(
            *(node.reading.output_tools or () for node in nodes)
        )
        self._run_nodes = [node for node in nodes if node.kind in ("run", "agent")]
        self._slots = self._collected()

    @property
    def were_seen(self) -> bool:
        """Whether the run has any tool calls."""
        return bool(self._slots)

    def observe(self, run_id: str) -> Iterator[RunEvent]:
        """Yield a ToolCalled for each call, and a ToolReturned for each that returned."""
        slots = self._slots
        for index, slot in enumerate(slots):
            slot.key = slot.call_id or _generated_id(slot, index)
        keys = {slot.tool: slot.key for slot in slots if slot.tool is not None}
        for slot in slots:
            yield _called(run_id, slot, keys.get(slot.owner) if slot.owner is not None else None)
            if slot.tool is not None or slot.answer is not None:
                yield _returned(run_id, slot)

    def _collected(self) -> list[_Slot]:
        self._collect_requested()
        self._collect_spans()
        self._collect_history()
        self._collect_answers()
        slots = [slot for slot in self._slots if not self._is_output_tool(slot)]
        self._settle_times(slots)
        return sorted(slots, key=lambda slot: slot.time_ns)

    def _collect_requested(self) -> None:
        known: set[str] = set()
        for node in self._models:
            for message in node.reading.output or ():
                for call in message.calls:
                    if call.call_id is None or call.call_id not in known:
                        slot = self._slot(call, node, node.span.end_ns)
                        self._slots.append(slot)
                        self._requested.setdefault(slot.name, []).append(slot)
                        known.add(call.call_id or "")

    def _slot(self, call: Call, node: Node, time_ns: int) -> _Slot:
        return _Slot(
            self._owner[node],
            time_ns,
            _agent(node),
            call_id=call.call_id,
            name=call.name,
            requested=call.arguments,
            batch=node,
        )

    def _collect_spans(self) -> None:
        unmatched: list[Node] = []
        by_id = {slot.call_id: slot for slot in self._slots if slot.call_id is not None}
        for node in self._tools:
            call_id = node.reading.call_id
            slot = by_id.get(call_id) if call_id is not None else None
            if slot is None:
                unmatched.append(node)
            else:
                _attach(slot, node)
        for node in unmatched:
            slot = self._match(node)
            if slot is None:
                slot = _Slot(self._owner[node], node.span.start_ns, _agent(node))
                slot.name = node.reading.tool_name
                self._slots.append(slot)
            slot.call_id = node.reading.call_id or slot.call_id
            _attach(slot, node)

    def _match(self, node: Node) -> _Slot | None:
        """Return the earliest call that this span can be: same arguments, or the only candidate."""
        reading = node.reading
        open_slots = [
            slot
            for slot in self._requested.get(reading.tool_name, ())
            if slot.owner is self._owner[node] and slot.may_be(node)
        ]
        for slot in open_slots:
            if _same_arguments(slot.requested, reading.arguments):
                return slot
        if reading.call_id is not None:
            return next((slot for slot in open_slots if slot.call_id is None), None)
        if reading.arguments is None or len(open_slots) == 1:
            return open_slots[0] if open_slots else None
        return next((slot for slot in open_slots if slot.requested is None), None)

    def _collect_history(self) -> None:
        """Add calls that appear only in the input of a later model call or in the run's messages."""
        known = {slot.call_id: slot for slot in self._slots if slot.call_id is not None}
        for node in (*self._models, *self._run_nodes):
            is_model = node.kind == "model"
            messages = node.reading.input if is_model else node.reading.output
            time_ns = node.span.start_ns if is_model else node.span.end_ns
            self._add_from_history(since_user(messages or ()), node, time_ns, known)

    def _add_from_history(
        self, messages: Sequence[Message], node: Node, time_ns: int, known: dict[str, _Slot]
    ) -> None:
        taken: set[int] = set()
        for call in (call for message in messages for call in message.calls):
            slot = known.get(call.call_id or "") or next(
                (s for s in self._slots if id(s) not in taken and _is_call(s, call)), None
            )
            if slot is None:
                slot = self._slot(call, node, time_ns)
                slot.batch = None
                self._slots.append(slot)
            elif slot.requested is None:
                slot.requested = call.arguments
            if slot.call_id is None:
                slot.call_id = call.call_id
            if call.call_id is not None:
                known.setdefault(call.call_id, slot)
            taken.add(id(slot))

    def _collect_answers(self) -> None:
        nameless: dict[Node | None, list[Answer]] = {}
        by_id: dict[str, Answer] = {}
        for node in (*self._models, *self._run_nodes):
            found = _answers(node)
            for answer in found:
                if answer.call_id is not None:
                    by_id.setdefault(answer.call_id, answer)
            if unnamed := [answer for answer in found if answer.call_id is None]:
                nameless[self._owner[node]] = unnamed
        for slot in self._slots:
            slot.answer = by_id.get(slot.call_id or "")
            if slot.answer is None and slot.call_id is None:
                slot.answer = _taken(nameless.get(slot.owner, []), slot.name)
        known = {slot.call_id for slot in self._slots}
        self.has_unknown_answers = any(call_id not in known for call_id in by_id)

    def _is_output_tool(self, slot: _Slot) -> bool:
        return slot.tool is None and slot.name in self._output_tools

    def _settle_times(self, slots: Sequence[_Slot]) -> None:
        """Give each call a time: the start of its span, but never after a later call's.

        Calls of one model call keep the model's order. A model span may enclose its tools' spans
        (ADK 1), so its end is not used when there are tool spans.
        """
        batches: dict[int, list[_Slot]] = {}
        for slot in slots:
            if slot.tool is not None:
                slot.time_ns = slot.tool.span.start_ns
            if slot.batch is not None:
                batches.setdefault(id(slot.batch), []).append(slot)
        for batch in batches.values():
            starts = [slot.time_ns for slot in batch if slot.tool is not None]
            latest = max(starts) if starts else batch[-1].time_ns
            for slot in reversed(batch):
                slot.time_ns = min(slot.time_ns, latest)
                latest = slot.time_ns - 1
        _spread([slot for slot in slots if slot.batch is None])


def _answers(node: Node) -> list[Answer]:
    """Return the results of calls that a model received, or that a run's messages have."""
    output = node.reading.output or ()
    if node.kind != "model":
        return [answer for one in since_user(output) for answer in one.answers]
    # A provider that runs tools itself writes their results into its answer.
    return [a for one in (*since_user(node.reading.input or ()), *output) for a in one.answers]


def _taken(queue: list[Answer], name: str | None) -> Answer | None:
    """Take the first answer that may be of a tool from those without an id."""
    answer = next((one for one in queue if one.name in (None, name)), None)
    if answer is not None:
        queue.remove(answer)
    return answer


def _spread(slots: Sequence[_Slot]) -> None:
    """Keep calls known only from history in their order, one nanosecond apart."""
    latest: int | None = None
    for slot in reversed(slots):
        if slot.tool is None:
            slot.time_ns = slot.time_ns if latest is None else min(slot.time_ns, latest)
            latest = slot.time_ns - 1


def _attach(slot: _Slot, node: Node) -> None:
    if slot.tool is None:
        slot.tool = node
        slot.name = slot.name or node.reading.tool_name
        return
    # The same call id again: the first call counts, with the last result.
    first, last = slot.tool.reading, node.reading
    if last.result is not None:
        first.result = last.result


def _is_call(slot: _Slot, call: Call) -> bool:
    return slot.name == call.name and _same_arguments(
        slot.requested or _span_arguments(slot), call.arguments
    )


def _same_arguments(one: Evidence | None, other: Evidence | None) -> bool:
    """Return whether arguments match.

    A value equals an object with that single value (LangChain, LangSmith's `input`), and positional
    arguments equal an object with these values.
    """
    if one is None or other is None:
        return False
    if one.value == other.value:
        return True
    for whole, bare in ((one.value, other.value), (other.value, one.value)):
        if isinstance(whole, Mapping) and len(whole) == 1:
            only = next(iter(whole.values()))
            if only == bare or (not isinstance(bare, Mapping) and str(only) == str(bare)):
                return True
        if isinstance(whole, Mapping) and isinstance(bare, list) and bare == [*whole.values()]:
            return True
    return canonical_json(one.value) == canonical_json(other.value)


def _span_arguments(slot: _Slot) -> Evidence | None:
    return slot.tool.reading.arguments if slot.tool is not None else None


def _agent(node: Node) -> str | None:
    named = (n.reading.agent_name for n in (node, *node.ancestors()))
    return next((name for name in named if name), None)


def _generated_id(slot: _Slot, index: int) -> str:
    return slot.tool.span.span_id if slot.tool is not None else f"call-{index}"


def _is_typed(received: Evidence | None, result: Evidence) -> bool:
    """Return whether a span attribute converted a text result to a number."""
    if received is None or not isinstance(received.value, str) or isinstance(result.value, str):
        return False
    return isinstance(result.value, int | float) and received.value == canonical_json(result.value)


def _called(run_id: str, slot: _Slot, parent: str | None) -> ToolCalled:
    chosen = _arguments(slot)
    capture: dict[str, str] = {}
    if chosen is None:
        capture["arguments"] = "missing"
    elif chosen.value is None:
        capture.update({"arguments": chosen.flaw} if chosen.flaw else {})
    elif not isinstance(chosen.value, Mapping):
        # A value without the parameter's name: what was passed, but not what the model wrote.
        capture["arguments"] = "ambiguous"
    if slot.call_id is None:
        capture["id"] = "missing"
    return ToolCalled(
        run_id,
        slot.time_ns,
        slot.key,
        slot.name or "",
        arguments=chosen.value if chosen is not None else None,
        agent_name=slot.agent_name,
        parent_call_id=parent,
        id_known=slot.call_id is not None,
        capture=capture,
    )


def _arguments(slot: _Slot) -> Evidence | None:
    """Return the arguments that the span shows, or those that the model wrote where these say more."""
    choices = [item for item in (_span_arguments(slot), slot.requested) if item is not None]
    if len(choices) == 2 and _is_envelope(*choices):
        choices.reverse()
    objects = (item for item in choices if isinstance(item.value, Mapping))
    whole = (item for item in choices if item.flaw is None)
    return next(chain(objects, whole, choices), None)


def _is_envelope(spanned: Evidence, requested: Evidence) -> bool:
    """Return whether a span shows only an instrumentation's own arguments, none of the model's."""
    ours, theirs = spanned.value, requested.value
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return False
    return bool(ours) and bool(theirs) and ours.keys().isdisjoint(theirs.keys())


def _returned(run_id: str, slot: _Slot) -> ToolReturned:
    node, answer = slot.tool, slot.answer
    result = _result(slot)
    failure = node.failure if node is not None else None
    if failure is None and answer is not None and answer.failed:
        failure = failure_of_answer(answer)
    flaw = "missing" if result is None else result.flaw if result.value is None else None
    duration = None
    end_ns = slot.time_ns
    if node is not None and node.span.end_ns:
        end_ns = node.span.end_ns
        duration = max(0, node.span.end_ns - node.span.start_ns) / 1e6
    return ToolReturned(
        run_id,
        end_ns,
        slot.key,
        result=result.value if result is not None else None,
        failure=failure,
        duration_ms=duration,
        capture={} if flaw is None or failure is not None else {"result": flaw},
    )


def _result(slot: _Slot) -> Evidence | None:
    """Return the result that the span shows, or that the model received where this says more."""
    result = slot.tool.reading.result if slot.tool is not None else None
    received = slot.answer.result if slot.answer is not None else None
    if result is None or (result.value is None and result.flaw) or _is_typed(received, result):
        return received or result
    return result
