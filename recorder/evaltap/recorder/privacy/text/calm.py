"""Find the words that trigger rules; prove that a text has nothing that any rule could find.

Most texts that agents exchange are prose, names and small numbers. In these each word is looked up among
those that are known to be part of no trigger of a rule, which takes a microsecond; what such a text could
hold besides is checked by the rules' own searches. A text that is not calm goes to the rules, and a rule
runs only if the text has one of the rule's triggers.
"""

import re
from functools import cache
from typing import NamedTuple

from evaltap.recorder.privacy.lexicon import compiled, patterns
from evaltap.recorder.privacy.text.commands import A_COMMAND, WORDS, has_command
from evaltap.recorder.privacy.text.name_places import SHORT_STEMS, STEMS, names_before_signs
from evaltap.recorder.privacy.text.phrases import needs_of_phrases, words_needed
from evaltap.recorder.privacy.text.sentences import A_LOGIN, begins_login
from evaltap.recorder.privacy.text.tables import NUMBER_COLUMNS, may_begin_table

_RE = patterns("calm")

_OTHER_TRIGGERS = ("basic", "bearer", "dot", "ssws", "stdin", "values")
"""Words of rules that read a text without a name: schemes of headers, spelt addresses, SQL."""
_OTHER_SIGNS = ("_at_", "at)", "', '", '", "')
"""Of spelt addresses, and of commands written as a list."""
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
_known: dict[int, frozenset[str]] = {}
"""The triggers in words, by keyed hashes of these; never the words."""
_harmless: set[int] = set()
"""Keyed hashes of words without a trigger."""


def is_calm(text: str) -> bool:
    """Return whether nothing in a text can be sensitive."""
    return looked_at(text)[0]


def looked_at(text: str) -> tuple[bool, set[str] | None]:
    """Return whether a text is calm, and the triggers in its words if they were looked for."""
    if len(text) > _LONGEST:
        return False, None
    is_plain = _RE.plain.fullmatch(text) is not None and "- " not in text
    if not is_plain and _RE.characters.fullmatch(text) is None:
        return False, None
    content = text.encode()
    if len(text) >= len(_LONG) and _LONG in content.translate(_JOINED):
        return False, None
    # Of words without a sign, only a private key's first line tells of what follows in a list.
    if is_plain and "--" not in text and not has_sign(text):
        return True, None
    triggers = triggers_in(content)
    is_calm = not triggers and _RE.number.search(text) is None
    return is_calm and (is_plain or _has_no_sign(text)), triggers


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
    if (triggers := triggers_in(content)) and (
        "dot" in triggers or triggers_in(_RE.tells_nothing.sub("", text).encode())
    ):
        return None
    if "_" in text and any(sign in text.lower() for sign in _triggers().signs.get("_", ())):
        return None
    return set(_RE.key.findall(text))  # no text in it has a colon


def has_sign(text: str) -> bool:
    """Return whether a text has a sign without which only a long word or a table's cell can be sensitive."""
    return _RE.signs.search(text) is not None


def triggers_in(content: bytes) -> set[str]:
    """Return what is in the words of a text that triggers a rule; `content` is the text in UTF-8."""
    letters = content.translate(_LETTERS)
    if len(content) > _LONGEST_DOCUMENT:  # of words that are not known
        text = letters.decode()
        found = {one for one in (*_triggers().stems, *SHORT_STEMS) if one in text}
        found |= {A_LOGIN, A_COMMAND}
    else:
        found = set()
        words = set(letters.split())
        if not _harmless.issuperset(map(hash, words)):
            for word in words:
                if (key := hash(word)) not in _harmless:
                    found.update(_known.get(key) or _in_word(word))
    if A_COMMAND in found and not has_command(content):
        found.remove(A_COMMAND)
    return found


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


def _in_word(word: bytes) -> frozenset[str]:
    """Return the triggers in a word of letters, and remember them."""
    text = word.decode()
    found = {stem for stem in _triggers().stems if stem in text}
    found.update(one for one in SHORT_STEMS if text.startswith(one) or text.endswith(one))
    if begins_login(text):
        found.add(A_LOGIN)
    if text in WORDS:
        found.add(A_COMMAND)
    if len(_known) + len(_harmless) >= _MAX_KNOWN:
        _known.clear()
        _harmless.clear()
    if found:
        _known[hash(word)] = frozenset(found)
    else:
        _harmless.add(hash(word))
    return frozenset(found)


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


@cache
def _triggers() -> _Triggers:
    stems = {*STEMS, *_OTHER_TRIGGERS}
    signs: dict[str, list[str]] = {}
    searched: set[str] = set()
    listed = [*_OTHER_SIGNS]
    for terms in needs_of_phrases():
        # A phrase needs all its terms: it is enough that a calm text has none of the signs of one.
        if needed := words_needed(terms):
            stems.update(needed)
        elif not any(all(map(_is_foreign, term)) for term in terms):
            searched.update(sign[1:] for sign in terms[0] if sign[0] == "~")
            listed += (sign for sign in terms[-1] if sign[0] != "~" and not _is_foreign(sign))
    for sign in listed:
        signs.setdefault(next(one for one in sign if one in _RARE), []).append(sign)
    return _Triggers(tuple(filter(str.isascii, stems)), signs, tuple(map(compiled, searched)))
