"""Content as the recorder takes it: copied at the moment it is seen, and cut to size.

The agent goes on to change its dictionaries, so a reference is not enough; a deep copy costs more
than JSON does.  `freeze` turns any object into JSON bytes and never fails, whatever the object.
"""

import hashlib
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import orjson

_MAX_DEPTH = 60
_MAX_NODES = 100_000
_MAX_DIGITS_BITS = 4096
_MAX_NAME = 512


class Frozen(bytes):
    """A JSON value as bytes, on its way through the queue; `thaw` gives the value back."""

    __slots__ = ()


def freeze(value: object, max_bytes: int) -> tuple[Frozen, bool]:
    """Return the value as JSON of at most about `max_bytes`, and whether something was cut."""
    try:
        written = orjson.dumps(value, default=_plain_object, option=orjson.OPT_NON_STR_KEYS)
        if b"null" in written and _holds_nan(value):
            written = orjson.dumps(_plain(value))
    except Exception:
        # The object's own code runs here, so anything may be raised.
        written = orjson.dumps(_trusting_nothing(value))
    if len(written) <= max_bytes:
        return Frozen(written), False
    note = _note(written)
    return Frozen(orjson.dumps(shorten(orjson.loads(written), max_bytes, note))), True


def thaw(value: Any) -> Any:
    """Return the value that was frozen; anything else as it is."""
    # orjson takes no subclass of bytes, but a view of one.
    return orjson.loads(memoryview(value)) if isinstance(value, Frozen) else value


def cut(text: str, max_bytes: int) -> tuple[str, bool]:
    """Return the text with at most `max_bytes` and a note on the rest, and whether it was cut."""
    if len(text) * 4 <= max_bytes:
        return text, False
    written = text.encode("utf-8", "replace")
    if len(written) <= max_bytes:
        return text, False
    note = _note(written)
    kept = written[: max(0, max_bytes - len(note))].decode("utf-8", "ignore")
    # Not in the middle of a word: half a key would pass the redaction.
    blank = max(kept.rfind(" ", -256), kept.rfind("\n", -256))
    return (kept[:blank] if blank > 0 else kept) + note, True


def name(value: object) -> str | None:
    """Return an id or a name as a short text; None stays None."""
    if value is None:
        return None
    if type(value) is not str:
        value = _plain(value)
        value = value if isinstance(value, str) else orjson.dumps(value).decode()
    if len(value) <= _MAX_NAME:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{value[: _MAX_NAME - 20]}...{digest}"


def shorten(value: Any, max_bytes: int, note: str = "") -> Any:
    """Return a JSON value of at most about `max_bytes`: long texts cut, long lists ended early."""
    budget = [max_bytes - len(note)]
    longest = max(64, max_bytes // 4)
    shortened = _shorten(value, budget, longest)
    if not note:
        return shortened
    if isinstance(shortened, dict):
        return {**shortened, "[truncated]": note.strip(" []")}
    if isinstance(shortened, list):
        return [*shortened, note.strip()]
    return f"{shortened}{note}"


def _shorten(value: Any, budget: list[int], longest: int) -> Any:
    if isinstance(value, str):
        allowed = max(0, min(longest, budget[0]))
        text = value if len(value) <= allowed // 4 else cut_plain(value, allowed)
        budget[0] -= len(text) + 3
        return text
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        for key, one in value.items():
            if budget[0] <= 0:
                break
            budget[0] -= len(key) + 4
            kept[key] = _shorten(one, budget, longest)
        return kept
    if isinstance(value, list):
        items: list[Any] = []
        for one in value:
            if budget[0] <= 0:
                break
            items.append(_shorten(one, budget, longest))
        return items
    budget[0] -= 12
    return value


def cut_plain(text: str, max_bytes: int) -> str:
    """Return the beginning of a text, up to a blank where there is one, with an ellipsis."""
    written = text.encode("utf-8", "replace")
    if len(written) <= max_bytes:
        return text
    kept = written[:max_bytes].decode("utf-8", "ignore")
    blank = max(kept.rfind(" ", -256), kept.rfind("\n", -256))
    return (kept[:blank] if blank > 0 else kept) + "..."


def readable(value: Any) -> Any:
    """Return a JSON value in which every text can be written as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {readable(str(key)): readable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    return value


def _note(written: bytes) -> str:
    return f" [truncated: {len(written)} bytes, sha256 {hashlib.sha256(written).hexdigest()}]"


def _plain_object(value: object) -> Any:
    """Return something that JSON has for an object that it has not; for orjson."""
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, Decimal | PurePath | complex):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        return f"<class {value.__qualname__}>"
    for method, arguments in (("model_dump", {"mode": "json"}), ("tolist", {})):
        convert = getattr(value, method, None)
        if callable(convert):
            converted = convert(**arguments)
            if isinstance(converted, dict | list | str | int | float):
                return converted
    # The name of the type only: `repr` is the agent's code and may be slow, huge or broken.
    return f"<{type(value).__qualname__}>"


def _trusting_nothing(value: object) -> Any:
    try:
        return _plain(value)
    except Exception:
        # Even asking for its class failed.
        return f"<{type(value).__qualname__}>"


def _plain(value: object, depth: int = 0, seen: tuple[int, ...] = (), nodes: Any = None) -> Any:
    """Return a JSON value for any object, slowly and without trust."""
    nodes = [0] if nodes is None else nodes
    nodes[0] += 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 64 else _large(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return str.__str__(value).encode("utf-8", "replace").decode()
    if depth >= _MAX_DEPTH or id(value) in seen or nodes[0] > _MAX_NODES:
        return f"<{type(value).__qualname__}>"
    inner = (*seen, id(value))
    try:
        if isinstance(value, Mapping):
            return {
                _key(key): _plain(one, depth + 1, inner, nodes) for key, one in list(value.items())
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(one, depth + 1, inner, nodes) for one in list(value)]
        return _plain(_plain_object(value), depth + 1, inner, nodes)
    except Exception:
        # The object is hostile or broken; its type is all that can be said of it.
        return f"<{type(value).__qualname__}>"


def _key(key: object) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else orjson.dumps(plain).decode()


def _large(value: int) -> str:
    return str(int(value)) if value.bit_length() < _MAX_DIGITS_BITS else "<int>"


def _holds_nan(value: object, depth: int = 0) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return any(_holds_nan(one, depth + 1) for one in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_nan(one, depth + 1) for one in value)
    return False
