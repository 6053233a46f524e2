"""From the text of `--agent` to an agent: `package.module:name`."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from evaltap.experiments.agents.base import Abilities, Agent
from evaltap.experiments.agents.functions import FactoryAgent, FunctionAgent, required_parameters
from evaltap.recorder import Recorder
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean

_EXPECTED = "expected package.module:name, a function, a factory or an agent object"


def load_agent(text: str, recorder: Recorder) -> Agent:
    """Import and adapt the agent that `--agent` names; raise InputError if there is none.

    The current folder comes first on the import path, as for `python -m`.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return agent_of(_imported(text), recorder, text)


def _imported(text: str) -> Any:  # whatever the user's module defines
    module_name, colon, path = text.partition(":")
    if not colon or not module_name or not path:
        raise InputError(f"--agent {text}: {_EXPECTED}")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise InputError(
            f"--agent {text}: {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, [one for one in dir(found) if not one.startswith("_")])
            raise InputError(f"--agent {text}: {module_name} has no {name!r}; {hint or _EXPECTED}")
        found = getattr(found, name)
    return found


def agent_of(found: Any, recorder: Recorder, text: str = "the agent") -> Agent:
    """Adapt an object as an agent: of a framework, a function, or a factory of either."""
    if (framework := _of_framework(found, recorder)) is not None:
        return framework
    if not callable(found):
        raise InputError(f"--agent {text}: found {type(found).__name__}; {_EXPECTED}")
    if required_parameters(found):
        return FunctionAgent(found, recorder)
    return FactoryAgent(found, lambda made: _made(made, recorder, text), Abilities(context=True))


def _made(made: Any, recorder: Recorder, text: str) -> Agent:
    """Adapt what a factory returned; it is no factory again."""
    if (framework := _of_framework(made, recorder)) is not None:
        return framework
    if callable(made) and not inspect.isclass(made) and required_parameters(made):
        return FunctionAgent(made, recorder)
    raise InputError(
        f"--agent {text}: the factory returned {type(made).__name__}; expected a function of the messages,"
        " or an agent object"
    )


FRAMEWORKS: dict[str, Callable[[Any, Recorder], Agent | None]] = {}
"""By the top-level package of an object's class: an adapter, which returns None for what is no agent of
it.
"""


def _of_framework(found: Any, recorder: Recorder) -> Agent | None:
    for kind in type(found).__mro__:
        adapt = FRAMEWORKS.get(kind.__module__.partition(".")[0])
        if adapt is not None and (agent := adapt(found, recorder)) is not None:
            return agent
    return None
