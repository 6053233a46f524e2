"""Bounded copies of what the recorder sees, in plain JSON types: all recorded content goes through here.

The agent may change its dicts afterwards, so a reference is not enough. `freeze` turns any object
into JSON bytes and never fails: orjson serializes the copy, never the agent's own objects.

The walk visits a limited number of values, copies no text beyond its limit, does not follow cycles,
and runs no foreign code (see `foreign`). It lists a container in a single C-level step before
visiting the items, so other threads may change it meanwhile. A shared value is copied at each
occurrence and counts each time.
"""

import hashlib
import json
import math
from decimal import Decimal
from functools import partial
from time import thread_time
from typing import Any

import orjson

from evaltap.recorder.foreign import MAX_FIELDS, base_count, listed, type_name, view
from evaltap.schemas.data import JsonObject
from evaltap.schemas.text import cut_text

MAX_VALUES = 1_300
"""Values per copy: takes the agent's thread about 0.3 ms."""
_CONTAINER_VALUES = 3
"""Cost of a list or a dict, on top of its contents."""
_FLAT_VALUES = 2
"""Cost of a small dict that is copied in one step."""
_SUBCLASS_VALUES = 1
"""Further cost of a container that is not exactly a list or a dict."""
_KEY_VALUES = 2
"""Cost of a key that is not a short text or whose value is not; one more for each `_EASY_KEY` characters."""
_ODD_KEY_VALUES = 16
"""Cost of a key that is not a text, or mostly control characters, on top of its contents."""
_FOREIGN_VALUES = 36
"""Cost of an object that is not a JSON type; half a value more for each of its fields."""
_FEW_BASES = 10
_BASE_VALUES = 2
"""Cost of each further base class of such an object, since lookup searches them all."""
_FOREIGN_SECONDS = 0.002
"""CPU time of this thread for inspecting foreign objects; native code computes their shape and may be slow.

On the clock, a thread that waits for its turn would lose what it copies.
"""
_MAX_DEPTH = 60
_MAX_KEY = 512
_EASY_KEY = 64
"""Length up to which a key's control characters need not be counted."""
_SHORT = 20
_FLAT = 12
"""Keys of a dict that is copied in one step."""
_FLAT_BYTES = 1_000
"""Upper bound on the size of such a dict."""
_MEDIUM = 200
"""Length up to which a text that JSON writes unescaped is copied without a call."""
_LONG = 8_192
_QUOTED = b'"\\\b\t\n\f\r'
_CONTROLS = bytes(code for code in range(32) if code not in b"\b\t\n\f\r")
_MAX_DIGITS_BITS = 4096
_LARGEST, _SMALLEST = (1 << 64) - 1, -(1 << 63)


class PlainCopy:
    """One walk: `copied` returns the copy of a value; `was_cut` is True if something was left out.

    `max_bytes` limits a single text. All texts together, including JSON syntax, may take twice
    that, so that a long text does not crowd out the values after it. Lone surrogates are preserved.
    """

    __slots__ = ("_above", "_bytes", "_longest", "_until", "_values", "was_cut")

    def __init__(self, max_bytes: int) -> None:
        self.was_cut = False
        self._longest = max_bytes
        self._bytes = 2 * max_bytes
        self._values = MAX_VALUES
        self._until = 0.0
        self._above: set[int] = set()

    @property
    def size(self) -> int:
        """The copy's approximate size as JSON, in bytes."""
        return 2 * self._longest - self._bytes

    def copied(self, value: Any) -> Any:
        """Return the value as JSON types."""
        # Exact types only: a subclass may override methods.
        kind = type(value)
        if kind is str:
            return self._text(value)
        self._bytes -= 5
        self._values -= 1
        if kind is dict or kind is list:
            return self._inside(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if _SMALLEST <= value <= _LARGEST:
                return value
            self._values -= 2
            return str(value) if value.bit_length() < _MAX_DIGITS_BITS else "<int>"
        if kind is float:
            if math.isfinite(value):
                return value
            self._values -= 1
            return str(value)
        if issubclass(kind, str):
            return self._text(str.__getitem__(value, slice(max(0, self._bytes) + 1)))
        if issubclass(kind, int):
            return self.copied(int.__int__(value))
        if issubclass(kind, float):
            return self.copied(float.__float__(value))
        return self._inside(value)

    def _inside(self, value: Any) -> Any:
        """Return the copy of a container or object, or its type name where the walk stops."""
        key, above = id(value), self._above
        if key in above:
            return type_name(value)
        room = self._values
        if len(above) >= _MAX_DEPTH or room <= 0 or self._bytes <= 0:
            self.was_cut = True
            return type_name(value)
        self._values = room = room - _CONTAINER_VALUES
        above.add(key)
        kind = type(value)
        if kind is dict:
            copy: Any = self._dict(self._items(value, room), len(value))
        elif kind is list:
            copy = self._list(value[:room] if room > 0 else (), len(value))
        else:
            copy = self._container(value)
        above.discard(key)
        return copy

    @staticmethod
    def _items(value: dict[Any, Any], room: int) -> list[tuple[Any, Any]]:
        """Return the first items of a plain dict."""
        if len(value) <= room:
            try:
                return list(value.items())
            except RuntimeError:  # changed by another thread
                pass
        return listed(lambda: iter(dict.items(value)), max(0, room))

    def _container(self, value: Any) -> Any:
        self._values -= _SUBCLASS_VALUES
        kind, room = type(value), max(0, self._values)
        if issubclass(kind, dict):
            items = listed(lambda: iter(dict.items(value)), room)
            return self._dict(items, dict.__len__(value))
        if issubclass(kind, list):
            return self._list(list.__getitem__(value, slice(room)), list.__len__(value))
        if issubclass(kind, tuple):
            return self._list(tuple.__getitem__(value, slice(room)), tuple.__len__(value))
        for base in (set, frozenset):
            if issubclass(kind, base):
                members = listed(partial(base.__iter__, value), room)
                return self._list(members, base.__len__(value))
        return self._foreign(value)

    def _foreign(self, value: object) -> object:
        now = thread_time()
        self._until = self._until or now + _FOREIGN_SECONDS
        if now > self._until:
            self._values = 0
            self.was_cut = True
            return type_name(value)
        further = base_count(type(value)) - _FEW_BASES
        self._values -= _FOREIGN_VALUES + _BASE_VALUES * max(0, further)
        seen = view(value)
        if type(seen) is dict:
            self._values -= min(len(seen), MAX_FIELDS) // 2
        return self.copied(seen)

    def _dict(self, items: list[tuple[Any, Any]], length: int) -> dict[str, Any]:
        """Copy a dict; the common short texts and small numbers cost no call."""
        kept: dict[str, Any] = {}
        self.was_cut |= length > len(items)
        left, size = self._values, 0
        for key, one in items:
            kind = type(one)
            if (
                type(key) is str
                and len(key) <= _EASY_KEY
                and (
                    (kind is str and len(one) <= _SHORT)
                    or (kind is int and _SMALLEST <= one <= _LARGEST)
                    or (kind is float and one - one == 0)  # neither infinite nor NaN
                    or one is None
                    or kind is bool
                )
            ):
                left -= 1
                size += len(key) + _SHORT
                kept[key] = one
                continue
            self._values, self._bytes = left, self._bytes - size - 4
            if left <= 0 or self._bytes <= 0:
                self.was_cut = True
                return kept
            text = self._key(key)
            kept[text] = self.copied(one)
            left, size = self._values, 0
        self._values, self._bytes = left, self._bytes - size
        return kept

    def _flat(self, value: dict[Any, Any]) -> dict[str, Any] | None:
        """Copy a small dict of short texts and small numbers; return None for any other."""
        count = len(value)
        if count > _FLAT or self._values < count + _FLAT or self._bytes < _FLAT_BYTES:
            return None
        try:
            items = list(value.items())
        except RuntimeError:  # changed by another thread
            return None
        size = 0
        for key, one in items:
            kind = type(one)
            if not (
                type(key) is str
                and len(key) <= _SHORT
                and (
                    (kind is str and len(one) <= _SHORT)
                    or (kind is int and _SMALLEST <= one <= _LARGEST)
                    or (kind is float and one - one == 0)
                    or one is None
                    or kind is bool
                )
            ):
                return None
            size += len(key)
        self._values -= len(items) + 1 + _FLAT_VALUES
        self._bytes -= size + _SHORT * len(items) + 5
        return dict(items)

    def _list(self, items: Any, length: int) -> list[Any]:
        """Copy a list; short texts and small numbers cost no call."""
        kept: list[Any] = []
        left, size, room = self._values, 0, self._bytes
        for one in items:
            kind, cost = type(one), 0
            if kind is str:
                characters = len(one)
                if characters <= _SHORT:
                    cost = _SHORT
                elif (
                    characters <= _MEDIUM
                    and one.isascii()
                    and one.isprintable()
                    and '"' not in one
                    and "\\" not in one
                ):
                    cost = characters + 3
            elif kind is int:
                cost = _SHORT if _SMALLEST <= one <= _LARGEST else 0
            elif kind is float:
                cost = _SHORT if one - one == 0 else 0
            if cost:
                if left <= 0 or size >= room:
                    break
                left -= 1
                size += cost
                kept.append(one)
                continue
            self._values, self._bytes = left, room - size
            size = 0
            if left <= 0 or self._bytes <= 0:
                room = self._bytes
                break
            flat = self._flat(one) if kind is dict else None
            kept.append(self.copied(one) if flat is None else flat)
            left, room = self._values, self._bytes
        self._values, self._bytes = left, room - size
        self.was_cut |= length > len(kept)
        return kept

    def _key(self, key: object) -> str:
        text = key if type(key) is str else self._odd_key(key)
        if len(text) > _MAX_KEY:
            text = cut_text(text[:_MAX_KEY], _MAX_KEY)
        self._values -= _KEY_VALUES + len(text) // _EASY_KEY
        size = len(text) if len(text) <= _SHORT else json_size(text)
        if len(text) > _EASY_KEY and size > 2 * len(text) and text.isascii():
            # Mostly control characters, as in `_text`.
            self.was_cut = True
            self._values -= _ODD_KEY_VALUES
            text = cut_text(text[:_EASY_KEY], _EASY_KEY)
            size = json_size(text)
        self._bytes -= size
        return text

    def _odd_key(self, key: object) -> str:
        """Return a non-text key as the JSON of its copy."""
        self._values -= _ODD_KEY_VALUES
        plain = self.copied(key)
        return plain if type(plain) is str else json.dumps(plain, separators=(",", ":"))

    def _text(self, text: str) -> str:
        self._values -= 1
        size, allowed = len(text), min(self._bytes, self._longest)
        if size > allowed:
            self.was_cut = True
            text = cut_text(text[: max(0, allowed)], max(0, allowed - 4))
            size = len(text)
        if size > _SHORT:
            written = json_size(text)
            if size > _LONG and written > 2 * size and text.isascii():
                # Mostly control characters, six bytes each once escaped: not real text.
                self.was_cut = True
                text = cut_text(text[: size // 8], size // 8)
                written = json_size(text)
            size = written
        self._bytes -= size + 3
        return text


def json_size(text: str) -> int:
    """Return a text's size as JSON in bytes; a quote takes two, an ASCII control character six."""
    if not text.isascii():
        return len(text.encode("utf-8", "surrogatepass"))
    size = len(text)
    if text.isprintable() and '"' not in text and "\\" not in text:
        return size
    written = text.encode()
    controls = size - len(written.translate(None, _CONTROLS))
    quotes = size - len(written.translate(None, _QUOTED))
    return size + quotes + 5 * controls


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
