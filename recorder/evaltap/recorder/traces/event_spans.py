"""Spans that are events: one for a tool's start and one for its end, as written by BeeAI.

They are named after the events, `tool.search.wikipedia.start-12` and
`tool.search.wikipedia.success-13`.
"""

import re
from collections.abc import Iterable
from typing import Final

from evaltap.recorder.traces.node import Node

_EVENT: Final = re.compile(
    r"^tool\.(?:\w+\.)*(?P<tool>\w+)\.(?P<event>start|success|finish|error|retry)(?:-\d+)?$"
)


def merge_tool_events(nodes: Iterable[Node]) -> None:
    """Merge the events of a call into one tool call, with the tool's name and the end's result."""
    open_calls: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: (node.span.start_ns, node.span.end_ns)):
        found = _EVENT.match(node.span.name) if node.kind == "tool" else None
        if found is None:
            continue
        reading = node.reading
        if reading.tool_name in (None, node.span.name):
            reading.tool_name = found["tool"]
        waiting = open_calls.setdefault(found["tool"], [])
        if found["event"] == "start":
            waiting.append(node)
        elif waiting:
            begun = waiting[0].reading
            begun.result = begun.result or reading.result
            begun.failure = begun.failure or (node.failure if found["event"] == "error" else None)
            begun.tool_name = (
                reading.tool_name if begun.tool_name == found["tool"] else begun.tool_name
            )
            reading.kind = "other"
            if found["event"] == "finish" or begun.result is not None:
                waiting.pop(0)
        elif found["event"] == "finish" and reading.arguments is None:
            reading.kind = "other"  # belongs to a call that `success` ended
