"""Detect whether a text names a person, in any spelling of their id."""

import json
import re
import unicodedata
from collections.abc import Collection
from typing import Final
from urllib.parse import quote, unquote

_LEVELS: Final = 3
"""How many levels of JSON within JSON are decoded."""
_ESCAPE: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PLAIN: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def spellings(name: str) -> frozenset[str]:
    """Return an id in the forms that systems use without changing its meaning."""
    forms = {name, name.strip()}
    return frozenset(
        form
        for one in forms
        for form in (one, unicodedata.normalize("NFC", one), unicodedata.normalize("NFD", one))
        if form
    )


def _written_forms(name: str) -> frozenset[str]:
    """Return the possible forms of a name in stored text, in lower case: plain, in JSON, in a URL."""
    found = {form for one in spellings(name) for form in (one, quote(one), quote(one, safe=""))}
    layer = set(found)
    for _ in range(_LEVELS):
        layer = {json.dumps(one, ensure_ascii=a)[1:-1] for one in layer for a in (True, False)}
        found |= layer
    return frozenset(form.lower() for form in found)


def mention_pattern(names: Collection[str]) -> str:
    """Return the regular expression, in DuckDB's syntax, that finds the names in stored text."""
    forms = sorted({form for name in names for form in _written_forms(name)})
    return "(?i)" + "|".join(re.escape(form) + _end_of(form) for form in forms)


def mentions(text: bytes, names: Collection[str]) -> bool:
    """Return whether a text contains one of the names, in any case, escaped or percent-encoded.

    A name that continues is another name: `user-170` does not mention `user-17`.
    """
    wanted = [
        re.compile(re.escape(unicodedata.normalize("NFC", name).casefold()) + _end_of(name))
        for name in names
    ]
    said = text.decode("utf-8", "replace")
    for _ in range(_LEVELS + 1):
        folded = unicodedata.normalize("NFC", said).casefold()
        if any(name.search(folded) or name.search(unquote(folded)) for name in wanted):
            return True
        plain = _unescaped(said)
        if plain == said:
            return False
        said = plain
    return False


def _end_of(name: str) -> str:
    """Return the pattern for the end of a name; only ASCII, since not all scripts separate words."""
    return "(?:[^0-9a-z]|$)" if name[-1:].isascii() and name[-1:].isalnum() else ""


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2])

    # Half of a surrogate pair is only a character together with its other half.
    return (
        _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
