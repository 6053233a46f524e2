"""Content as the recorder stores it: copied when observed, and cut to size.

The agent may change its dicts afterwards, so a reference is not enough. `freeze` turns any object
into JSON bytes and never fails: orjson serializes the copy made by `plain`, never the agent's own
objects.
"""

import hashlib
from decimal import Decimal
from typing import Any

import orjson

from evaltap.recorder.foreign import type_name
from evaltap.recorder.plain import MAX_VALUES, PlainCopy
from evaltap.schemas.data import JsonObject
from evaltap.schemas.text import cut_text

_MAX_NAME = 512
_MAX_DIGESTED = 4096
"""Length of the prefix of a long name that goes into its digest, along with its total length."""


class Frozen(bytes):
    """A JSON value as bytes, for its way through the queue; `thaw` restores the value."""

    __slots__ = ()


def freeze(value: object, max_bytes: int) -> tuple[Frozen, bool]:
    """Return the value as JSON of about `max_bytes` at most, and whether it was cut."""
    walk = PlainCopy(max_bytes)
    plain = walk.copied(value)
    fits = walk.size <= max_bytes
    if not walk.was_cut:
        written = _written(plain)
        fits = len(written) <= max_bytes
        if fits:
            return Frozen(written), False
    note = f" [truncated: beyond {max_bytes} bytes or {MAX_VALUES} values]"
    return Frozen(_written(_noted(plain, note) if fits else shorten(plain, max_bytes, note))), True


def thaw(value: object) -> Any:
    """Return the value that was frozen; return anything else unchanged."""
    # orjson rejects subclasses of bytes but accepts a memoryview of one.
    return orjson.loads(memoryview(value)) if isinstance(value, Frozen) else value


def cut(text: str, max_bytes: int) -> tuple[str, bool]:
    """Return at most `max_bytes` of the text with a note on what was cut, and whether it was cut."""
    if len(text) * 4 <= max_bytes:
        return text, False
    # At most this much can fit; avoid copying the rest.
    kept = text[: max_bytes + 1]
    if len(kept.encode("utf-8", "replace")) <= max_bytes:
        return text, False
    return cut_text(kept, max_bytes, f" [truncated: {len(text)} characters]"), True


def text(value: object, max_bytes: int) -> tuple[str | None, bool]:
    """Return a value as text of at most `max_bytes`, and whether it was cut; None stays None."""
    if value is None:
        return None, False
    if type(value) is not str:
        plain = thaw(freeze(value, max_bytes)[0])
        value = plain if isinstance(plain, str) else _written(plain).decode()
    return cut(value, max_bytes)


def number(value: object) -> float | None:
    """Return a number that JSON can represent, or None; numpy's numbers and decimals are numbers."""
    if type(value) is not float and type(value) is not int:
        is_decimal = type(value) is Decimal and value.is_finite()
        plain = PlainCopy(_MAX_NAME).copied(value)
        value = float(plain) if is_decimal and plain != type_name(value) else plain
    if type(value) is float:
        return value if abs(value) < 1e300 else None
    if type(value) is not int or abs(value) >= 1 << 1000:
        return None
    return value if abs(value) < 1 << 63 else float(value)


def truth(value: object) -> bool | None:
    """Return True, False, 1 or 0 as a boolean, numpy's too; None for any other value."""
    plain = value if type(value) is bool else PlainCopy(_MAX_NAME).copied(value)
    return plain == 1 if isinstance(plain, int | float) and plain in (0, 1) else None


def name(value: object) -> str | None:
    """Return an id or name as a short text; None stays None."""
    if value is None:
        return None
    if type(value) is not str:
        plain = PlainCopy(_MAX_DIGESTED).copied(value)
        value = plain if isinstance(plain, str) else _written(plain).decode()
    if len(value) <= _MAX_NAME:
        return value
    digested = f"{len(value)} {value[:_MAX_DIGESTED]}".encode("utf-8", "replace")
    digest = hashlib.sha256(digested).hexdigest()[:16]
    return f"{value[: _MAX_NAME - 20]}...{digest}"


def shorten(value: object, max_bytes: int, note: str = "") -> object:
    """Return a JSON value of about `max_bytes` at most: long texts truncated, long lists cut short."""
    budget = [max_bytes - len(note)]
    longest = max(64, max_bytes // 4)
    shortened = _shorten(value, budget, longest)
    return _noted(shortened, note) if note else shortened


def _noted(shortened: object, note: str) -> object:
    if isinstance(shortened, dict):
        return {**shortened, "[truncated]": note.strip(" []")}
    if isinstance(shortened, list):
        return [*shortened, note.strip()]
    return f"{shortened}{note}"


def _shorten(value: object, budget: list[int], longest: int) -> object:
    if isinstance(value, str):
        allowed = max(0, min(longest, budget[0]))
        if len(value) * 4 <= allowed:
            budget[0] -= len(value) + 3
            return value
        text = cut_text(value, allowed)
        budget[0] -= len(text) + 3
        return text
    if isinstance(value, dict):
        kept: JsonObject = {}
        for key, one in value.items():
            if budget[0] <= 0:
                break
            budget[0] -= len(key) + 4
            kept[key] = _shorten(one, budget, longest)
        return kept
    if isinstance(value, list):
        items: list[object] = []
        easy, left = longest // 4, budget[0]
        for one in value:
            if left <= 0:
                break
            # A call for each text would double the time.
            if type(one) is str and (size := len(one)) <= easy and size * 4 <= left:
                left -= size + 3
                items.append(one)
                continue
            budget[0] = left
            items.append(_shorten(one, budget, longest))
            left = budget[0]
        budget[0] = left
        return items
    budget[0] -= 12
    return value


def readable(value: Any) -> Any:
    """Return a JSON value in which every text is encodable as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {readable(str(key)): readable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    return value


def _written(plain: object) -> bytes:
    try:
        return orjson.dumps(plain)
    except TypeError:
        # Lone surrogates, which UTF-8 cannot encode.
        return orjson.dumps(readable(plain))
