"""Shared by all plugins: a recorder, and a guard between their callbacks and the agent."""

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from evaltap.recorder.protocols import Recording


class HasRecorder(Protocol):
    """A plugin; `guarded` reports its faults to its recorder."""

    _recorder: Recording


_P = ParamSpec("_P")
_T = TypeVar("_T")


def guarded(
    plugin: HasRecorder, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T | None:
    """Run a step of a plugin; its exceptions are counted and never reach the agent."""
    try:
        return step(*args, **kwargs)
    except Exception as error:
        # Frameworks propagate exceptions from hooks, and a recorder fault must not fail the agent.
        name = getattr(step, "__name__", type(step).__name__).lstrip("_")
        plugin._recorder.report_fault(f"{type(plugin).__name__}.{name}", error)
        return None


def recorder_for(log: str | None, recorder: Recording | None) -> Recording:
    """Return the given recorder, or a new one for the log."""
    if recorder is not None:
        return recorder
    from evaltap.recorder.recorder import Recorder

    return Recorder(log)
