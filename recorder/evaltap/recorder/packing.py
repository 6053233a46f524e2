"""What is kept only in case more of it comes, as bytes.

Python's garbage collector stops the agent for as long as it takes to look at every object of the
process, and a thousand turns are a hundred thousand objects.  Bytes it does not look at.
"""

import pickle
from typing import Any

MAX_PACKED_BYTES = 256 * 1024
"""What is heavier is not packed: that would hold the interpreter lock for longer than a moment."""


def pack(value: object, weight: int) -> bytes | None:
    """Return the value as bytes; None when it is too heavy, or a type in it is somebody's own."""
    if weight > MAX_PACKED_BYTES:
        return None
    try:
        return pickle.dumps(value)
    except Exception:
        # Whatever such a type says; the value then stays as it is.
        return None


def unpack(packed: bytes) -> Any:
    """Return an equal value to the one that was packed."""
    return pickle.loads(packed)
