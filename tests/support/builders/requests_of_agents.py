"""An agent behind requests, each of which is a trace of its own, with spans of the GenAI conventions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_span_in_context

from evaltap.recorder.sources.span_processor import CaseSpanProcessor
from support.builders.inline_recorder import InlineRecorder
from support.builders.spans_of_agents import AGENT, chat, says, told, user
from support.builders.witness import latest

Message = dict[str, Any]


def calls(call_id: str, name: str = "refund", **arguments: Any) -> Message:
    part = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part]}


def result(call_id: str, value: Any) -> Message:
    part = {"type": "tool_call_response", "id": call_id, "response": value}
    return {"role": "tool", "parts": [part]}


class Service:
    """An agent behind requests, each of which is a trace of its own."""

    def __init__(self, agent: dict[str, Any] = AGENT) -> None:
        self.recorder = InlineRecorder()
        self.exported = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(CaseSpanProcessor(recorder=self.recorder))
        provider.add_span_processor(SimpleSpanProcessor(self.exported))
        self._tracer, self._agent = provider.get_tracer("test"), agent

    def request(self, *steps: tuple[Sequence[Message], Message], **more: Any) -> None:
        """Trace a request with model calls: what they receive, and what they say."""
        root = self._tracer.start_span(
            "invoke_agent support", Context(), attributes={**self._agent, **more}
        )
        for given, said in steps:
            within = set_span_in_context(root)
            attributes = chat(told(*given), told(said))
            self._tracer.start_span("chat m", within, attributes=attributes).end()
        root.end()

    def written(self, path: Path, only: slice = slice(None)) -> Path:
        """Write the spans as OTLP."""
        spans = self.exported.get_finished_spans()[only]
        path.write_bytes(encode_spans(spans).SerializeToString())
        return path

    def turns(self) -> list[dict[str, Any]]:
        """Return the turns, those of a file being the same."""
        self.recorder.flush()
        return [case["actualConversation"][0] for case in latest(self.recorder.cases)]


ASKED = [user("Refund A"), calls("c1", amount=5)]


def approved(service: Service) -> None:
    """Have a request pause and another one go on."""
    service.request((ASKED[:1], ASKED[1]))
    service.request(([*ASKED, result("c1", "done")], says("Refunded.")))
