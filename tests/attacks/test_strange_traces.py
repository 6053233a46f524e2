"""Traces of strangers: thousands of nested or concurrent spans are read in linear time."""

from collections.abc import Callable

import pytest

from evaltap.recorder.telemetry.spans import Span
from evaltap.recorder.traces.reader import observe_trace
from support.builders.span_builders import TRACE, cases_of, tools

AGENT = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "a",
    "gen_ai.conversation.id": "s",
}


def span(number: int, parent: int | None, scope: str = "one", **attributes: str) -> Span:
    """Return a span; all take the same time."""
    given = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return Span(
        TRACE, f"{number:016x}", "x", 1_000, 2_000, None if parent is None else f"{parent:016x}",
        given or AGENT, scope=scope,
    )  # fmt: skip


def tool(number: int, parent: int, call: int, scope: str = "one") -> Span:
    return span(number, parent, scope, operation__name="execute_tool", tool__name=f"f{call}",
                tool__call__id=f"c-{call}")  # fmt: skip


def model(number: int, parent: int, answer: int, scope: str = "one") -> Span:
    return span(number, parent, scope, operation__name="chat", response__id=f"r-{answer}")


def nested_tools(count: int) -> list[Span]:
    return [span(1, None), *(tool(n, n - 1, n) for n in range(2, count + 2))]


def nested_models(count: int) -> list[Span]:
    return [span(1, None), *(model(n, n - 1, n) for n in range(2, count + 2))]


def nested_agents(count: int) -> list[Span]:
    return [span(n, n - 1 if n > 1 else None) for n in range(1, count + 1)]


def concurrent_tools(count: int) -> list[Span]:
    return [span(1, None), *(tool(n, 1, n, ("one", "two")[n % 2]) for n in range(2, count + 2))]


def concurrent_models(count: int) -> list[Span]:
    return [span(1, None), *(model(n, 1, n, ("one", "two")[n % 2]) for n in range(2, count + 2))]


def in_a_circle(count: int) -> list[Span]:
    return [tool(n, n % count + 1, n) for n in range(1, count + 1)]


SHAPES = [
    nested_tools,
    nested_models,
    nested_agents,
    concurrent_tools,
    concurrent_models,
    in_a_circle,
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_traces_of_thousands_of_such_spans_are_read(shape: Callable[[int], list[Span]]) -> None:
    assert list(observe_trace(shape(4_000)))


def test_no_call_of_a_deep_trace_is_lost() -> None:
    [case] = cases_of(nested_tools(1_000))

    [turn] = case["actualConversation"]
    assert len(tools(turn)) == 1_000


def test_concurrent_calls_of_two_instrumentations_are_merged() -> None:
    calls = [
        tool(10 * n + place, 1, n, scope)
        for n in range(1, 500)
        for place, scope in enumerate(("one", "two"))
    ]

    [case] = cases_of([span(1, None), *calls])

    [turn] = case["actualConversation"]
    assert len(tools(turn)) == 499
