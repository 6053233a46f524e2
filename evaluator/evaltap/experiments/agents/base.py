"""What an experiment requires of an agent: sessions that answer one turn after another.

An adapter calls the agent and lets the recorder see the turn; it never records a second time what a plugin
of the recorder records.  An exception of the agent passes through: it is the agent's crash.
Where a framework's tools ask who answers them, they do so in the context of the call, which keeps runs in one
process apart; the patch of its class stays, and without answers every tool runs.
"""

import asyncio
import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from evaltap.experiments.mocks.declared import DeclaredMock
from evaltap.experiments.mocks.recorded import Recording
from evaltap.recorder.answering import TOOL_ANSWERS, ToolAnswers, ToolMiss
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

ChatMessage: TypeAlias = dict[str, Any]
"""`{"role": "system" | "user" | "assistant", "content": text}`."""


class AgentError(Exception):
    """The agent did not do what an agent does: no answer, two answers, garbage.  Counts as its crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetCase:
    """What the agent meets of a case, and who answers beside it."""

    turns: tuple[str, ...]
    """What the user says, turn by turn."""
    context: tuple[ChatMessage, ...] = ()
    """Messages before the conversation."""
    state: Mapping[str, Any] | None = None
    app_name: str = ""
    user_id: str = ""
    recording: Recording = ()
    """The recorded tool calls, turn by turn."""
    crashes: frozenset[int] = frozenset()
    """The turns, from 0, in which the recorded agent crashed, and the user went on."""
    mocks: tuple[tuple[DeclaredMock, ...], ...] = ()
    """The mocks that the case declares, turn by turn."""
    expected_mocks: tuple[tuple[DeclaredMock, ...], ...] = ()
    """Those for the agent that gives the expected turns."""
    every_turn: tuple[DeclaredMock, ...] = ()
    """The mocks that the case declares for every turn, after those of the turn."""
    expected_every_turn: tuple[DeclaredMock, ...] = ()
    scenario: CaseData | None = None
    """The plan of a simulated user, in place of `turns`."""
    expects: bool = False
    """Whether another agent gives the expected turns."""

    @property
    def declared(self) -> list[DeclaredMock]:
        """All mocks that the case declares for the agent, in the order in which they answer."""
        return [mock for turn in (*self.mocks, self.every_turn) for mock in turn]


@dataclass(frozen=True, slots=True)
class Unit(MetCase):
    """One run of the agent on one case; the unit of work of an experiment."""

    eval_set_id: str
    eval_id: str
    trial: int
    """From 1."""
    attempt: int
    """From 1: an attempt that was interrupted is made again."""
    run: str
    """The label of the recording: experiment, trial and, beyond the first, the attempt."""

    @property
    def session_id(self) -> str:
        """The id of the session that the agent is given: one for each attempt."""
        return f"{self.run}/{self.eval_id}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One turn of a unit: the conversation up to and including the user's message."""

    unit: Unit
    messages: list[ChatMessage]
    """Copies, which the agent may change."""

    @property
    def user(self) -> str:
        """What the user says in this turn."""
        return str(self.messages[-1]["content"])


class AgentSession(Protocol):
    """One conversation with the agent."""

    async def answer(self, asked: Asked) -> str | None:
        """Run one turn and return the answer; called from one task, never concurrently.

        Raises whatever the agent raises, and AgentError if it does not answer.
        """


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an agent can be given and what is seen of it; checked before anything is spent."""

    state: bool = False
    """Takes the session's state."""
    context: bool = False
    """Takes messages before the conversation."""
    tools: bool = True
    """Its tool calls are recorded."""
    mocks: bool = False
    """Its tool calls can be answered from a recording: it asks `TOOL_ANSWERS` before a tool runs."""
    tool_names: Sequence[str] | None = None
    """Its tools, and those of the agents that it works with; None if they are not known before it runs."""
    unanswerable: Sequence[str] = ()
    """Its tools that no recording can answer, each with the reason: such an agent is not replayed."""
    served_mocks: bool = False
    """It is told the address of recorded tools, and may use them in place of its own."""


class Agent(Protocol):
    """An agent under test; opens a session for each unit."""

    @property
    def abilities(self) -> Abilities:
        """What the agent can be given."""
        ...

    def session(self, unit: Unit) -> AbstractAsyncContextManager[AgentSession]:
        """Return a new conversation; the end of the block releases what belongs to it.

        Raises InputError in a replay if the agent has tools that no recording can answer.
        """
        ...


@dataclass(slots=True)
class Conversation:
    """The messages of a unit as its turns go on."""

    unit: Unit
    messages: list[ChatMessage] = field(default_factory=list)
    turns: int = 0
    """Turns that began."""

    def __post_init__(self) -> None:
        self.messages = [*map(dict, self.unit.context)]

    def ask(self, user: str) -> Asked:
        """Add the user's message and return the turn."""
        self.turns += 1
        self.messages.append({"role": "user", "content": user})
        return Asked(self.unit, [*map(dict, self.messages)])

    def answered(self, answer: str | None) -> None:
        """Add the agent's answer."""
        self.messages.append({"role": "assistant", "content": answer or ""})


def answer_in(text: str | None) -> str:
    """Return a framework's answer; raise AgentError if there is none."""
    if not text:
        raise AgentError("the agent ended without an answer")
    return text


def system_texts(context: Sequence[ChatMessage]) -> list[str]:
    """Return the system messages."""
    return [str(one["content"]) for one in context if one["role"] == "system"]


def answers_for(abilities: Abilities) -> ToolAnswers | None:
    """Return who answers the tool calls of this run; raise InputError if some could not be answered."""
    answers = TOOL_ANSWERS.get()
    if answers is not None and abilities.unanswerable:
        raise InputError(
            f"the agent cannot be replayed: its {'; its '.join(abilities.unanswerable)};"
            " replay a version of it without, or run it live"
        )
    return answers


async def answer_of(session: AgentSession, asked: Asked) -> str | None:
    """Return the answer; raise the first miss of the turn, whatever the framework has made of it."""
    answers = TOOL_ANSWERS.get()
    try:
        answer = await session.answer(asked)
    except asyncio.CancelledError:
        raise  # its time is up: that comes first
    except BaseException as error:
        if answers is not None and answers.missed and error is not answers.missed[0]:
            raise answers.missed[0] from error
        raise
    if answers is not None and answers.missed:
        raise answers.missed[0]
    return answer


def miss(answers: ToolAnswers, why: str, tool: str) -> NoReturn:
    """End a run over a tool, or an agent, whose calls no recording can answer."""
    missed = ToolMiss(why)
    missed.tool = tool
    answers.missed.append(missed)
    raise missed


def await_person(tool: str) -> NoReturn:
    """End a run that waits for a person to decide on a call, which nobody does, nor a recording."""
    if (answers := TOOL_ANSWERS.get()) is not None:
        miss(answers, f"decision on {tool} was a person's and cannot be given again", tool)
    raise AgentError(f"the agent waits for a person to decide on {tool}")


def by_provider(name: str) -> str:
    """Say that a tool is run by the model's provider, out of reach."""
    return f"tool {name} is run by the provider and cannot be answered from a recording"


FRAMEWORKS: Final[Mapping[str, str]] = {
    "agents.agent": "openai_agents",
    "claude_agent_sdk": "claude_agent",
    "google.adk": "adk",
    "langchain_core": "langchain",
    "langgraph": "langchain",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}
"""By the package of an object's class, or of a base class: the module here whose `adapt` makes an agent of
it, or returns None for what is no agent of the framework, and whose `install` has the framework's tools ask
who answers their calls.  It is imported when such an object is met.
"""


def adapter_of(module: str) -> Any:  # a module with `adapt` and `install`
    """Import the adapter of a framework; raise ImportError for another release than it knows."""
    return importlib.import_module(f"evaltap.experiments.agents.{module}")


def install_imported() -> None:
    """Have the tools of agents that a function runs itself ask, as far as their frameworks are imported."""
    for package, module in FRAMEWORKS.items():
        if package in sys.modules:
            with suppress(ImportError):  # another module of this name, or another release
                adapter_of(module).install()
