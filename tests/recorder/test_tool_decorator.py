"""Decorated tools are recorded in the surrounding turn, and otherwise work as before."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from evaltap.recorder import MemorySink, Recorder, tool


class Shop:
    """Tools that are methods."""

    @classmethod
    @tool
    def find(cls, **terms: str) -> None:
        """Find an order, and return nothing."""

    @tool
    def get_order(self, order_id: str, *, full: bool = False) -> dict[str, Any]:
        """Look up an order."""
        if order_id == "X":
            raise KeyError(order_id)
        return {"order_id": order_id}


@tool
async def check(sku: str) -> str:
    """Check the stock."""
    await asyncio.sleep(0)
    return f"{sku}: 3"


@tool
async def research(question: str) -> str:
    """Ask another tool."""
    return await check(question)


def turns_of(sink: MemorySink, recorder: Recorder) -> list[dict[str, Any]]:
    assert recorder.close(5)
    return [case["actualConversation"][0] for case in sink.cases]


def test_a_call_is_recorded_with_its_arguments_by_name_and_its_result() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    with recorder.turn(user="Where?") as turn:
        assert Shop().get_order("A", full=True) == {"order_id": "A"}
        turn.respond("There.")

    (found,) = turns_of(sink, recorder)[0]["tools"]
    assert (found["name"], found["arguments"]) == ("get_order", {"order_id": "A", "full": True})
    assert (found["result"], "durationMs" in found) == ({"order_id": "A"}, True)


def test_arguments_are_those_of_the_call_without_the_class_and_by_their_own_names() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    with recorder.turn(user="Where?"):
        Shop.find(order_id="A")

    (found,) = turns_of(sink, recorder)[0]["tools"]
    assert found["arguments"] == {"order_id": "A"}
    assert "capture" not in found


def test_what_a_generator_yields_reaches_the_caller_and_its_result_is_missing() -> None:
    @tool
    def search(query: str) -> Iterator[str]:
        yield from ("A", "B")

    sink = MemorySink()
    recorder = Recorder(sink=sink)

    with recorder.turn(user="Where?"):
        assert list(search("all")) == ["A", "B"]

    (found,) = turns_of(sink, recorder)[0]["tools"]
    assert (found["arguments"], found["capture"]) == ({"query": "all"}, {"result": "missing"})


def test_what_a_tool_raises_is_recorded_and_reaches_the_caller() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    with recorder.turn(user="Where?"), pytest.raises(KeyError):
        Shop().get_order("X")

    (found,) = turns_of(sink, recorder)[0]["tools"]
    assert found["error"]["type"] == "KeyError"


def test_concurrent_turns_do_not_mix() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    async def answer(number: int) -> None:
        async with recorder.turn(session_id=f"s{number}", user="?") as turn:
            turn.respond(await research(f"X{number}"))

    async def talk() -> None:
        await asyncio.gather(*(answer(number) for number in range(4)))

    asyncio.run(talk())

    for turn in turns_of(sink, recorder):
        outer, inner = turn["tools"]
        assert (outer["name"], inner["name"]) == ("research", "check")
        assert turn["finalResponse"]["content"] == inner["result"] == outer["result"]


def test_outside_of_a_turn_nothing_happens() -> None:
    recorder = Recorder(sink=MemorySink())
    with recorder.turn():
        pass

    assert Shop().get_order("A") == {"order_id": "A"}
    assert asyncio.run(check("X")) == "X: 3"
    assert recorder.close(5)
    assert recorder.counters().recorded == 1


def test_a_wrong_call_fails_as_it_did() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    wrong: Any = Shop().get_order

    with recorder.turn(), pytest.raises(TypeError):
        wrong("A", "B", "C")

    assert turns_of(sink, recorder)[0]["tools"][0]["error"]["type"] == "TypeError"


def test_a_call_that_a_tool_makes_refers_to_the_call_of_that_tool() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    async def talk() -> None:
        async with recorder.turn(user="How many?") as turn:
            await asyncio.gather(research("X9"), research("X8"))
            await check("X7")
            turn.run_tool("count", {}, lambda: turn.run_tool("look", {}, lambda: 3))

    asyncio.run(talk())

    (turn,) = turns_of(sink, recorder)
    tools = turn["tools"]
    names = {one["id"]: one["name"] for one in tools if "id" in one}
    assert [(one["name"], names.get(one.get("parentId"))) for one in tools] == [
        ("research", None),
        ("check", "research"),
        ("research", None),
        ("check", "research"),
        ("check", None),
        ("count", None),
        ("look", "count"),
    ]
    assert tools[1]["parentId"] == tools[0]["id"] != tools[3]["parentId"] == tools[2]["id"]
