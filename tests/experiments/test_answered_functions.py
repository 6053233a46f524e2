"""A replay of plain functions: `turn.run_tool` and `@tool` ask the recording, on any thread."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.mocks.tape import Tape
from evaltap.experiments.pseudonyms import Inventions
from evaltap.experiments.worker import WorkerSettings, recorder_of
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


@tool
async def quote_later(sku: str) -> str:
    """Price what was sold, once others have begun, too."""
    await asyncio.sleep(0)
    return f"{await sell_later(sku)} at 5"


async def quotes_two_at_once(messages: Any) -> str:
    return " and ".join(await asyncio.gather(quote_later("A"), quote_later("B")))


async def quotes_one_by_one(messages: Any) -> str:
    return f"{await quote_later('A')} and {await quote_later('B')}"


@pytest.mark.parametrize("agent", [quotes_two_at_once, quotes_one_by_one])
def test_calls_that_a_recorded_call_made_are_recorded_again_when_it_is_answered(
    agent: Any, tmp_path: Path
) -> None:
    def recorded_by(recorder: Recorder, sink: MemorySink) -> list[Any]:
        with recorder, recorder.turn(user="Quote A and B") as turn:
            turn.respond(asyncio.run(agent([])))
        (case,) = sink.cases
        calls = case["actualConversation"][0]["tools"]
        names = {call["id"]: (call["name"], call["arguments"]) for call in calls if call.get("id")}
        return [
            (call["name"], call["arguments"], call["result"], names.get(call.get("parentId")))
            for call in calls
        ]

    sink, again = MemorySink(), MemorySink()
    first = recorded_by(Recorder(sink=sink), sink)
    tape = Tape(recording_of(sink.cases[0]), MockPolicy())
    EFFECTS.clear()

    tape.begin()
    answered = TOOL_ANSWERS.set(tape)
    recorder, _ = recorder_of(WorkerSettings(log=str(tmp_path / "x.log.db")), Inventions(), again)
    second = recorded_by(recorder, again)
    TOOL_ANSWERS.reset(answered)

    assert (len(first), second, EFFECTS) == (4, first, [])


class Status(Enum):
    SHIPPED = "shipped"


@dataclass(frozen=True)
class Order:
    id: str
    status: Status
    price: Decimal
    parts: tuple[str, ...] = ()


class Customer(BaseModel):
    name: str
    since: date
    orders: list[Order]


class Place(NamedTuple):
    x: float
    y: float


class Shop:
    """No data class: only its name is recorded."""


ORDER = Order("A-1", Status.SHIPPED, Decimal("19.90"), ("box", "lid"))


@tool
def find_order() -> Order:
    return ORDER


@tool
def find_customer() -> Customer | None:
    return Customer(name="Ann", since=date(2024, 2, 29), orders=[ORDER])


@tool
def find_prices() -> dict[str, Decimal]:
    return {"A-1": Decimal("19.90"), "A-2": Decimal("1E+3")}


@tool
def find_places() -> list[Place]:
    return [Place(1.5, -2)]


@tool
def find_count() -> int:
    return 2**70


@tool
def find_limit() -> float:
    return float("inf")


@pytest.mark.parametrize(
    "find",
    [find_order, find_customer, find_prices, find_places, find_count, find_limit],
)
def test_a_recorded_result_has_the_type_that_the_function_declares(find: Any) -> None:
    answered, real = again(find)
    assert (type(answered), answered) == (type(real), real)


@tool
def says_text() -> int:
    return "12"  # type: ignore[return-value]


@tool
def says_less() -> Order:
    return {"id": "A-1"}  # type: ignore[return-value]


@tool
def says_whole() -> dict[str, float]:
    return {"a": 1, "b": 1.0}


@tool
def says_nothing():  # type: ignore[no-untyped-def]
    return {"id": "A-1"}


@tool
def says_what_nobody_knows() -> "Unknown":  # type: ignore[name-defined]  # noqa: F821
    return {"id": "A-1"}


@tool
def says_shop() -> Shop:
    return {"id": "A-1"}  # type: ignore[return-value]


@pytest.mark.parametrize(
    "says",
    [says_text, says_less, says_whole, says_nothing, says_what_nobody_knows, says_shop],
)
def test_a_result_that_is_not_what_the_function_declares_comes_as_it_was_recorded(
    says: Any,
) -> None:
    answered, real = again(says)
    assert repr(answered) == repr(real)


def again(find: Any) -> tuple[Any, Any]:
    """What a replay gives for a call, and what the function gave."""
    sink = MemorySink()
    with Recorder(sink=sink) as recorder, recorder.turn(user="Find it"):
        real = find()
    tape = Tape(recording_of(sink.cases[0]), MockPolicy())
    tape.begin()
    answers = TOOL_ANSWERS.set(tape)
    try:
        answered = find()
    finally:
        TOOL_ANSWERS.reset(answers)
    tape.end()
    assert tape.turns[-1].is_recorded
    return answered, real
