"""Conventions for agent telemetry: one reader per dialect, tried in a fixed order.

To support another convention, write an object with `name`, `marks` and `read` (see
`reading.Dialect`) and insert it into `DIALECTS` by its authority: earlier dialects win, field by
field.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from evaltap.recorder.conventions.additions import AgentFramework, LiveKit, Mcp, Requests, SpringAI
from evaltap.recorder.conventions.adk import Adk
from evaltap.recorder.conventions.claude_code import ClaudeCode
from evaltap.recorder.conventions.genai import GenAI
from evaltap.recorder.conventions.langfuse import Langfuse
from evaltap.recorder.conventions.langsmith import LangSmith
from evaltap.recorder.conventions.logfire import Logfire
from evaltap.recorder.conventions.message_events import MessageEvents
from evaltap.recorder.conventions.messages import without_fragments
from evaltap.recorder.conventions.mlflow import MLflow
from evaltap.recorder.conventions.openinference import OpenInference
from evaltap.recorder.conventions.provider_clients import ProviderClients
from evaltap.recorder.conventions.pydantic_ai import PydanticAI
from evaltap.recorder.conventions.reading import Dialect, Reading, drop_empty_ids, merge
from evaltap.recorder.conventions.traceloop import Traceloop
from evaltap.recorder.conventions.vercel import Vercel
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.messages import with_answers_apart

DIALECTS: tuple[Dialect, ...] = (
    PydanticAI(),
    Logfire(),
    Adk(),
    LangSmith(),
    Vercel(),
    ClaudeCode(),
    OpenInference(),
    Traceloop(),
    AgentFramework(),
    SpringAI(),
    LiveKit(),
    Mcp(),
    MLflow(),
    GenAI(),
    MessageEvents(),
    Langfuse(),
    ProviderClients(),
    Requests(),
)
"""All dialects, the most specific first."""

SCOPES_KNOWN_BY_NAME = ("gcp.vertex.agent", "pydantic-ai", "strands.telemetry.tracer")
"""Instrumentation scopes whose spans are readable by name alone."""
NAMES_KNOWN = ("claude_code.",)
"""Span name prefixes that are readable by name alone, whatever the scope."""

MARKS = tuple(sorted({mark for dialect in DIALECTS for mark in dialect.marks}))
"""Prefixes of the attribute names that make a span readable, of all dialects."""

_FRAMEWORKS = {
    "gcp.vertex.agent": "google-adk",
    "strands.telemetry.tracer": "strands",
    "ai": "vercel-ai",
    "agent_framework": "microsoft-agent-framework",
    "logfire.openai": "openai",
    "logfire.openai_agents": "openai-agents",
}
_INSTRUMENTATIONS = ("openinference.instrumentation.", "opentelemetry.instrumentation.")


def read_span(span: Span, logs: Sequence[LogRecord] = ()) -> Reading | None:
    """Return the merged reading of all conventions, or None when none knows the span."""
    if span.events or logs or is_known_by_name(span.scope, span.name):
        dialects = DIALECTS
    else:
        # Most spans of a large trace end here; trying every dialect would cost more than reading
        # them.
        marked = 0
        for name in span.attributes:
            marked |= _marked(name)
        dialects = _dialects(marked)
    readings = [
        reading for dialect in dialects if (reading := dialect.read(span, logs)) is not None
    ]
    for reading in readings:
        drop_empty_ids(reading)
    if (merged := merge(readings)) is None:
        return None
    if merged.kind == "model" and merged.output is not None:
        merged.output = tuple(without_fragments(merged.output))
    if merged.kind in ("model", "run", "agent"):
        merged.input = merged.input and with_answers_apart(merged.input)
        merged.output = merged.output and with_answers_apart(merged.output)
    if merged.repair is not None:
        merged.repair(merged)
    return merged


@lru_cache(maxsize=4096)
def _marked(name: str) -> int:
    """Return the dialects that an attribute's name belongs to, one bit each."""
    return sum(1 << n for n, dialect in enumerate(DIALECTS) if name.startswith(dialect.marks))


@lru_cache(maxsize=4096)
def _dialects(marked: int) -> tuple[Dialect, ...]:
    """Return the dialects of a bit set, in order."""
    return tuple(dialect for n, dialect in enumerate(DIALECTS) if marked >> n & 1)


def is_known_by_name(scope: str, name: str) -> bool:
    """Return whether a span without attributes may still be readable by a convention."""
    return scope in SCOPES_KNOWN_BY_NAME or name.startswith(NAMES_KNOWN)


def is_read(scope: str, name: str, attributes: Iterable[str]) -> bool:
    """Return whether any convention could read a span with these names."""
    return is_known_by_name(scope, name) or any(map(_is_read, attributes))


@lru_cache(maxsize=4096)
def _is_read(attribute: str) -> bool:
    return attribute.startswith(MARKS)


def framework_of(scope: str) -> str | None:
    """Return the framework of an instrumentation scope."""
    if scope in _FRAMEWORKS:
        return _FRAMEWORKS[scope]
    for prefix in _INSTRUMENTATIONS:
        if scope.startswith(prefix):
            return scope.removeprefix(prefix).replace("_", "-")
    return scope or None
