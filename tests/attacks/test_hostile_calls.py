"""Calls with arguments that run code, or are no numbers: nothing reaches the agent, and no turn is lost."""

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy
import pytest

from evaltap.recorder import MemorySink, Recorder, tool


class PanicError(BaseException):
    """What no guard catches."""


def boom(*_: object, **__: object) -> Any:
    """Raise it."""
    raise PanicError


class Hostile:
    """Panics whatever is done with it."""

    __class__ = property(boom)  # pyright: ignore[reportIncompatibleMethodOverride]
    __getattr__ = __iter__ = __len__ = __bool__ = __eq__ = __hash__ = boom
    __repr__ = __str__ = __getitem__ = __contains__ = __index__ = __float__ = __call__ = boom


class HostileText(str):
    """Panics where its own methods are called."""

    __iter__ = __len__ = __getitem__ = __contains__ = __eq__ = boom
    encode = strip = lower = startswith = split = isascii = boom
    __hash__ = boom


class HostileNumber(float):
    """Panics where it is compared."""

    __lt__ = __gt__ = __le__ = __ge__ = __eq__ = __abs__ = __add__ = __bool__ = boom
    __hash__ = boom


VALUES = [Hostile, lambda: HostileText("text"), lambda: HostileNumber(1.5)]


@pytest.mark.parametrize("make", VALUES)
def test_no_argument_runs_code(make: Callable[[], Any]) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    odd = make()
    parts = [
        odd,
        {"type": odd},
        {"type": "image_url", "image_url": odd},
        {"type": "image", "source": {"data": odd, "media_type": odd}},
        {"type": "file", "file": {"filename": odd, "file_data": odd}, "modality": odd},
        {"inline_data": {"data": odd, "mime_type": odd}},
    ]
    with recorder.turn(user=odd, parts=parts, session_id=odd, invocation_id=odd) as turn:
        turn.respond("a", parts=parts, reasoning=odd)
        turn.feedback(positive=odd, score=odd, comment=odd)
    recorder.feedback(odd, turn=odd, positive=odd, feedback_id=odd)

    assert recorder.flush(odd)
    assert recorder.close(odd)
    assert len(sink.cases) == 1
    assert recorder.counters().faults == 0


def test_an_odd_field_of_a_part_does_not_cost_the_message() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(user="look", parts=[{"type": "image", "modality": []}]) as turn:
        turn.respond("seen")
    assert recorder.close()

    assert sink.cases[0]["actualConversation"][0]["userContent"]["content"] == "look"


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1, 10**400, "5", None])
def test_no_timeout_is_an_error(seconds: Any) -> None:
    recorder = Recorder(sink=MemorySink())
    with recorder.turn(user="u"):
        pass

    recorder.flush(seconds)
    recorder.close(seconds)

    counters = recorder.counters()
    assert counters.recorded == counters.delivered + sum(counters.dropped.values()) == 1


class Doubling:
    """A tool that is an object."""

    def __call__(self, number: int) -> int:
        return 2 * number


class WithoutSignature(Doubling):
    """An object whose signature fails."""

    @property
    def __signature__(self) -> Any:
        raise RuntimeError


def add(one: int, other: int) -> int:
    return one + other


TOOLS: dict[str, tuple[Callable[[int], int], str, dict[str, int]]] = {
    "partial": (functools.partial(add, 4), "add", {"other": 4}),
    "object": (Doubling(), "Doubling", {"number": 4}),
    "object without a signature": (WithoutSignature(), "WithoutSignature", {}),
}


@pytest.mark.parametrize("kind", TOOLS)
def test_everything_that_can_be_called_can_be_a_tool(kind: str) -> None:
    function, name, arguments = TOOLS[kind]
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    with recorder.turn(user="u"):
        assert tool(function)(4) == 8
    assert recorder.close()

    (call,) = sink.cases[0]["actualConversation"][0]["tools"]
    assert (call["name"], call["arguments"], call["result"]) == (name, arguments, 8)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (numpy.float64(2.5), 2.5),
        (numpy.float32(2.5), 2.5),
        (Decimal("2.5"), 2.5),
        (Decimal("1e999999999"), None),
        (Decimal("9" * 100_000), None),
        (Decimal("nan"), None),
        (Decimal("snan"), None),
        (True, None),
        ("2.5", None),
    ],
)
def test_numbers_of_other_libraries_are_numbers(given: Any, kept: float | None) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(user="u") as turn:
        turn.tool("t", {}, result=1, duration_ms=given)
    assert recorder.close()

    (call,) = sink.cases[0]["actualConversation"][0]["tools"]
    assert call.get("durationMs") == kept


def test_tokens_counted_by_numpy_are_tokens() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(user="u") as turn:
        turn.model("m", input_tokens=numpy.int64(7), cost_usd=Decimal("0.5"))  # type: ignore[arg-type]
    assert recorder.close()

    telemetry = sink.cases[0]["actualConversation"][0]["telemetry"]
    assert (telemetry["inputTokens"], telemetry["costUsd"]) == (7, 0.5)
