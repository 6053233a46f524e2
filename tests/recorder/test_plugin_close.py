"""Closing a plugin closes the recorder that it created, and only flushes one that it shares with others."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from evaltap.recorder import Recorder
from evaltap.recorder.plugins.adk import EvaltapPlugin
from evaltap.recorder.plugins.claude_agent import EvaltapHooks as ClaudeHooks
from evaltap.recorder.plugins.langchain import EvaltapHandler
from evaltap.recorder.plugins.openai_agents import EvaltapTraceProcessor
from evaltap.recorder.plugins.pydantic_ai import EvaltapCapability
from evaltap.recorder.plugins.strands import EvaltapHooks as StrandsHooks

PLUGINS: Final[Mapping[str, Callable[..., Any]]] = {
    "adk": EvaltapPlugin,
    "claude": ClaudeHooks,
    "langchain": EvaltapHandler,
    "openai_agents": EvaltapTraceProcessor,
    "pydantic_ai": EvaltapCapability,
    "strands": StrandsHooks,
}


def close(plugin: Any) -> None:
    """Close a plugin as its framework or its user does."""
    done = (getattr(plugin, "shutdown", None) or plugin.close)()
    if inspect.isawaitable(done):
        asyncio.run(_finished(done))


async def _finished(done: Any) -> None:
    await done


@pytest.mark.parametrize("kind", PLUGINS.values(), ids=PLUGINS)
def test_a_shared_recorder_still_records_after_a_plugin_is_closed(
    kind: Callable[..., Any], tmp_path: Path
) -> None:
    with Recorder(tmp_path / "agent.log.db") as recorder:
        close(kind(recorder=recorder))
        with recorder.turn(session_id="s", user="Hello") as turn:
            turn.respond("Good day.")
        assert recorder.flush()
        assert recorder.counters().delivered == 1


@pytest.mark.parametrize("kind", PLUGINS.values(), ids=PLUGINS)
def test_a_recorder_of_its_own_is_closed_with_the_plugin(
    kind: Callable[..., Any], tmp_path: Path
) -> None:
    plugin = kind(str(tmp_path / "agent.log.db"))
    close(plugin)
    with plugin._recorder.turn(session_id="s", user="Hello") as turn:
        turn.respond("Good day.")
    assert plugin._recorder.counters().delivered == 0
