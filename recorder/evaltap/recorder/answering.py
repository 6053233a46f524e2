"""Answer tool calls in place of the tools: what a recorded turn and a framework's adapter ask before a tool
runs.

Outside of a replay nobody answers, and every tool runs.
"""

from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, Literal, Protocol


class _Run(Enum):
    RUN = "run"


RUN: Final = _Run.RUN
"""The answer that says: run the tool itself."""


class ToolMiss(BaseException):
    """A tool call that has no answer, and must not run.

    Not an Exception, so that an agent's own handling of failed tools does not take it for one.
    """


class RecordedError(Exception):
    """The failure of a tool as it was recorded; its text is the recorded one."""

    result: Any = None
    """What the tool or its framework told the model in place of a result; None if that is not known."""


class ToolAnswers(Protocol):
    """Answers the tool calls of one run of an agent."""

    missed: list[ToolMiss]
    """The misses so far: a framework may have swallowed the exception."""

    def answer(self, name: str, arguments: object) -> Any | Literal[_Run.RUN]:
        """Return the result of a call, or `RUN`.

        Raises RecordedError for a call that failed, and ToolMiss for one without an answer.
        """
        ...

    async def answer_later(self, name: str, arguments: object) -> Any | Literal[_Run.RUN]:
        """Do the same without holding up the event loop, if an answer takes time."""
        ...

    def delegated(self, name: str) -> None:
        """Note a call that is no tool's: another agent takes over, and its own calls are answered."""
        ...


TOOL_ANSWERS: Final[ContextVar[ToolAnswers | None]] = ContextVar("evaltap_answers", default=None)
"""Who answers tool calls in this context; None lets every tool run."""
