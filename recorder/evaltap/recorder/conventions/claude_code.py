"""Claude Code's own spans (beta tracing): one interaction is one turn.

Source: Claude Code's monitoring documentation. Spans usually carry no assistant text, so turns
recorded from them mostly lack a final response; the transcript and the SDK's hooks have it.
"""

from collections.abc import Sequence

from evaltap.recorder.conventions.reading import Kind, Reading, first_text, first_whole, number
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.tokens import tokens
from evaltap.schemas.chat.evidence import Evidence, decode

PREFIX = "claude_code."
TOOL_OUTPUT_EVENT = "tool.output"
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
_KINDS: dict[str, Kind] = {"interaction": "agent", "llm_request": "model", "tool": "tool"}


class ClaudeCode:
    """Reads spans named `claude_code.*`."""

    name = "claude-code"
    marks = ()  # identified by span name

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        if not span.name.startswith(PREFIX):
            return None
        attributes = span.attributes
        kind = _KINDS.get(span.name.removeprefix(PREFIX), "other")
        reading = Reading(
            self.name,
            kind=kind,
            session_id=first_text(attributes, "session.id"),
            user_id=first_text(attributes, "user.id"),
        )
        if kind == "agent":
            reading.agent_name = "claude-code"
            prompt = first_text(attributes, "user_prompt")
            hidden = prompt in ("<REDACTED>", "[REDACTED]")
            reading.user = Evidence(None, "redacted") if hidden else None
            if prompt is not None and not hidden:
                reading.user = Evidence(prompt)
            reading.invocation_id = first_text(attributes, "prompt.id")
        elif kind == "model":
            reading.model = first_text(attributes, "model")
            counts = (first_whole(attributes, name) for name in _TOKENS)
            reading.use(tokens(*counts, apart=True))
            reading.cost_usd = number(attributes.get("cost_usd"))
        elif kind == "tool":
            _read_tool(reading, span)
        return reading


def _read_tool(reading: Reading, span: Span) -> None:
    attributes = span.attributes
    reading.tool_name = first_text(attributes, "tool_name")
    reading.call_id = first_text(attributes, "tool_use_id", "gen_ai.tool.call.id")
    for name in ("tool_input", "tool_parameters"):
        if reading.arguments is None and name in attributes:
            reading.arguments = decode(attributes[name])
    for event in span.events:
        if event.name == TOOL_OUTPUT_EVENT:
            output = event.attributes.get("output", event.attributes.get("content"))
            reading.result = decode(output) if output is not None else None
            given = event.attributes.get("input")
            if given is not None and reading.arguments is None:
                reading.arguments = decode(given)
    if attributes.get("success") in (False, "false"):
        reading.failure = Failure(message=first_text(attributes, "error"))
