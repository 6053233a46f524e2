"""Answer tool calls in place of the tools: what a recorded turn and a framework's adapter ask before a tool
runs.

Outside of a replay nobody answers, and every tool runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias


class _Run(Enum):
    RUN = "run"


RUN: Final = _Run.RUN
"""The answer that says: run the tool itself."""


class ToolMiss(BaseException):
    """A tool call that has no answer, and must not run.

    Not an Exception, so that an agent's own handling of failed tools does not take it for one.
    """

    tool: str = ""
    """The tool that no recording can answer, whatever was recorded; empty if only this call has no answer."""


class RecordedError(Exception):
    """The failure of a tool as it was recorded; its text is the recorded one."""

    result: Any = None
    """What the tool or its framework told the model in place of a result; None if that is not known."""


Writes: TypeAlias = Callable[[dict[str, Any]], object]
"""Writes values to the session's state, by name."""


class ToolAnswers(Protocol):
    """Answers the tool calls of one run of an agent."""

    missed: list[ToolMiss]
    """The misses so far: a framework may have swallowed the exception."""

    def answer(
        self,
        name: str,
        arguments: object,
        *,
        agent: str = "",
        function: Callable[..., Any] | None = None,
        writes: Writes | None = None,
    ) -> Any | Literal[_Run.RUN]:
        """Return the result of a call, or `RUN`; `agent` is the name of the one that calls, if known.

        `function` is the tool: its caller gets the result in the type that it declares to return.
        `writes` is given what the recorded call wrote to the session's state.
        Raises RecordedError for a call that failed, and ToolMiss for one without an answer.
        """

    async def answer_later(
        self, name: str, arguments: object, *, agent: str = "", writes: Writes | None = None
    ) -> Any | Literal[_Run.RUN]:
        """Do the same without holding up the event loop, if an answer takes time."""

    def unusable(self, name: str, arguments: object, why: str) -> Literal[_Run.RUN]:
        """Return `RUN` for a call whose answer cannot be used if its tool may run, else raise ToolMiss."""
        ...

    def delegated(self, name: str) -> None:
        """Note a call that is no tool's: another agent takes over, and its own calls are answered."""


TOOL_ANSWERS: Final[ContextVar[ToolAnswers | None]] = ContextVar("evaltap_answers", default=None)
"""Who answers tool calls in this context; None lets every tool run."""


class Strays:
    """Refuses the calls of a thread that does not know its run, as its context was not passed on.

    `may_run` says of a tool's name whether it may run without an answer.
    """

    def __init__(self, may_run: Callable[[str], bool]) -> None:
        self._may_run = may_run
        self.missed: list[ToolMiss] = []
        self._refuse: list[Callable[[str, object, str], ToolMiss]] = []

    @contextmanager
    def telling(self, refuse: Callable[[str, object, str], ToolMiss]) -> Iterator[None]:
        """Tell a run of such calls, one of which may be its own: name, arguments, why it was refused."""
        self._refuse.append(refuse)
        try:
            yield
        finally:
            self._refuse.remove(refuse)

    def answer(self, name: str, arguments: object, **of_call: object) -> Literal[_Run.RUN]:
        """Return `RUN`, or raise ToolMiss."""
        if self._may_run(name):
            return RUN
        why = "was called outside of a run; a thread needs a copy of its context (contextvars.copy_context)"
        for refuse in [*self._refuse]:
            refuse(name, arguments, why)
        self.missed.append(ToolMiss(f"{name} {why}"))
        raise self.missed[-1]

    async def answer_later(
        self, name: str, arguments: object, *, agent: str = "", writes: Writes | None = None
    ) -> Literal[_Run.RUN]:
        """Return `RUN`, or raise ToolMiss."""
        return self.answer(name, arguments)

    def unusable(self, name: str, arguments: object, why: str) -> Literal[_Run.RUN]:
        """Return `RUN`, or raise ToolMiss."""
        return self.answer(name, arguments)

    def delegated(self, name: str) -> None:
        """Do nothing: the calls of the other agent are refused."""


_strays: Strays | None = None


def refuse_strays(may_run: Callable[[str], bool]) -> Strays:
    """Have this process run no other tool outside of a context that says so, from now on."""
    global _strays
    _strays = Strays(may_run)
    return _strays


def tool_answers() -> ToolAnswers | None:
    """Return who answers a tool call that is made here; None lets the tool run."""
    return TOOL_ANSWERS.get(_strays)
