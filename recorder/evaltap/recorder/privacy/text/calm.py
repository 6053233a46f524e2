"""Prove that a text has nothing that any rule could find, at a fraction of what the rules cost.

Most texts that agents exchange are prose, names and small numbers. In these each word is looked up among
those that are known to be part of no trigger of a rule, which takes a microsecond; what such a text could
hold besides is checked by the rules' own searches. A text that is not calm goes to the rules.
"""

import re
from functools import cache
from itertools import chain
from typing import NamedTuple

from evaltap.recorder.privacy.lexicon import compiled, patterns, rows, words
from evaltap.recorder.privacy.text.name_places import SHORT_STEMS, STEMS, names_before_signs
from evaltap.recorder.privacy.text.phrases import needs_of_phrases
from evaltap.recorder.privacy.text.tables import NUMBER_COLUMNS, may_begin_table

_RE = patterns("calm")

_OTHER_TRIGGERS = ("basic", "bearer", "dot", "ssws", "stdin", "values")
"""Words of rules that read a text without a name: schemes of headers, spelt addresses, SQL."""
_OTHER_SIGNS = ("_at_", "at)", "', '", '", "')
"""Of spelt addresses, and of commands written as a list."""
_OFTEN = ("user",)
"""Words of triggers that are too frequent to exclude all texts with them."""
_RARE = "/:)'\"#_"
_LONGEST = 4_096
"""A longer text would hold the interpreter for too long at once."""
_LONGEST_DOCUMENT = 4 * _LONGEST
_LONG = b"-" * 14
"""A key or an encoded text has so many characters without a space between them."""
_JOINED = bytes(32 if chr(one) in " \n,;!\"'`()#*" else 45 for one in range(256))
_JOINED_IN_DOCUMENT = bytes(32 if chr(one) in ' ,;!"[]{}:' else 45 for one in range(256))
_LETTERS = bytes(one | 32 if chr(one).isalpha() else 32 for one in range(128)) + b" " * 128
_MAX_KNOWN = 16_384
_known: set[int] = set()
"""Keyed hashes of words that are part of no trigger; never the words."""


def is_calm(text: str) -> bool:
    """Return whether nothing in a text can be sensitive."""
    if len(text) > _LONGEST:
        return False
    is_plain = _RE.plain.fullmatch(text) is not None and "- " not in text
    if not is_plain and _RE.characters.fullmatch(text) is None:
        return False
    if _RE.number.search(text) is not None:
        return False
    content = text.encode()
    if len(text) >= len(_LONG) and _LONG in content.translate(_JOINED):
        return False
    return _has_calm_words(content) and (is_plain or _has_no_sign(text))


def calm_keys(content: bytes) -> set[str] | None:
    """Return the keys of a JSON document whose keys and texts are calm each; None if one may not be.

    `content` is compact, as orjson writes it. What its keys say about their values is for the caller to
    check. One look at the whole document is much faster than one at each of its texts.
    """
    if len(content) > _LONGEST_DOCUMENT or not content.isascii():
        return None
    if _LONG in content.translate(_JOINED_IN_DOCUMENT):
        return None
    text = content.decode()
    if _RE.document.fullmatch(text) is None or "- " in text or _RE.number.search(text) is not None:
        return None
    if not _has_calm_words(content):
        return None
    if "_" in text and any(sign in text.lower() for sign in _triggers().signs.get("_", ())):
        return None
    *before, _ = text.split('":')  # no text in it has a colon
    return {one[one.rindex('"') + 1 :] for one in before}


def _has_calm_words(content: bytes) -> bool:
    found = set(content.translate(_LETTERS).split())
    return _known.issuperset(map(hash, found)) or all(map(_is_calm_word, found))


def _has_no_sign(text: str) -> bool:
    """Return whether the signs in a text of calm words are part of no trigger."""
    lower = text.lower()
    for mark, signs in _triggers().signs.items():
        if mark in text and any(sign in lower for sign in signs):
            return False
    if "\n" in text and (may_begin_table(text) or any(one in lower for one in NUMBER_COLUMNS)):
        return False
    if ":" in text or " - " in text:
        patterns_there = (one.search(lower) for one in _triggers().patterns)
        return not names_before_signs(text) and not any(patterns_there)
    return True


def _is_calm_word(word: bytes) -> bool:
    """Return whether a word of letters is part of no trigger, and remember it."""
    text = word.decode()
    triggers = _triggers()
    if text in triggers.commands or text.startswith(SHORT_STEMS) or text.endswith(SHORT_STEMS):
        return False
    if any(stem in text for stem in triggers.stems):
        return False
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known.add(hash(word))
    return True


def _is_foreign(sign: str) -> bool:
    """Return whether a sign has characters that no calm text has."""
    return sign[0] != "~" and _RE.characters.fullmatch(sign) is None


class _Triggers(NamedTuple):
    stems: tuple[str, ...]
    """What no word of a calm text contains."""
    signs: dict[str, list[str]]
    """What no calm text contains, by one of its characters that is rare."""
    patterns: tuple[re.Pattern[str], ...]
    """What no calm text with a colon contains."""
    commands: frozenset[str]
    """Words of the names of commands."""


@cache
def _triggers() -> _Triggers:
    stems = {*STEMS, *_OTHER_TRIGGERS, *words("sentences.login_roots")}
    signs: dict[str, list[str]] = {}
    searched: set[str] = set()
    listed = [*_OTHER_SIGNS]
    for terms in needs_of_phrases():
        # A phrase needs all its terms: it is enough that a calm text has none of the signs of one.
        if any(all(map(_is_foreign, term)) for term in terms):
            continue
        if any(all(any(stem in sign for stem in stems) for sign in term) for term in terms):
            continue
        searched.update(sign[1:] for sign in terms[0] if sign[0] == "~")
        for sign in terms[-1] if terms[0][0][0] != "~" else ():
            longest = max(re.findall("[a-z]*", sign)[::-1], key=len)
            if len(longest) > 2 and longest not in _OFTEN:
                stems.add(longest)
            elif not _is_foreign(sign):
                listed.append(sign)
    for sign in listed:
        signs.setdefault(next(one for one in sign if one in _RARE), []).append(sign)
    commands = (re.findall("[a-z]+", name) for name, *_ in rows("commands"))
    return _Triggers(
        tuple(filter(str.isascii, stems)),
        signs,
        tuple(map(compiled, searched)),
        frozenset(chain.from_iterable(commands)),
    )
