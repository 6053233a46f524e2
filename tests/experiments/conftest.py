"""Agents of experiments: served over HTTP, run by their frameworks, with tools that have effects."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from evaltap.experiments.service import RecordedAgent
from support.builders import served_agents
from support.worlds.replayed_agents import Shop

if TYPE_CHECKING:
    from support.worlds.framework_runs import Runs


@pytest.fixture(scope="module")
def agent() -> Iterator[RecordedAgent]:
    """The agent that the evaluation server runs."""
    made = RecordedAgent(served_agents.shop)
    yield made
    made.close()


@pytest.fixture
def client(agent: RecordedAgent) -> Iterator[TestClient]:
    """A client of the evaluation server."""
    with TestClient(served_agents.Served(agent).app, "http://127.0.0.1:8080") as made:
        yield made


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Tools whose every real call leaves a trace."""
    return Shop(tmp_path)


@pytest.fixture
def runs() -> Iterator["Runs"]:
    """A recorder in memory, and the experiment's part that runs units with it."""
    import agents as openai_agents  # frameworks take seconds to load

    from support.worlds.framework_runs import Runs

    made = Runs()
    yield made
    made.recorder.close()
    openai_agents.set_trace_processors([])
    openai_agents.set_tracing_disabled(False)
