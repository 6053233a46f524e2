"""Experiments: run an agent on the cases of a set, record it, score it like any other traffic.

The agent runs in a process of its own (`worker`), which records to a log; the process of the experiment
(`loop`) lands and scores what arrives there.  Importing this package loads none of it.
"""

from typing import TYPE_CHECKING, Final

from evaltap.schemas.lazy import lazy_names

if TYPE_CHECKING:
    from evaltap.experiments.agents.base import AgentError as AgentError
    from evaltap.experiments.api import evaluate as evaluate
    from evaltap.experiments.in_process import run_case as run_case
    from evaltap.experiments.outcome import Outcome as Outcome
    from evaltap.experiments.running import Finished as Finished
    from evaltap.experiments.tool_calls import MockChoice as MockChoice

_HOMES: Final = {
    "agents.base": "AgentError",
    "api": "evaluate",
    "in_process": "run_case",
    "outcome": "Outcome",
    "running": "Finished",
    "tool_calls": "MockChoice",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
