"""Plugins whose recorder fails, for every framework: the agent answers as ever."""

import asyncio
from collections.abc import Container
from typing import Any

import pytest

from plugin_drivers import DRIVERS
from plugin_drivers.driver import AgentSpec, Driver, call, get_order, says
from support.builders.inline_recorder import InlineRecorder

MOST_OBSERVATIONS = 40
"""More than any of these runs makes."""


class Failing(InlineRecorder):
    """Cannot take the observations of these numbers."""

    def __init__(self, numbers: Container[int]) -> None:
        super().__init__()
        self.count = 0
        self._numbers = numbers

    def observe(self, observation: Any) -> None:
        self.count += 1
        if self.count in self._numbers:
            raise MemoryError("injected")
        super().observe(observation)


def answer_with(kind: type[Driver], recorder: InlineRecorder) -> str | None:
    """Return the answer of a run with a tool call, recorded by a recorder."""
    driver = kind(recorder)
    steps = [says("", call("get_order", "c1", order_id="A")), says("Delivered.")]
    with driver.installed():
        return asyncio.run(driver.ask(driver.agent(AgentSpec(steps, [get_order])), "Where?"))


@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.name)
def test_an_observation_that_cannot_be_taken_is_a_fault_and_nothing_else(
    kind: type[Driver],
) -> None:
    for nth in range(1, MOST_OBSERVATIONS):
        recorder = Failing([nth])

        assert answer_with(kind, recorder) == "Delivered."

        if recorder.count < nth:
            assert recorder.faults == []
            break
        assert "MemoryError" in recorder.faults[0]
    else:
        pytest.fail("more observations than expected")


@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.name)
def test_a_broken_recorder_does_not_disturb_the_agent(kind: type[Driver]) -> None:
    recorder = Failing(range(MOST_OBSERVATIONS))

    assert answer_with(kind, recorder) == "Delivered."

    assert recorder.faults
    assert recorder.cases == []
