"""From the text of `--agent` to an agent: `package.module:name`, a command, or an address."""

import importlib
import inspect
import os
import sys
from typing import Any, Final

from evaltap.experiments.agents.base import FRAMEWORKS, Agent, adapter_of
from evaltap.experiments.agents.command import PREFIX, CommandAgent
from evaltap.experiments.agents.endpoint import http_agent, openai_agent
from evaltap.experiments.agents.functions import FactoryAgent, FunctionAgent, required_parameters
from evaltap.recorder import Recorder
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean

_EXPECTED: Final = (
    "expected package.module:name, a function, a factory or an agent object; or command:PROGRAM,"
    " openai:MODEL@URL, or an http:// address"
)


def load_agent(
    text: str, recorder: Recorder, *, request: Any = None, result: str = ""
) -> Agent:  # `request` is a JSON template
    """Import and adapt the agent that `--agent` names; raise InputError if there is none.

    The current folder comes first on the import path, as for `python -m`.  `request` and `result` are for
    an HTTP address.
    """
    if text.startswith(("http://", "https://")):
        return http_agent(text, recorder, request, result)
    if request is not None or result:
        raise InputError(
            f"--agent {text}: --agent-request and --agent-result are for an http:// address"
        )
    if text.startswith(PREFIX):
        return CommandAgent(text, recorder)
    if text.startswith("openai:"):
        return openai_agent(text, recorder)
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
    if (framework := _of_framework(found, recorder, text)) is not None:
        return framework
    if not callable(found):
        raise InputError(f"--agent {text}: found {type(found).__name__}; {_EXPECTED}")
    if required_parameters(found):
        return FunctionAgent(found, recorder)
    return FactoryAgent(found, lambda made, is_last: _made(made, recorder, text, is_last=is_last))


def _made(made: Any, recorder: Recorder, text: str, *, is_last: bool) -> Agent | None:
    """Adapt what a factory returned, or yielded at last; it is no factory again."""
    if (framework := _of_framework(made, recorder, text)) is not None or not is_last:
        return framework
    if callable(made) and not inspect.isclass(made) and required_parameters(made):
        return FunctionAgent(made, recorder)
    raise InputError(
        f"--agent {text}: the factory returned {type(made).__name__}; expected a function of the messages,"
        " or an agent object"
    )


def _of_framework(found: Any, recorder: Recorder, text: str) -> Agent | None:
    for kind in type(found).__mro__:
        for package, module in FRAMEWORKS.items():
            is_of = f"{kind.__module__}.".startswith(f"{package}.")
            if is_of and (agent := _adapted(module, found, recorder, text)) is not None:
                return agent
    return None


def _adapted(module: str, found: Any, recorder: Recorder, text: str) -> Agent | None:
    try:
        agent: Agent | None = adapter_of(module).adapt(found, recorder)
    except ImportError as error:  # of another release than the adapter knows
        kind = type(found)
        raise InputError(
            f"--agent {text}: a {kind.__name__} of {kind.__module__} cannot be run: {error}"
        ) from error
    return agent
