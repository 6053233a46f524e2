"""OpenAI Agents SDK: a trace processor that records every run.

    agents.add_trace_processor(EvaltapTraceProcessor("log.db"))

Source: `agents.tracing` in openai-agents 0.24. The SDK calls a processor synchronously, on the
run's thread. A run is a top-level task span, or the trace in older versions, which have no task
spans. A task inside a function span is an agent used as a tool and belongs to the enclosing turn.

Calls, ids and arguments come from the model's responses, since function spans carry no id; the
function spans show how the calls ended. Spans carry no exceptions either, but the SDK ends them
while the exception propagates, so `sys.exc_info` has it.
"""

import json
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from agents.tracing import Span, Trace, TracingProcessor, get_current_trace
from agents.tracing.span_data import (
    AgentSpanData,
    FunctionSpanData,
    GenerationSpanData,
    ResponseSpanData,
    SpanData,
    TaskSpanData,
)

from evaltap.recorder.conventions.messages import read_response
from evaltap.recorder.enclosing import enclosing
from evaltap.recorder.observation import UNSEEN, Failure, Origin, failure_of
from evaltap.recorder.plugins.openai_loop import Call, Loop, arguments_of
from evaltap.recorder.plugins.support import guarded, recorder_for
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import UNKNOWN, Tokens, tokens
from evaltap.schemas.chat.evidence import Evidence, without_block

ORIGIN = Origin(framework="openai-agents", convention="openai-agents-tracing")
MAX_TRACES = 10_000
"""Maximum tracked open traces; beyond it the oldest is evicted."""


@dataclass(slots=True)
class _Node:
    """An open span with the loop and agent it belongs to."""

    span: Span[SpanData] | None
    level: Loop | None = None
    agent: str | None = None
    tool: "_Node | None" = None
    """The innermost enclosing function span, or this span."""
    call_key: str | None = None
    owns_run: bool = False
    outer_error: BaseException | None = None
    """The exception being handled when the span started: not the span's own."""


@dataclass(slots=True)
class _Trace:
    session_id: str | None
    nodes: dict[str, _Node] = field(default_factory=dict)
    root: _Node | None = None
    """Represents the run in a trace without task spans."""
    has_ended: bool = False
    """Whether its end was reported before a run went on in it."""


class EvaltapTraceProcessor(TracingProcessor):
    """Record every run as one turn of an eval case; the trace's `group_id` is the session.

    `log` is the recorder's log; pass `recorder` instead to share one, which its owner then closes.
    `clock` returns nanoseconds since the epoch.
    """

    def __init__(
        self,
        log: str | None = None,
        *,
        recorder: Observing | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._owns_recorder = recorder is None
        self._recorder = recorder_for(log, recorder)
        self._clock = clock
        self._traces: OrderedDict[str, _Trace] = OrderedDict()

    def on_trace_start(self, trace: Trace) -> None:
        """Remember the session for this trace's runs."""
        guarded(self, self._trace_began, trace)

    def on_trace_end(self, trace: Trace) -> None:
        """End whatever is still open in the trace."""
        guarded(self, self._trace_ended, trace)

    def on_span_start(self, span: Span[SpanData]) -> None:
        """Track the position of a new span in the tree of agents and tools."""
        guarded(self, self._span_began, span)

    def on_span_end(self, span: Span[SpanData]) -> None:
        """Record a model's output, a tool's result, or the end of a run."""
        guarded(self, self._span_ended, span)

    def force_flush(self) -> None:
        """Write the turns that have ended to the log."""
        guarded(self, self._recorder.flush)

    def shutdown(self) -> None:
        """Close the recorder if this processor created it."""
        if self._owns_recorder:
            guarded(self, self._recorder.close)

    def _trace_began(self, trace: Trace) -> None:
        group = getattr(trace, "group_id", None)
        self._traces[trace.trace_id] = _Trace(group if isinstance(group, str) else None)
        while len(self._traces) > MAX_TRACES:
            self._traces.popitem(last=False)

    def _resumed(self, span: Span[SpanData]) -> _Trace | None:
        """Return the trace of a run that goes on after an approval: the SDK does not start it again."""
        trace = get_current_trace()
        if span.parent_id is not None or trace is None or trace.trace_id != span.trace_id:
            return None
        self._trace_began(trace)
        found = self._traces[trace.trace_id]
        found.has_ended = True
        return found

    def _trace_ended(self, trace: Trace) -> None:
        known = self._traces.pop(trace.trace_id, None)
        for node in known.nodes.values() if known is not None else ():
            if node.owns_run and node.level is not None:
                node.level.run.end("incomplete")
        if known is not None and known.root is not None:
            self._end(known.root)

    def _span_began(self, span: Span[SpanData]) -> None:
        trace = self._traces.get(span.trace_id) or self._resumed(span)
        if trace is None:
            return
        above = trace.nodes.get(span.parent_id or "") or _Node(None)
        node = _Node(span, above.level, above.agent, above.tool, outer_error=sys.exc_info()[1])
        trace.nodes[span.span_id] = node
        data = span.span_data
        if isinstance(data, TaskSpanData):
            self._enter(node, trace)
        elif isinstance(data, AgentSpanData):
            node.agent = data.name
            if node.level is None:
                trace.root = trace.root or _Node(None, outer_error=node.outer_error)
                self._enter(trace.root, trace)
                node.level = trace.root.level
        elif isinstance(data, FunctionSpanData):
            node.tool = node

    def _enter(self, node: _Node, trace: _Trace) -> None:
        """Start an agent loop: a turn of its own, or the work of an open tool call."""
        if node.level is not None and node.tool is not None:
            node.level = Loop(node.level.run, self._claim(node.tool))
            node.tool = None
        elif node.level is None:
            if (outer := enclosing(self._recorder)) is not None:
                node.level = Loop(*outer)
                return
            node.owns_run = True
            node.level = Loop(
                ObservedRun(self._recorder, ORIGIN, session_id=trace.session_id, clock=self._clock)
            )

    def _span_ended(self, span: Span[SpanData]) -> None:
        trace, data = self._traces.get(span.trace_id), span.span_data
        if trace is not None and isinstance(data, FunctionSpanData):
            self._claim_equal(trace, span.span_id, data)
        node = trace.nodes.pop(span.span_id, None) if trace is not None else None
        if node is None or node.level is None:
            return
        if isinstance(data, ResponseSpanData):
            self._responded(node, node.level, data)
        elif isinstance(data, GenerationSpanData):
            self._generated(node, node.level, data)
        elif isinstance(data, FunctionSpanData):
            self._returned(node, node.level, span, data)
        elif isinstance(data, AgentSpanData):
            node.level.failure = _failure(span, node)
        elif isinstance(data, TaskSpanData):
            self._end(node)
        if trace is not None and trace.has_ended and not trace.nodes:
            self._traces.pop(span.trace_id, None)
            if trace.root is not None:
                self._end(trace.root)

    def _end(self, node: _Node) -> None:
        level, error = node.level, _raised(node)
        if level is None or not node.owns_run:
            return
        if error is not None:
            level.run.end_with(error)
        else:
            level.end()

    def _responded(self, node: _Node, level: Loop, data: ResponseSpanData) -> None:
        """Record a call of the Responses API."""
        response = data.response
        level.record_input(data.input, response.instructions if response is not None else None)
        usage = response.usage if response is not None else None
        level.run.model_called(
            response.model if response is not None else None,
            tokens=UNKNOWN
            if usage is None
            else Tokens(
                usage.input_tokens,
                usage.output_tokens,
                usage.input_tokens_details.cached_tokens,
            ),
            agent=node.agent,
        )
        level.record_output(response.output if response is not None else (), node.agent)

    def _generated(self, node: _Node, level: Loop, data: GenerationSpanData) -> None:
        """Record a call of the Chat Completions API, or of another provider in that format."""
        level.record_input(data.input)
        usage = data.usage or {}
        details = usage.get("input_tokens_details") or {}
        used = tokens(
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            details.get("cached_tokens"),
            details.get("cache_write_tokens"),
        )
        level.run.model_called(
            data.model,
            tokens=used,
            agent=node.agent,
        )
        messages = read_response(list(data.output or ()))
        written = _written(data.output or ())
        calls = [
            Call(name, call.name or "", written.get(name) or _arguments_json(call.arguments))
            for call in chain.from_iterable(message.calls for message in messages)
            if (name := call.call_id) is not None
        ]
        texts = [m.text.value for m in messages if m.text is not None and m.text.value]
        parts = [*chain.from_iterable(message.media for message in messages)]
        level.record_message("".join(texts) or None, calls, node.agent, parts)

    def _claim_equal(self, trace: _Trace, span_id: str, data: FunctionSpanData) -> None:
        """Claim the calls of spans that began before an equal one ended: in the order of their starts."""
        ended = trace.nodes.get(span_id)
        for node in trace.nodes.values() if ended is not None else ():
            if node is ended:
                return
            other = node.span.span_data if node.span is not None else None
            if (
                isinstance(other, FunctionSpanData)
                and ended is not None
                and node.level is ended.level
                and (other.name, other.input) == (data.name, data.input)
            ):
                self._claim(node)

    def _claim(self, node: _Node) -> str:
        """Return the key of the call that a function span executes."""
        if node.call_key is not None or node.level is None or node.span is None:
            return node.call_key or ""
        data, level = node.span.span_data, node.level
        if not isinstance(data, FunctionSpanData):
            return ""
        node.call_key = level.claim(data.name, data.input)
        if node.call_key is None:
            # The model's response was hidden, or came before an approval; record the call anyway.
            if level.parent is None:
                level.made_unasked(data.name, data.input)
            node.call_key = level.run.tool_called(
                None,
                data.name,
                UNSEEN if data.input is None else arguments_of(data.input),
                agent=node.agent,
                parent=level.parent,
                generated_id=node.span.span_id,
            )
        return node.call_key

    def _returned(
        self, node: _Node, level: Loop, span: Span[SpanData], data: FunctionSpanData
    ) -> None:
        error, output = _raised(node), data.output
        if error is not None and not isinstance(error, Exception):
            return
        failure = _failure(span, node)
        # Without sensitive data, a span has no input either.
        is_hidden = output is None and (data.input is None or failure is not None)
        result = UNSEEN if is_hidden else without_block(output)
        level.run.tool_returned(self._claim(node), result, failure)


def _raised(node: _Node) -> BaseException | None:
    """Return the exception that ends this span, or None."""
    error = sys.exc_info()[1]
    return error if error is not node.outer_error else None


def _failure(span: Span[SpanData], node: _Node) -> Failure | None:
    if (error := _raised(node)) is not None:
        # The SDK wraps a tool's exception; the cause is the original.
        return failure_of(error.__cause__ or error)
    if span.error is None:
        return None
    data = span.error.get("data") or {}
    cause = data.get("error")
    return Failure(message=cause if isinstance(cause, str) else span.error["message"])


def _written(
    output: Iterable[Mapping[str, Any]],  # Any: parsed JSON
) -> dict[str, str]:
    """Return the arguments by call id as the model wrote them, which may be no JSON."""
    calls = [call for message in output for call in message.get("tool_calls") or ()]
    named = ((call.get("id"), (call.get("function") or {}).get("arguments")) for call in calls)
    return {
        call_id: text
        for call_id, text in named
        if isinstance(call_id, str) and isinstance(text, str)
    }


def _arguments_json(arguments: Evidence | None) -> str:
    value = arguments.value if arguments is not None else {}
    return value if isinstance(value, str) else json.dumps(value)
