"""Experiments: run an agent on the cases of a set, record it, score it like any other traffic.

The agent runs in a process of its own (`worker`), which records to a log; the process of the experiment
(`loop`) lands and scores what arrives there.  Importing this package loads none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from evaltap.experiments.agents.base import AgentError as AgentError
    from evaltap.experiments.api import evaluate as evaluate
    from evaltap.experiments.in_process import run_case as run_case
    from evaltap.experiments.outcome import Outcome as Outcome
    from evaltap.experiments.running import Finished as Finished
    from evaltap.experiments.tool_calls import MockChoice as MockChoice

_HOMES: Final = {
    "AgentError": "agents.base",
    "Finished": "running",
    "MockChoice": "tool_calls",
    "Outcome": "outcome",
    "evaluate": "api",
    "run_case": "in_process",
}

__all__ = ["AgentError", "Finished", "MockChoice", "Outcome", "evaluate", "run_case"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
