"""The open LangChain calls of the handler, and the turns and sub-agents that they belong to."""

from dataclasses import dataclass, field

from langchain_core.messages import ToolCall

from evaltap.recorder.observation import Failure
from evaltap.recorder.run import ObservedRun
from evaltap.schemas.data import JsonObject


@dataclass(slots=True)
class Turn:
    """A root call; it becomes a run with its first model or tool call."""

    begun_ns: int
    metadata: JsonObject
    inputs: object
    name: str | None
    run: ObservedRun | None = None


@dataclass(slots=True)
class Level:
    """The work of a turn, or of a sub-agent inside one of its tools (`parent`)."""

    turn: Turn
    parent: str | None = None
    requested: dict[str, ToolCall] = field(default_factory=dict)
    """Calls requested by a model that no tool has started."""
    failed: dict[str, Failure] = field(default_factory=dict)
    """Failed calls whose error may still be sent to the model."""


@dataclass(slots=True)
class Node:
    """An open LangChain call."""

    level: Level
    top: bool = False
    """Whether the turn starts and ends with this call."""
    call_id: str | None = None
    inner: Level | None = None
    """The work of a sub-agent inside this tool."""
    model: str | None = None
    agent: str | None = None
