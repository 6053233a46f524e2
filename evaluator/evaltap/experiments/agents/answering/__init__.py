"""Tool calls answered from a recording: one module per framework that swaps a tool before it runs.

Each asks `tool_answers` in the context of the call, so that runs in one process are kept apart; a patch of a
framework's class stays, and without answers every tool runs.
"""

import importlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_BY_CLASS: Final[Mapping[str, str]] = {
    "agents.agent": "openai_agents",
    "google.adk.runners": "adk",
    "langchain_core": "langchain",
    "pydantic_ai": "pydantic_ai",
    "strands.agent": "strands",
}
"""By package of a framework whose classes are patched: the module here."""


def install_imported() -> None:
    """Have the tools of agents that a function runs itself ask, as far as their frameworks are imported."""
    for package, module in _BY_CLASS.items():
        if package in sys.modules:
            with suppress(ImportError):  # another module of this name, or another release
                importlib.import_module(f"{__name__}.{module}").install()
