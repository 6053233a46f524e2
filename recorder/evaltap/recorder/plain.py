"""A bounded copy of any value, in plain JSON types: the one way in for content that is recorded.

The walk looks at no more values than it may, copies no text beyond its limit, goes into nothing that it is
inside of, and runs nobody's code (see `foreign`).  A container is listed in one step of C code before any of
it is looked at, so other threads may change it meanwhile.  What is shared is copied where it is met, and
counts each time.
"""

import json
import math
from functools import partial
from time import perf_counter
from typing import Any

from evaltap.recorder.foreign import listed, type_name, view
from evaltap.schemas.text import cut_text

MAX_VALUES = 1_300
"""Values in one value: what the agent's thread copies in some 0.3 ms."""
_CONTAINER_VALUES = 2
"""What a list, a dict or an odd key counts for besides what is in it."""
_FOREIGN_VALUES = 25
"""What an object counts for that is no JSON type."""
_FOREIGN_SECONDS = 0.002
"""How long objects of others are looked into; native code is asked their shape, and may be slow."""
_MAX_DEPTH = 60
_MAX_KEY = 512
_SHORT = 20
_MAX_DIGITS_BITS = 4096
_LARGEST, _SMALLEST = (1 << 64) - 1, -(1 << 63)


class PlainCopy:
    """One walk: `copied` returns the copy of a value, `was_cut` says whether something was left out.

    `max_bytes` bounds one text.  All of them, with what JSON writes around them, may have twice as much, so
    that a long one does not cost what comes behind it.  Half surrogates are kept.
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
        """About how many bytes the copy has as JSON."""
        return 2 * self._longest - self._bytes

    def copied(self, value: Any) -> Any:
        """Return the value as JSON types."""
        # Exact types only: a subclass may bring code of its own.
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
            return value if _SMALLEST <= value <= _LARGEST else _large(value)
        if kind is float:
            return value if math.isfinite(value) else str(value)
        if issubclass(kind, str):
            return self._text(str.__getitem__(value, slice(max(0, self._bytes) + 1)))
        if issubclass(kind, int):
            return self.copied(int.__int__(value))
        if issubclass(kind, float):
            return self.copied(float.__float__(value))
        return self._inside(value)

    def _inside(self, value: Any) -> Any:
        """Return the copy of a container or an object, its name where the walk ends."""
        key = id(value)
        if key in self._above:
            return type_name(value)
        if len(self._above) >= _MAX_DEPTH or self._values <= 0 or self._bytes <= 0:
            self.was_cut = True
            return type_name(value)
        self._values -= _CONTAINER_VALUES
        self._above.add(key)
        copy = self._container(value)
        self._above.discard(key)
        return copy

    def _container(self, value: Any) -> Any:
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

    def _foreign(self, value: Any) -> Any:
        now = perf_counter()
        self._until = self._until or now + _FOREIGN_SECONDS
        if now > self._until:
            self.was_cut = True
            return type_name(value)
        self._values -= _FOREIGN_VALUES
        return self.copied(view(value))

    def _dict(self, items: list[tuple[Any, Any]], length: int) -> dict[str, Any]:
        """Return the copy of a dict; what most hold, short texts and small numbers, costs no call."""
        kept: dict[str, Any] = {}
        self.was_cut |= length > len(items)
        left, size = self._values, 0
        for key, one in items:
            kind = type(one)
            if (
                type(key) is str
                and len(key) <= _MAX_KEY
                and (
                    (kind is str and len(one) <= _SHORT)
                    or (kind is int and _SMALLEST <= one <= _LARGEST)
                    or (kind is float and one - one == 0)  # neither infinite nor NaN
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

    def _list(self, items: Any, length: int) -> list[Any]:
        kept: list[Any] = []
        for one in items:
            if self._values <= 0 or self._bytes <= 0:
                break
            kept.append(self.copied(one))
        self.was_cut |= length > len(kept)
        return kept

    def _key(self, key: object) -> str:
        self._values -= _CONTAINER_VALUES
        plain = key if type(key) is str else self.copied(key)
        text = plain if type(plain) is str else json.dumps(plain, separators=(",", ":"))
        self._bytes -= min(len(text), _MAX_KEY)
        return text if len(text) <= _MAX_KEY else cut_text(text[:_MAX_KEY], _MAX_KEY)

    def _text(self, text: str) -> str:
        self._values -= 1
        size, allowed = len(text), min(self._bytes, self._longest)
        if size > allowed:
            self.was_cut = True
            text = cut_text(text[: max(0, allowed)], max(0, allowed - 4))
            size = len(text)
        if not text.isascii():
            size = len(text.encode("utf-8", "surrogatepass"))
        self._bytes -= size + 3
        return text


def _large(value: int) -> str:
    return str(value) if value.bit_length() < _MAX_DIGITS_BITS else "<int>"
