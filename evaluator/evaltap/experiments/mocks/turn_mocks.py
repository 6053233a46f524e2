"""Answers the tool calls of one turn by the mocks that it declares, as tRPC-Agent-Go does."""

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from evaltap.experiments.mocks.declared import DeclaredMock, Side, declared_mocks
from evaltap.experiments.mocks.declared_type import in_declared_type
from evaltap.experiments.mocks.recorded import arguments_of, json_or_text
from evaltap.recorder.answering import RUN, ToolMiss, Writes
from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class GeneratorCall:
    """What a model is asked that stands in for a tool."""

    message: str
    """The arguments of the call, as text."""
    instruction: str
    """The prompt of the mock."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the tool's results if they are objects: asked for as structured output."""
    schema_name: str = ""


@dataclass(frozen=True, slots=True)
class GeneratorAnswer:
    """What the model answers."""

    text: str = ""
    structured: Json = None
    """Structured output, which comes first."""


Generator: TypeAlias = Callable[
    [GeneratorCall], GeneratorAnswer | str | Awaitable[GeneratorAnswer | str]
]
"""Invents a tool's result; any exception of it fails the turn."""


def turn_mocks(
    entries: Sequence[Any], generator: Generator | None = None, *, side: Side = "actual"
) -> "TurnMocks | None":  # entries of `toolMock`, as JSON
    """Return what answers calls by the entries of one side of a turn's `toolMock`; None if there are none.

    Raises InputError for an entry that cannot be used, and for an `llmGenerator` without a generator.
    """
    if not entries:
        return None
    problems: list[str] = []
    mocks = [*declared_mocks({"toolMock": {side: entries}}, "the turn's", problems, side)]
    if any(one.prompt for one in mocks) and generator is None:
        problems.append(
            "an llmGenerator needs a model that stands in for tools; none is configured"
        )
    if problems:
        raise InputError("; ".join(problems))
    return TurnMocks(mocks, generator)


class TurnMocks:
    """The mocks of one turn; may be asked from several threads, and on an event loop.

    Agents of frameworks ask who answers when their session begins, so that the next turn begins here.
    """

    def __init__(
        self, mocks: Sequence[DeclaredMock] = (), generator: Generator | None = None
    ) -> None:
        self.missed: list[ToolMiss] = []
        """Calls that failed; the turn has failed with the first."""
        self._mocks = mocks
        self._generator = generator

    def begin(self, turn: "TurnMocks | None") -> None:
        """Begin a turn with its mocks, if it has any."""
        self.missed = []
        self._mocks, self._generator = (turn._mocks, turn._generator) if turn else ((), None)

    def answer(
        self,
        name: str,
        arguments: object,
        output_schema: Mapping[str, Any] | None = None,
        *,
        agent: str = "",
        function: Callable[..., Any] | None = None,
        writes: Writes | None = None,
    ) -> Any:  # what the function would return, or RUN
        """Return the result of a call, or RUN for a tool without a mock; raise ToolMiss."""
        if (mock := self._mock(name, arguments)) is None:
            return RUN
        result = mock.result
        if mock.prompt:
            result = waited(self._generated(mock, arguments, output_schema))
        return in_declared_type(result, function)

    async def answer_later(
        self, name: str, arguments: object, *, agent: str = "", writes: Writes | None = None
    ) -> Any:
        """Do the same without holding up the event loop."""
        if (mock := self._mock(name, arguments)) is None:
            return RUN
        return await self._generated(mock, arguments, None) if mock.prompt else mock.result

    def unusable(self, name: str, arguments: object, why: str) -> Any:
        """Raise ToolMiss for a call whose mock cannot be used."""
        raise self._miss(f"tool {name!r} is mocked, and {why}")

    def delegated(self, name: str) -> None:
        """Do nothing: what another agent calls is answered by the same mocks."""

    def _mock(self, name: str, arguments: object) -> DeclaredMock | None:
        own = [one for one in self._mocks if one.name == name]
        given = arguments_of(arguments)
        for mock in own:
            if mock.matches(given):
                return mock
        if own:
            raise self._miss(f"tool {name!r} is mocked, and no mock has these arguments")
        return None

    async def _generated(
        self, mock: DeclaredMock, arguments: object, schema: Mapping[str, Any] | None
    ) -> Json:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments_of(arguments))
        wanted = schema if schema and schema.get("type") == "object" else None
        call = GeneratorCall(
            text.strip() or "{}", mock.prompt, wanted, "" if wanted is None else mock.name
        )
        assert self._generator is not None  # `turn_mocks` refuses the mock otherwise
        try:
            given = self._generator(call)
            answer = await given if inspect.isawaitable(given) else given
        except Exception as error:  # whatever the user's model raises fails the turn
            raise self._miss(f"tool {mock.name!r} has no generated result: {error}") from error
        if isinstance(answer, str):
            answer = GeneratorAnswer(answer)
        if answer.structured is not None:
            return answer.structured
        content = answer.text.strip()
        value = json_or_text(content)
        if not content or value is None:
            found = "null" if content else "nothing"
            raise self._miss(f"tool {mock.name!r}: the model generated {found}; expected a result")
        return value

    def _miss(self, why: str) -> ToolMiss:
        miss = ToolMiss(why)
        self.missed.append(miss)
        return miss


def waited(answer: Awaitable[Any]) -> Any:
    """Return what is awaited to a caller that cannot await, whether or not it is on an event loop."""
    outcome: list[Any] = []

    async def awaited() -> None:
        try:
            outcome.append(await answer)
        except BaseException as error:  # raised in the caller's thread
            outcome.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(awaited()), name="evaltap-mock")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
