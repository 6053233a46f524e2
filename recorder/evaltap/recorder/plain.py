"""A bounded copy of any value in plain JSON types: all recorded content goes through it.

The walk visits a limited number of values, copies no text beyond its limit, does not follow cycles,
and runs no foreign code (see `foreign`). It lists a container in a single C-level step before
visiting the items, so other threads may change it meanwhile. A shared value is copied at each
occurrence and counts each time.
"""

import json
import math
from functools import partial
from time import perf_counter
from typing import Any

from evaltap.recorder.foreign import MAX_FIELDS, base_count, listed, type_name, view
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
"""Time limit for inspecting foreign objects; native code computes their shape and may be slow."""
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
            return _large(value)
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
        now = perf_counter()
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


def _large(value: int) -> str:
    return str(value) if value.bit_length() < _MAX_DIGITS_BITS else "<int>"
