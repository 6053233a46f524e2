"""Model Context Protocol spans (GenAI conventions 1.39 and later).

`mcp.session.id` is the transport's session, never a conversation. A `tools/call` inside an
execute_tool span is the same call; the tree keeps the outermost.
"""

from collections.abc import Sequence

from evaltap.recorder.conventions.reading import Reading, first_text
from evaltap.recorder.telemetry.spans import LogRecord, Span

METHOD = "mcp.method.name"
TOOL_CALL = "tools/call"


class Mcp:
    """Distinguishes tool calls from other MCP requests."""

    name = "mcp"
    marks = (METHOD,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return the reading of a span with `mcp.method.name`, else None."""
        method = span.attributes.get(METHOD)
        if not isinstance(method, str):
            return None
        if method != TOOL_CALL:
            # An enclosing execute_tool span may carry the attributes of its own list or read
            # request.
            is_tool = span.attributes.get("gen_ai.operation.name") == "execute_tool"
            return Reading(self.name, kind="tool" if is_tool else "other")
        name = first_text(span.attributes, "gen_ai.tool.name")
        return Reading(
            self.name, kind="tool", tool_name=name or span.name.removeprefix(f"{TOOL_CALL} ")
        )
