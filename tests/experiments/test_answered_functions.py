"""A replay of plain functions: `turn.run_tool` and `@evaltap.tool` ask the recording, on any thread."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.mocks.tape import Tape
from evaltap.recorder import MemorySink, Recorder, tool
from evaltap.recorder.answering import TOOL_ANSWERS, ToolMiss
from support.worlds.framework_runs import Runs, unit_of
from support.worlds.replayed_agents import Recording, calls_of, recorded, replay, replay_now

EFFECTS: list[str] = []


@tool
def sell(sku: str) -> str:
    """Sell one."""
    EFFECTS.append(sku)
    return f"sold {sku}"


@tool
async def sell_later(sku: str) -> str:
    """Sell one."""
    EFFECTS.append(sku)
    return f"sold {sku}"


@pytest.fixture
def runs(runs: Runs) -> Runs:
    EFFECTS.clear()
    return runs


def by_turn(messages: Any, turn: Any) -> str:
    return str(turn.run_tool("sell", {"sku": "A"}, lambda sku: EFFECTS.append(sku)))


async def by_turn_later(messages: Any, turn: Any) -> str:
    return str(turn.run_tool("sell", {"sku": "A"}, lambda sku: EFFECTS.append(sku)))


def by_decorator(messages: Any) -> str:
    assert threading.current_thread() is not threading.main_thread()
    return sell("A")


async def by_decorator_later(messages: Any) -> str:
    return await sell_later(sku="A")


def by_threads(messages: Any) -> str:
    with ThreadPoolExecutor() as pool:
        return pool.submit(copy_context().run, sell, "A").result()


def by_factory() -> Any:
    return by_decorator


@pytest.mark.parametrize(
    "function",
    [by_turn, by_turn_later, by_decorator, by_decorator_later, by_threads, by_factory],
    ids=lambda function: function.__name__,
)
def test_the_recording_answers_in_place_of_the_function(function: Any, runs: Runs) -> None:
    name = "sell_later" if function is by_decorator_later else "sell"

    ended, _ = replay_now(
        runs, function, Recording(recorded(name, sku="A", result="as recorded")), unit_of("Sell A")
    )

    assert ended == ["as recorded"]
    (call,) = calls_of(runs.cases())
    assert (call["name"], call["arguments"]) == (name, {"sku": "A"})
    assert call["result"] == "as recorded"
    assert EFFECTS == []


def swallows(messages: Any) -> str:
    try:
        return sell("A")
    except BaseException:
        return "all is well"


@pytest.mark.parametrize("function", [by_decorator, swallows])
def test_a_miss_ends_the_run_whatever_the_function_does_about_it(function: Any, runs: Runs) -> None:
    recording = Recording()

    ended, _ = replay_now(runs, function, recording, unit_of("Sell A", "Go on"))

    assert isinstance(ended, ToolMiss)
    assert recording.missed == [ended]
    assert EFFECTS == []


def test_units_that_run_at_once_are_answered_each_from_its_own_recording(runs: Runs) -> None:
    both_run = threading.Barrier(2)

    def sells(messages: Any) -> str:
        both_run.wait(10)
        return sell("A")

    async def at_once() -> list[Any]:
        recordings = [Recording(recorded("sell", sku="A", result=text)) for text in ("one", "two")]
        units = (replay(runs, sells, recording, unit_of("Sell")) for recording in recordings)
        return await asyncio.gather(*map(asyncio.create_task, units))

    assert asyncio.run(at_once()) == [["one"], ["two"]]
    assert EFFECTS == []


@tool
def quote(sku: str) -> str:
    """Price what was sold."""
    return f"{sell(sku)} at 5"


def test_calls_that_a_recorded_call_made_are_not_missed_when_it_is_answered() -> None:
    sink = MemorySink()
    with Recorder(sink=sink) as recorder, recorder.turn(user="Quote A twice"):
        said = [quote("A"), quote("A")]
    tape = Tape(recording_of(sink.cases[0]), MockPolicy())
    EFFECTS.clear()

    tape.begin()
    answered = TOOL_ANSWERS.set(tape)
    again = [quote("A"), quote("A")]
    TOOL_ANSWERS.reset(answered)
    tape.end()

    assert (again, EFFECTS) == (said, [])
    assert tape.turns[-1].is_recorded
