"""Words that name a secret only together: `chiave segreta`, `code d'accès`, `åtkomstnyckel`.

A phrase has a head (a word for key, code or token) and a modifier (secret, access, security, ...), in
either order, with particles in between, or both in one word. The lists are in lower case, without
accents and without the Arabic article. English names have rules of their own in `secret_names`.
"""

from collections.abc import Sequence
from itertools import pairwise

from evaltap.recorder.privacy.lexicon import words

_KEYS = frozenset(words("compounds.keys"))
_CODES = frozenset(words("compounds.codes"))
_TOKENS = frozenset(words("compounds.tokens"))
_PHRASES = frozenset(words("compounds.phrases"))
_WORDS = frozenset(["كلمة", "كلمه"])
HEADS = _KEYS | _CODES | _TOKENS | _PHRASES | _WORDS

_FOR_ALL = frozenset(words("compounds.for_all"))
_FOR_KEYS = _FOR_ALL | frozenset(words("compounds.for_keys"))
_FOR_TOKENS = _FOR_ALL | frozenset(words("compounds.for_tokens"))
_FOR_CODES = _FOR_ALL | frozenset(words("compounds.for_codes"))
_FOR_PHRASES = _FOR_ALL | frozenset(words("compounds.for_phrases"))
_FOR_WORDS = frozenset(["مرور", "سر", "دخول"])
MODIFIERS = _FOR_KEYS | _FOR_TOKENS | _FOR_CODES | _FOR_PHRASES | _FOR_WORDS
NO_SECRETS = frozenset(words("compounds.no_secrets"))
"""What a word for key or code that is a secret alone means with one of these is none."""
_PAIRS = (
    (_KEYS, _FOR_KEYS), (_CODES, _FOR_CODES), (_TOKENS, _FOR_TOKENS), (_PHRASES, _FOR_PHRASES),
    (_WORDS, _FOR_WORDS),
)  # fmt: skip
_PARTICLES = frozenset(words("compounds.particles"))
_ENGLISH = frozenset(words("compounds.english"))
"""Also English: next to each other they are left to the rules for English names."""
_JOINED_HEADS = tuple(words("compounds.joined_heads"))
_JOINED_MODIFIERS = (
    "losen",
    *(one for one in sorted(MODIFIERS) if one.isascii() and len(one) > 4 and one not in _ENGLISH),
)


def is_secret_phrase(words: Sequence[str]) -> bool:
    """Return whether words (lower case, no accents) contain a head with its modifier."""
    words = [bare(one) for one in words]
    if any(map(_is_joined, words)):
        return True
    near = [(at, one) for at, one in enumerate(words) if one not in _PARTICLES]
    return any(
        (_belong(one, other) or _belong(other, one))
        and (later - at > 1 or one not in _ENGLISH or other not in _ENGLISH)
        for (at, one), (later, other) in pairwise(near)
    )


def bare(word: str) -> str:
    """Return a word without the Arabic or Hebrew article."""
    if word[:2] == "ال":
        return word[2:]
    return word[1:] if word[:1] == "ה" else word


def _belong(head: str, modifier: str) -> bool:
    return any(head in heads and modifier in modifiers for heads, modifiers in _PAIRS)


def _is_joined(word: str) -> bool:
    return word.endswith(_JOINED_HEADS) and word.startswith(_JOINED_MODIFIERS)
