"""What an error is called in a case: one rule for every way in."""

from typing import Any

from evaltap.recorder.observation import Failure

UNSEEN: Any = object()
"""Stands for a result or arguments that nobody showed."""


def failure_of(error: object) -> Failure:
    """Return what an error says of itself: a failure as it is, a text as its message.

    An exception is named as OpenTelemetry's `exception.type` is: by module and class, a builtin one
    by its class.
    """
    if isinstance(error, Failure):
        return error
    if not isinstance(error, BaseException):
        return Failure(message=error if isinstance(error, str) else type(error).__name__)
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    try:
        return Failure(name, str(error) or None)
    except Exception:
        # Its own text fails; the type still says something.
        return Failure(name)
