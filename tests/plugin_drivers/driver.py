"""The interface of a driver, its scripts, and the observation of its runs, independent of any framework."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from evaltap.recorder import Recorder
from support.builders.inline_recorder import InlineRecorder
from support.builders.witness import Witness, facts_of, latest

Tool = Callable[..., Any]
"""A plain function; its docstring and types are what the model is told."""
AnyRecorder = InlineRecorder | Recorder
INPUT_TOKENS, OUTPUT_TOKENS = 11, 5
"""What every answer of a scripted model uses."""
ALL = "all facts"
"""Stands for every fact in which spans may differ."""


@dataclass(frozen=True)
class Call:
    """A tool call that the model asks for."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Says:
    """One answer of the model: words, tool calls, or both."""

    text: str
    calls: Sequence[Call]


Step = Says | Exception
"""An exception is what the model raises."""


def call(tool: str, call_id: str, **arguments: Any) -> Call:
    """Return a tool call of the model."""
    return Call(call_id, tool, arguments)


def says(text: str = "", *calls: Call) -> Says:
    """Return an answer of the model."""
    return Says(text, calls)


def pieces(text: str) -> list[str]:
    """Return words as a model streams them."""
    return re.findall(r" ?[^ ]+", text)


def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "total": 42.5}


@dataclass(frozen=True)
class AgentSpec:
    """An agent to build: its model follows `steps`."""

    steps: Sequence[Step]
    tools: Sequence[Tool] = ()
    name: str = "support"
    delegate: "AgentSpec | None" = None
    """An agent that it uses as a tool."""
    successor: "AgentSpec | None" = None
    """An agent that it hands over to."""
    instruction: str | None = None
    """What its model is told before the conversation."""
    raises: bool = False
    """Whether a tool's exception ends the run; else the model is told of it."""


TOLD: ContextVar[list[str] | None] = ContextVar("told", default=None)
"""Where a test has the scripted models write down what they are given."""


def told(given: object) -> None:
    """Write down what a scripted model is given."""
    if (kept := TOLD.get()) is not None:
        kept.append(str(given))


class Driver(ABC):
    """Runs real agents of one framework with the plugin on a recorder; make one for each test."""

    name: ClassVar[str]
    has_spans: ClassVar[bool] = True
    exact_errors: ClassVar[bool] = True
    """Whether the spans tell of an error in the same words."""

    top_agent: ClassVar[str | None] = None
    """How the agent that talks to the user is recorded, where it cannot have a name of its own."""
    request_argument: ClassVar[str] = "request"
    """What an agent that works as a tool calls its only argument."""
    handover_result: ClassVar[Any] = None
    raises_model_errors: ClassVar[bool] = True
    """Whether a model's exception reaches the caller."""
    model_error: ClassVar[str] = "TimeoutError"
    """The type under which a model's TimeoutError("slow") ends the run."""
    sees_tool_errors: ClassVar[bool] = True
    """Whether the plugin is told that a call failed."""
    failed_call: ClassVar[tuple[Any, Mapping[str, Any]]]
    """Result and error of a call that raised RuntimeError("inventory down"), the model being told."""
    unknown_tool: ClassVar[str] = ""
    """Words of what is said when the model calls a tool `sell` that there is not."""
    closes_cancelled: ClassVar[str] = "run_ended"
    """What closes the turn of a run that was cancelled."""

    def __init__(self, recorder: AnyRecorder) -> None:
        self.recorder = recorder

    @abstractmethod
    def agent(self, spec: AgentSpec) -> Any:
        """Build an agent; its type is the framework's own."""

    @abstractmethod
    async def ask(
        self, agent: Any, text: str, session: str = "s1", *, stream: bool = False
    ) -> str | None:
        """Send the next message of a session; return the answer, or None where it is streamed."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the plugin where the framework keeps a registry of its own."""
        yield

    @contextmanager
    def spans_to(self, witness: Witness) -> Iterator[None]:
        """Send the framework's own spans to a witness."""
        yield

    def result(self, value: Any) -> Any:
        """Return what becomes of an object that a tool returns."""
        return value

    def delegation(self, call_id: str, to: str, request: str) -> Call:
        """Return the call that has another agent work as a tool."""
        return Call(call_id, to, {self.request_argument: request})

    def handover(self, call_id: str, to: str) -> Call:
        """Return the call that hands over to another agent."""
        raise NotImplementedError

    def with_picture(self, text: str, png: bytes) -> Any:
        """Return a message that `ask` takes in place of a text: words and a picture."""
        raise NotImplementedError


D = TypeVar("D", bound=Driver)


class Tap(Generic[D]):
    """Agents of one driver, and the turns that were recorded of them."""

    def __init__(self, driver: D, witness: Witness, *, compared: bool) -> None:
        self.driver, self.witness, self._compared = driver, witness, compared
        self.recorder = witness.by_plugin

    def agent(self, *steps: Step, **options: Any) -> Any:
        """Build an agent; the options are those of AgentSpec."""
        return self.driver.agent(AgentSpec(steps, **options))

    def ask(self, agent: Any, *texts: str, stream: bool = False) -> str | None:
        """Send messages of session s1 one after the other, in a new event loop."""

        async def talk() -> str | None:
            return [await self.driver.ask(agent, text, stream=stream) for text in texts][-1]

        return asyncio.run(talk())

    async def cancel_in_a_tool(self, said: str, call_id: str) -> Any:
        """Cancel a run while its tool `hang` runs; return the agent."""
        started = asyncio.Event()

        async def hang() -> str:
            """Never come back."""
            started.set()
            await asyncio.Event().wait()
            return ""

        agent = self.agent(says(said, call("hang", call_id)), tools=[hang])
        task = asyncio.create_task(self.driver.ask(agent, "Hang"))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return agent

    def turns(self, *, parallel: bool = False) -> list[dict[str, Any]]:
        """Return the facts of the turns, compared with those of the spans where there are any."""
        assert self.recorder.assembler.open_runs == 0, "every run is recorded to its end"
        if self._compared:
            return self.witness.turns(parallel=parallel)
        assert self.recorder.faults == []
        return facts_of(latest(self.recorder.cases), parallel=parallel)

    def turn(self, *, parallel: bool = False) -> dict[str, Any]:
        """Return the facts of the only turn."""
        (turn,) = self.turns(parallel=parallel)
        return turn


@contextmanager
def tapped(kind: type[D], *, differ: Collection[str] = ()) -> Iterator[Tap[D]]:
    """Run a driver, seen through the plugin and through spans that may differ on some facts."""
    compared = kind.has_spans and ALL not in differ
    witness = Witness(exact_errors=kind.exact_errors, differ=differ)
    driver = kind(witness.by_plugin)
    with ExitStack() as stack:
        stack.enter_context(driver.installed())
        if compared:
            stack.enter_context(driver.spans_to(witness))
        yield Tap(driver, witness, compared=compared)
