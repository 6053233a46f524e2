"""The tool call that the current code runs in: an agent used as a tool belongs to its caller's turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun

Enclosing: TypeAlias = tuple[ObservedRun, str] | None
"""A run and the key of its open tool call."""
_ENCLOSING: ContextVar[Enclosing] = ContextVar("evaltap_call", default=None)


@contextmanager
def inside(run: ObservedRun, key: str) -> Iterator[None]:
    """Mark a tool call as the current context, so that a run started inside it belongs to `run`."""
    before = enter((run, key))
    try:
        yield
    finally:
        enter(before)


def enter(call: Enclosing) -> Enclosing:
    """Make this call the current one; return the previous one, to restore later.

    For frameworks that report the start and end of a call in two hooks.
    """
    before = _ENCLOSING.get()
    _ENCLOSING.set(call)
    return before


def enclosing(recorder: Observing) -> Enclosing:
    """Return the current run and its open tool call, if they belong to this recorder."""
    found = _ENCLOSING.get()
    if found is None or found[0].recorder is not recorder or not found[0].is_open(found[1]):
        return None
    return found
