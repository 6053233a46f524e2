"""Agents of every framework whose tools leave a mark, and a recording that answers in place of them."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from evaltap.experiments.agents.base import Conversation, Unit, answer_of
from evaltap.experiments.agents.loading import agent_of
from evaltap.recorder.answering import (
    RUN,
    TOOL_ANSWERS,
    RecordedError,
    ToolAnswers,
    ToolMiss,
    Writes,
)
from plugin_drivers.driver import TOLD
from support.worlds.framework_runs import Runs


class Recording:
    """Answers from calls that were recorded, each once; `runs` names the tools that run."""

    def __init__(self, *calls: Mapping[str, Any], runs: Collection[str] = ()) -> None:
        self.missed: list[ToolMiss] = []
        self.asked: list[str] = []
        self._runs = runs
        self._left: dict[str, list[Mapping[str, Any]]] = {}
        for call in calls:
            self._left.setdefault(_key(call["name"], call["args"]), []).append(call)

    def answer(
        self,
        name: str,
        arguments: object,
        *,
        agent: str = "",
        function: object = None,
        writes: Writes | None = None,
    ) -> Any:  # whatever was recorded
        """Return the result of a call, or `RUN`."""
        self.asked.append(name)
        if name in self._runs:
            return RUN
        found = self._left.get(_key(name, arguments))
        if not found:
            self.missed.append(ToolMiss(f"no recording of {_key(name, arguments)}"))
            raise self.missed[-1]
        call = found.pop(0)
        if "error" in call:
            failure = RecordedError(call["error"])
            failure.result = call["error"]  # which the model was told
            raise failure
        return call["result"]

    async def answer_later(  # as `answer`
        self, name: str, arguments: object, *, agent: str = "", writes: Writes | None = None
    ) -> Any:
        """Return the result of a call, or `RUN`."""
        return self.answer(name, arguments)

    def unusable(self, name: str, arguments: object, why: str) -> Any:
        """Return `RUN`."""
        if name in self._runs:
            return RUN
        self.missed.append(ToolMiss(f"{name} {why}"))
        raise self.missed[-1]

    def delegated(self, name: str) -> None:
        """Note a delegation."""


def recorded(name: str, *, error: str = "", result: object = None, **arguments: Any) -> Any:
    """Return a recorded call."""
    ended = {"error": error} if error else {"result": result}
    return {"name": name, "args": arguments, **ended}


def _key(name: str, arguments: object) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


class Shop:
    """Tools with an effect outside: each call adds a line to a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "effects.txt"

    def effects(self) -> list[str]:
        """Return the calls that ran."""
        return self._file.read_text().splitlines() if self._file.exists() else []

    def tools(self) -> list[Callable[..., Any]]:
        """Return the tools."""
        file = self._file

        def sell(sku: str) -> str:
            """Sell one."""
            with file.open("a") as written:
                written.write(f"sell {sku}\n")
            return f"sold {sku}"

        return [sell]


async def replay(
    runs: Runs, found: Any, recording: ToolAnswers | None, unit: Unit
) -> list[str] | BaseException:
    """Run a unit as a replay does; return the answers, or what ended it."""
    TOOL_ANSWERS.set(recording)
    conversation, answers = Conversation(unit), []
    async with AsyncExitStack() as stack:
        stack.enter_context(runs.recorder.run_labels(eval_id=unit.eval_id, run=unit.run, trial=1))
        try:
            session = await stack.enter_async_context(agent_of(found, runs.recorder).session(unit))
            for user in unit.turns:
                # In a task of its own, as in the agent's process.
                turn = asyncio.ensure_future(answer_of(session, conversation.ask(user)))
                answers.append(str(await turn))
                conversation.answered(answers[-1])
        except BaseException as error:
            return error
    return answers


def replay_now(
    runs: Runs, found: Any, recording: ToolAnswers | None, unit: Unit
) -> tuple[list[str] | BaseException, list[str]]:
    """Run a unit; return how it ended and what the models were given."""
    given: list[str] = []

    async def run() -> list[str] | BaseException:
        TOLD.set(given)
        return await asyncio.create_task(replay(runs, found, recording, unit))

    return asyncio.run(run()), given


def calls_of(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tool calls that were recorded."""
    return [tool for case in cases for turn in case["actualConversation"] for tool in turn["tools"]]
