"""Explain recorded turns: what each contains, and what was not captured of it."""

from collections.abc import Iterator, Sequence

from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted


def explain(cases: Sequence[CaseData]) -> list[str]:
    """Return a line for each turn: its content, and the fields that were not fully captured."""
    lines = []
    for case in cases:
        turn = case["actualConversation"][0]
        flaws = [f"{key} {why}" for key, why in turn.get("capture", {}).items()]
        flaws += _left_out(turn)
        for tool in turn.get("tools", ()):
            flaws += [f"{tool['name']}.{key} {why}" for key, why in tool.get("capture", {}).items()]
        status = turn.get("telemetry", {}).get("status", "incomplete")
        convention = case.get("source", {}).get("convention", "unknown convention")
        count = len(turn.get("tools", ()))
        tools = counted(count, "tool call")
        lines.append(
            f"{case['evalId']} {turn['invocationId']}: {status}, {tools},"
            f" read as {convention}; {', '.join(flaws) or 'everything captured'}"
        )
    return lines


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
