"""Pickles state that is kept only in case more events arrive.

Python's garbage collector stops the agent while it visits every object in the process, and a
thousand turns are a hundred thousand objects. It does not visit bytes.
"""

import pickle
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

KEPT_SECONDS = 60.0
"""How long a written turn can still be revised: its trace, or its observations from plugins, is
kept this long after the last event. A longer time costs the agent's process memory for every turn."""

MAX_PACKED_BYTES = 256 * 1024
"""Larger values are not pickled: that would hold the GIL for too long."""


def pack(value: object, weight: int) -> bytes | None:
    """Return the value as bytes; None when it is too large, or contains a foreign type."""
    if weight > MAX_PACKED_BYTES:
        return None
    try:
        return pickle.dumps(value)
    except Exception:
        # A foreign type may raise anything; the value then stays unpickled.
        return None


def unpack(packed: bytes) -> Any:
    """Return a value equal to the one that was packed."""
    return pickle.loads(packed)


_OVERHEAD = 200
_VALUE = 32


def weigh(item: object) -> int:
    """Estimate the bytes kept alive by an observation, a span, or a value in one."""
    total = 0
    pending: list[Any] = [item]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is str:
            total += _VALUE + len(value)
        elif kind is dict:
            total += _OVERHEAD
            for key, content in value.items():
                total += _VALUE + len(key) if type(key) is str else _VALUE
                if type(content) is str:
                    total += _VALUE + len(content)
                elif content is not None:
                    pending.append(content)
        elif kind is list or kind is tuple:
            total += _VALUE
            pending.extend(value)
        elif is_dataclass(kind):
            total += _OVERHEAD
            for name in _field_names(kind):
                content = getattr(value, name)
                if type(content) is str:
                    total += _VALUE + len(content)
                elif content is not None and type(content) is not int:
                    pending.append(content)
        else:
            total += _VALUE
    return total


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))
