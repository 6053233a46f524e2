"""The tool call that the current code runs in: an agent used as a tool belongs to its caller's turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun

_ENCLOSING: ContextVar[tuple[ObservedRun, str] | None] = ContextVar("evaltap_call", default=None)


@contextmanager
def inside(run: ObservedRun | None, call_id: str) -> Iterator[None]:
    """Mark a tool call as the current context, so that a run started inside it belongs to `run`."""
    before = enter((run, call_id) if run is not None else None)
    try:
        yield
    finally:
        enter(before)


def enter(call: tuple[ObservedRun, str] | None) -> tuple[ObservedRun, str] | None:
    """Make this call the current one; return the previous one, to restore later.

    For frameworks that report the start and end of a call in two hooks.
    """
    before = _ENCLOSING.get()
    _ENCLOSING.set(call)
    return before


def enclosing(recorder: Observing) -> tuple[ObservedRun, str] | None:
    """Return the current run and its open tool call, if they belong to this recorder."""
    found = _ENCLOSING.get()
    if found is None or found[0].recorder is not recorder or not found[0].is_open(found[1]):
        return None
    return found
