"""Functions and other objects that metrics refer to by name.

A name is looked up among those that the program gave, evaltap's own, and the entry points of a group.  One
with a colon is `package.module:name` and is imported; commands check beforehand that this is allowed.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar, cast

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.schemas.text import did_you_mean

Part = TypeVar("Part")


def find(
    key: str, name: str, given: Mapping[str, Part], built_in: Mapping[str, Part], group: str
) -> Part:
    """Return what `name` stands for; `key` names the setting in the MetricError if it stands for nothing."""
    if name in given:
        return given[name]
    if name in built_in:
        return built_in[name]
    if ":" in name:
        return cast(Part, load_object(name, key))
    installed = {point.name: point for point in entry_points(group=group)}
    point = installed.get(name)
    if point is None:
        known = sorted({*given, *built_in, *installed})
        hint = did_you_mean(name, known) or f"known: {', '.join(known) or 'none'}"
        raise MetricError(
            f"{key} is '{name}'; {hint} (or package.module:function, or an entry point in {group})"
        )
    try:
        found: Part = point.load()
    except (ImportError, AttributeError) as error:
        raise MetricError(f"{key} '{name}' ({point.value}) cannot be imported: {error}") from error
    return found


def load_object(path: str, key: str) -> object:
    """Return the object at `package.module:name`; `key` names the setting in the MetricError."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise MetricError(f"{key} is '{path}'; expected package.module:name")
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise MetricError(
            f"{key} '{path}' cannot be imported: {error}; install the package, or put its folder on "
            "PYTHONPATH"
        ) from error
    except (AttributeError, ValueError) as error:
        raise MetricError(f"{key} '{path}': {error}") from error
    return found


def load_function(path: str, key: str) -> Callable[..., Any]:  # it is checked when it is called
    """Return the function at `package.module:function`; `key` names the setting in the MetricError."""
    found = load_object(path, key)
    if not callable(found):
        raise MetricError(f"{key} '{path}' is {type(found).__name__}, not a function")
    return found


def source_digest(function: Callable[..., object]) -> str:
    """Return a digest of a function's source, so that a changed function makes old scores stale."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        source = repr(getattr(function, "__qualname__", type(function).__qualname__))
    return hashlib.sha256(source.encode()).hexdigest()[:8]
