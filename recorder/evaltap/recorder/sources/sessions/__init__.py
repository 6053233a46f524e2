"""The formats of session files, and the conversations in a document of any of them."""

from collections.abc import Callable
from typing import Final

from evaltap.recorder.sources.sessions import (
    adk,
    claude_stream,
    codex,
    copilot,
    gemini,
    n8n,
    openhands,
    pydantic_ai,
    tau2,
)
from evaltap.recorder.sources.sessions.messages import Conversation

FORMATS: Final[tuple[tuple[str, Callable[[object], list[Conversation] | None]], ...]] = (
    ("Claude Code stream", claude_stream.conversations),
    ("Codex session", codex.conversations),
    ("Gemini CLI session", gemini.conversations),
    ("Copilot CLI session", copilot.conversations),
    ("OpenHands events", openhands.conversations),
    ("ADK session", adk.conversations),
    ("Pydantic AI history", pydantic_ai.conversations),
    ("tau2 results", tau2.conversations),
    ("n8n executions", n8n.conversations),
)
"""The name of each format, and its reader, which returns None for a document of another."""


def conversations_in(document: object) -> tuple[str, list[Conversation]] | None:
    """Return the name of a document's format and its conversations; None if it has another one.

    JSON Lines are a document that is the list of the lines.
    """
    for name, read in FORMATS:
        if (found := read(document)) is not None:
            return name, found
    return None
