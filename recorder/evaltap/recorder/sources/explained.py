"""Explain a recorded turn: what it contains, and what was not captured of it."""

from collections.abc import Iterator

from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted


def explain(case: CaseData) -> str:
    """Return a line about a turn: its content, and the fields that were not fully captured."""
    turn = case["actualConversation"][0]
    flaws = [f"{key} {why}" for key, why in turn.get("capture", {}).items()]
    flaws += _left_out(turn)
    for tool in turn.get("tools", ()):
        flaws += [f"{tool['name']}.{key} {why}" for key, why in tool.get("capture", {}).items()]
    status = turn.get("telemetry", {}).get("status", "incomplete")
    convention = case.get("source", {}).get("convention", "unknown convention")
    tools = counted(len(turn.get("tools", ())), "tool call")
    return (
        f"{case['evalId']} {turn['invocationId']}: {status}, {tools},"
        f" read as {convention}; {', '.join(flaws) or 'everything captured'}"
    )


def _left_out(turn: CaseData) -> Iterator[str]:
    """Yield the message parts whose bytes were not recorded, only their digest or size."""
    messages = {name: [turn[name]] for name in ("userContent", "finalResponse") if turn.get(name)}
    messages["intermediateResponses"] = turn.get("intermediateResponses", [])
    for name, listed in messages.items():
        for part in (part for message in listed for part in message.get("content_parts", ())):
            held = (part.get(part["type"]) or {}) | (part.get("file") or {})
            if not (held.get("url") or held.get("file_id")):
                size = part.get("size_bytes")
                known = "" if size is None else f" of {counted(size, 'byte')}"
                yield f"{name}: {part.get('mime_type') or part['type']}{known} left out"
