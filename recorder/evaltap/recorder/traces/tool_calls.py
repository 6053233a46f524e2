"""The tool calls of one run: the union of the calls models requested and the tool spans.

A call is identified by its id, its level (the tool call that encloses it) and, since some servers
number the calls of each response from 0, by how many calls of this id had returned before. A span
without an id is matched by name and arguments, in order, with the calls that models requested. Calls
are in the order in which the models made them, which for parallel calls is not the order in which
their spans end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile

from evaltap.recorder.conventions.messages import since_user
from evaltap.recorder.conventions.reading import failure_of_answer
from evaltap.recorder.observation import Failure, RunEvent, ToolCalled, ToolReturned
from evaltap.recorder.telemetry.spans import canonical_json
from evaltap.recorder.traces.node import Node
from evaltap.schemas.chat.evidence import Evidence
from evaltap.schemas.chat.messages import Answer, Call, Message, Part
from evaltap.schemas.chat.shapes import is_error


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
    again: Node | None = None
    """The last retry, whose outcome is the call's."""
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
        self._named: defaultdict[str, list[_Slot]] = defaultdict(list)
        """By id: those that have it, and those that had it before another was found."""
        self._tools = sorted(
            (node for node in nodes if node.kind == "tool"), key=lambda node: node.span.start_ns
        )
        self._tools_of: defaultdict[str | None, list[Node]] = defaultdict(list)
        for node in self._tools:
            self._tools_of[node.reading.call_id].append(node)
        self._output_tools = frozenset[str]().union(
            *(node.reading.output_tools or () for node in nodes)
        )
        self._run_nodes = [node for node in nodes if node.kind in ("run", "agent")]
        self._slots = self._collected()

    @property
    def were_seen(self) -> bool:
        """Whether the run has any tool calls."""
        return bool(self._slots)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The ids, as observed, of the calls whose result is not the last."""
        return tuple(
            slot.key for slot in self._slots if slot.tool is not None and slot.tool.reading.awaited
        )

    def wait(self, model: Node) -> bool:
        """Return whether a call that a model requested has neither result nor failure."""
        return any(slot.batch is model and _waits(slot) for slot in self._slots)

    def precede(self, start_ns: int | None) -> bool:
        """Return whether calls that no model of this run requested came before its first model call."""
        return any(
            slot.owner is None
            and slot.batch is None
            and slot.call_id is not None
            and (start_ns is None or _began(slot) <= start_ns)
            for slot in self._slots
        )

    def observe(self, run_id: str) -> Iterator[RunEvent]:
        """Yield a ToolCalled for each call, and a ToolReturned for each that returned."""
        slots = self._slots
        same_id = Counter[str]()
        for index, slot in enumerate(slots):
            call_id = slot.call_id or _generated_id(slot, index)
            same_id[call_id] += 1
            slot.key = f"{call_id}#{same_id[call_id]}" if same_id[call_id] > 1 else call_id
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
        known: set[tuple[Node | None, str, int]] = set()
        for node in self._models:
            output = node.reading.output or ()
            repeats = any(message.answers for message in output)
            before = () if repeats else since_user(node.reading.input or ())
            asked = sum(len(message.parts) for message in before)
            for part, number in islice(_numbered([*before, *output]), asked, None):
                if not isinstance(part, Call):
                    continue
                if part.call_id is not None:
                    number = max(number, self._returned_before(node, part.call_id))
                    if (self._owner[node], part.call_id, number) in known:
                        continue
                    known.add((self._owner[node], part.call_id, number))
                slot = self._slot(part, node, node.span.end_ns)
                self._slots.append(slot)
                self._name(slot, part.call_id)
                self._requested.setdefault(slot.name, []).append(slot)

    def _returned_before(self, model: Node, call_id: str) -> int:
        """Return how many calls of this id had returned when a model call of their level began."""
        return sum(
            self._owner[tool] is self._owner[model] and tool.span.end_ns <= model.span.start_ns
            for tool in self._tools_of[call_id]
        )

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

    def _name(self, slot: _Slot, call_id: str | None) -> None:
        if call_id is not None:
            slot.call_id = call_id
            self._named[call_id].append(slot)

    def _same_id(self, call_id: str | None) -> list[_Slot]:
        """Return the calls with an id, each once, in the order in which they were found."""
        named = dict.fromkeys(self._named[call_id]) if call_id is not None else ()
        return [slot for slot in named if slot.call_id == call_id]

    def _collect_spans(self) -> None:
        unmatched: list[Node] = []
        for node in self._tools:
            slot = self._with_id(node)
            if slot is None:
                unmatched.append(node)
            else:
                _attach(slot, node)
        unknown: list[Node] = []
        for node in unmatched:
            if slot := self._with_id(node) or self._match(node):
                self._name(slot, node.reading.call_id)
                _attach(slot, node)
            else:
                unknown.append(node)
        for node in unknown:
            slot = self._with_id(node) or self._requested_later(node)
            if slot is None:
                slot = _Slot(self._owner[node], node.span.start_ns, _agent(node))
                slot.name = node.reading.tool_name
                self._slots.append(slot)
            self._name(slot, node.reading.call_id)
            _attach(slot, node)

    def _with_id(self, node: Node) -> _Slot | None:
        """Return the call with the id of this span, if it has one, that the span is of."""
        if not (same := self._same_id(node.reading.call_id)):
            return None
        # Two instrumentations write a span each, one within the other; an agent makes calls of its own.
        above = set(takewhile(lambda one: one.kind not in ("agent", "run"), node.ancestors()))
        if around := next((slot for slot in same if slot.tool in above), None):
            return around
        own = [slot for slot in same if slot.owner is self._owner[node]]
        if asked := [slot for slot in own if slot.batch is not None]:
            earlier = [slot for slot in asked if _starts_before(slot.batch, node)]
            return earlier[-1] if earlier else asked[0]
        if own:
            return own[-1] if self._is_retry(own[-1], node) else None
        return next((slot for slot in same if slot.tool is None), None)

    def _is_retry(self, slot: _Slot, node: Node) -> bool:
        """Return whether a span repeats a call: same arguments, and no model was called between."""
        first, again = slot.tool, node
        if first is None:
            return True
        one, other = first.reading.arguments, again.reading.arguments
        if one is not None and other is not None and not _same_arguments(one, other):
            return False
        return not any(
            self._owner[model] is slot.owner
            and first.span.end_ns <= model.span.start_ns
            and model.span.end_ns <= again.span.start_ns
            for model in self._models
        )

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

    def _requested_later(self, node: Node) -> _Slot | None:
        """Return the call with these arguments that a model requested, by its clock, after a tool began.

        The clock of the tool's machine may be behind.
        """
        return next(
            (
                slot
                for slot in self._requested.get(node.reading.tool_name, ())
                if slot.tool is None
                and slot.owner is self._owner[node]
                and node.reading.call_id in (None, slot.call_id)
                and _same_arguments(slot.requested, node.reading.arguments)
            ),
            None,
        )

    def _collect_history(self) -> None:
        """Add calls that appear only in the input of a later model call or in the run's messages."""
        for node in (*self._models, *self._run_nodes):
            is_model = node.kind == "model"
            messages = node.reading.input if is_model else node.reading.output
            time_ns = node.span.start_ns if is_model else node.span.end_ns
            self._add_from_history(since_user(messages or ()), node, time_ns)

    def _add_from_history(self, messages: Sequence[Message], node: Node, time_ns: int) -> None:
        taken: set[int] = set()
        known: dict[str, list[_Slot]] = {}
        told: list[_Slot] = []
        for call, number in _numbered(messages):
            if not isinstance(call, Call):
                continue
            slot = None
            if call.call_id is not None:
                if call.call_id not in known:
                    known[call.call_id] = self._of_level(call.call_id, self._owner[node])
                slot = next(islice(known[call.call_id], number, None), None)
            if slot is None:
                others = (
                    one
                    for one in self._slots
                    if id(one) not in taken
                    and (call.call_id is None or one.call_id != call.call_id)
                )
                slot = next((one for one in others if _is_call(one, call)), None)
            if slot is None:
                slot = self._slot(call, node, time_ns)
                slot.batch = None
                self._slots.append(slot)
                self._name(slot, call.call_id)
                if call.call_id is not None:
                    known[call.call_id].append(slot)
            elif slot.requested is None:
                slot.requested = call.arguments
            if slot.call_id is None:
                self._name(slot, call.call_id)
            taken.add(id(slot))
            told.append(slot)
        _put_before_later(told)

    def _of_level(self, call_id: str, owner: Node | None) -> list[_Slot]:
        """Return the calls with an id that a level's messages may show, in order."""
        same = self._same_id(call_id)
        return sorted((slot for slot in same if slot.owner is owner), key=_began) or same

    def _collect_answers(self) -> None:
        nameless: dict[Node | None, list[Answer]] = {}
        by_id: dict[str, Answer] = {}
        in_level: dict[tuple[Node | None, str, int], Answer] = {}
        for node in (*self._models, *self._run_nodes):
            found = _answers(node)
            for answer, number in found:
                if answer.call_id is not None:
                    by_id.setdefault(answer.call_id, answer)
                    in_level.setdefault((self._owner[node], answer.call_id, number), answer)
            if unnamed := [answer for answer, _ in found if answer.call_id is None]:
                nameless[self._owner[node]] = unnamed
        same_id = Counter(slot.call_id for slot in self._slots)
        numbers = Counter[tuple[Node | None, str]]()
        for slot in sorted(self._slots, key=_began):
            if slot.call_id is not None and same_id[slot.call_id] > 1:
                number = numbers[slot.owner, slot.call_id]
                numbers[slot.owner, slot.call_id] += 1
                slot.answer = in_level.get((slot.owner, slot.call_id, number))
            else:
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
        (ADK 1), so its end is not used when there are tool spans. A tool may run on a machine with
        another clock: no call is before the model call that requested it, or after the one that received
        its result.
        """
        received = self._received_ns()
        same_id = Counter(slot.call_id for slot in slots)
        batches: dict[int, list[_Slot]] = {}
        for slot in slots:
            if slot.tool is not None:
                slot.time_ns = slot.tool.span.start_ns
                if slot.batch is not None:
                    slot.time_ns = max(slot.time_ns, slot.batch.span.start_ns)
                if slot.call_id in received and same_id[slot.call_id] == 1:
                    slot.time_ns = min(slot.time_ns, received[slot.call_id])
            if slot.batch is not None:
                batches.setdefault(id(slot.batch), []).append(slot)
        for batch in batches.values():
            starts = [slot.time_ns for slot in batch if slot.tool is not None]
            latest = max(starts) if starts else batch[-1].time_ns
            for slot in reversed(batch):
                slot.time_ns = min(slot.time_ns, latest)
                latest = slot.time_ns - 1
        _spread([slot for slot in slots if slot.batch is None])

    def _received_ns(self) -> dict[str | None, int]:
        """Return when the first model call that received a result began, by the call's id."""
        found: dict[str | None, int] = {}
        for node in self._models:
            for message in since_user(node.reading.input or ()):
                for part in message.parts:
                    if isinstance(part, Answer) and part.call_id is not None:
                        found.setdefault(part.call_id, node.span.start_ns)
        return found


def _numbered(messages: Iterable[Message]) -> Iterator[tuple[Part, int]]:
    """Yield the parts of messages, each call and result with the number of calls of its id before it."""
    numbers, answered = Counter[str](), set[str]()
    for part in (part for message in messages for part in message.parts):
        call_id = (part.call_id if isinstance(part, Call | Answer) else None) or ""
        if isinstance(part, Answer):
            answered.add(call_id)
        elif call_id in answered:
            answered.remove(call_id)
            numbers[call_id] += 1
        yield part, numbers[call_id]


def _answers(node: Node) -> list[tuple[Answer, int]]:
    """Return the results of calls that a model received, or that a run's messages have, numbered."""
    output = node.reading.output or ()
    if node.kind != "model":
        messages = [*since_user(node.reading.input or ()), *since_user(output)]
    else:
        # A provider that runs tools itself writes their results into its answer.
        messages = [*since_user(node.reading.input or ()), *output]
    return [(part, number) for part, number in _numbered(messages) if isinstance(part, Answer)]


def _began(slot: _Slot) -> int:
    return slot.tool.span.start_ns if slot.tool is not None else slot.time_ns


def _starts_before(batch: Node | None, node: Node) -> bool:
    return batch is not None and batch.span.start_ns <= node.span.start_ns


def _taken(queue: list[Answer], name: str | None) -> Answer | None:
    """Take the first answer that may be of a tool from those without an id."""
    answer = next((one for one in queue if one.name in (None, name)), None)
    if answer is not None:
        queue.remove(answer)
    return answer


def _put_before_later(slots: Sequence[_Slot]) -> None:
    """Keep calls known only from history before those that follow them there, and have spans."""
    latest: int | None = None
    for slot in reversed(slots):
        if latest is not None and slot.tool is None and slot.batch is None:
            slot.time_ns = min(slot.time_ns, latest - 1)
        latest = _began(slot)


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
    if 0 < (slot.again or slot.tool).span.end_ns <= node.span.start_ns:
        if node.failure is not None or node.reading.result is not None:
            slot.again = node
        return
    # A second instrumentation of the same call: the first one counts, with the last result.
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
    node, answer = slot.again or slot.tool, slot.answer
    result = _result(slot)
    failure = node.failure if node is not None else None
    if failure is None and answer is not None and answer.failed:
        failure = failure_of_answer(answer)
    elif failure is None and result is not None and is_error(result.value):
        failure = Failure("tool_error")  # as the conventions for MCP say
    flaw = "missing" if result is None else result.flaw if result.value is None else None
    duration = None
    end_ns = slot.time_ns
    if slot.tool is not None and node is not None and node.span.end_ns:
        end_ns = node.span.end_ns
        took_ns = end_ns - slot.tool.span.start_ns
        duration = took_ns / 1e6 if took_ns >= 0 else None
    return ToolReturned(
        run_id,
        end_ns,
        slot.key,
        result=result.value if result is not None else None,
        failure=failure,
        duration_ms=duration,
        capture={} if flaw is None or failure is not None else {"result": flaw},
    )


def _waits(slot: _Slot) -> bool:
    nodes = [node for node in (slot.tool, slot.again) if node is not None]
    result = _result(slot)
    return (result is None or result.value is None) and not any(node.failure for node in nodes)


def _result(slot: _Slot) -> Evidence | None:
    """Return the result that the span shows, or that the model received where this says more."""
    node = slot.again or slot.tool
    result = node.reading.result if node is not None else None
    received = slot.answer.result if slot.answer is not None else None
    if result is None or (result.value is None and result.flaw) or _is_typed(received, result):
        return received or result
    return result
