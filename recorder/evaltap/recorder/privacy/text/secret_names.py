"""Classify a value by its name: a secret, a token, a phone number, a card, an id.

One classifier for object keys, variables, headers, columns and words in a sentence. A name is split
into its words (`dbPassword`, `DB_PASSWORD` and `db password` are equal), without accents.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.lexicon import any_of, compiled, lists, patterns, words
from evaltap.recorder.privacy.text.normalization import folded

_RE = patterns("names")
_WORDS = lists("names")

_ENDINGS = words("names.endings")
EXACT = frozenset(words("names.exact"))
_FOREIGN = words("names.foreign")
_HARMLESS_BEFORE = {
    one: frozenset(words(f"names.harmless_before_{one}"))
    for one in ("pass", "pin", "cookie", "cookies", "tan")
}
_PHONE_ENDINGS = words("names.phone_endings")
_PHONE_JOINED = words("names.phone_joined")

_PHRASES = (
    *(
        (frozenset(words(f"names.head_{one}")), _WORDS.with_all.union(words(f"names.with_{one}")))
        for one in ("keys", "codes", "tokens", "phrases")
    ),
    (frozenset(words("names.head_words")), frozenset(words("names.with_words"))),
)
"""Heads (words for key, code or token), and the modifiers that make a secret of them (secret, access, ...):
`chiave segreta`, `code d'accès`, in either order, with particles in between, or both in one word. The lists
are in lower case, without accents and the Arabic article; English names have rules of their own."""
HEADS = frozenset[str]().union(*(heads for heads, _ in _PHRASES))
MODIFIERS = frozenset[str]().union(*(modifiers for _, modifiers in _PHRASES))
NO_SECRETS = frozenset(words("names.no_secrets"))
"""What a word for key or code that is a secret alone means with one of these is none."""
_JOINED_HEADS = words("names.joined_heads")
_JOINED_MODIFIERS = tuple(
    one for one in MODIFIERS if one.isascii() and len(one) > 4 and one not in _WORDS.english
)


class Name(Enum):
    """What a name implies about its value."""

    SECRET = "a secret, whatever it looks like"
    TOKEN = "a token or a word: the value decides"
    PHONE = "a phone number, where it is a number"
    CARD = "a payment card, where it is a number"
    IDENTIFIER = "an id, a hash or a time: digits mean nothing else"
    PLAIN = "nothing"


_LONGEST = 128
_LONGEST_REMEMBERED = 64


def kind_of_name(name: str) -> Name:
    """Classify a name."""
    # Cached, since names recur; long texts used as keys do not.
    return _remembered(name) if len(name) <= _LONGEST_REMEMBERED else _kind(name[-_LONGEST:])


@lru_cache(maxsize=8192)
def _remembered(name: str) -> Name:
    return _kind(name)


def _kind(name: str) -> Name:
    words = words_of(name)
    if not words or ("<" in name and _PSEUDONYM.search(name) is not None):
        return Name.PLAIN
    _drop_number(words)
    plain = "".join(words)
    if _is_secret(name, words, plain):
        return Name.SECRET
    if _may_be_token(name, words, plain):
        return Name.TOKEN
    last = words[-1]
    if last in _WORDS.no_phone:
        return Name.IDENTIFIER if last in _WORDS.identifiers else Name.PLAIN
    if _is_phone(name, words, plain):
        return Name.PHONE
    if not _WORDS.card_words.isdisjoint(words):
        return Name.CARD
    if last in _WORDS.identifiers or last.rstrip("0123456789") in _WORDS.identifiers:
        return Name.IDENTIFIER
    aside = _RE.aside.search(name)
    return _kind(name[: aside.start()]) if aside is not None else Name.PLAIN


_PSEUDONYM = re.compile(rf"{PSEUDONYM.pattern}|<[a-z_]{{0,20}}(?::[0-9a-f]{{0,12}})?\Z")
"""Also one whose end was cut off.  A text that was redacted before is no name."""


def _drop_number(words: list[str]) -> None:
    while len(words) > 1 and words[-1].isdigit() and words[-2] != "pin":
        del words[-1]  # `secret_1`


def _is_phone(name: str, words: list[str], plain: str) -> bool:
    if not name.isascii() and any(one in _joined(name) for one in _PHONE_JOINED):
        return True
    if plain in _WORDS.phone_exact or plain in _WORDS.phone_words:
        return True
    return plain.endswith(_PHONE_ENDINGS) or not _WORDS.phone_words.isdisjoint(words)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without accents."""
    found = [word.lower() for word in _RE.words.findall(folded(name))]
    return [word.rstrip("0123456789") or word for word in found]


def _is_secret(name: str, words: list[str], plain: str) -> bool:
    last = words[-1]
    if last in ("secret", "secrets") and len(words) > 1 and words[-2] in _WORDS.referring:
        return False
    if plain in EXACT or plain.endswith(_ENDINGS) or plain.removesuffix("s").endswith(_ENDINGS):
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[0] in _WORDS.passwords and before and _WORDS.passwords_of.issuperset(words[1:]):
        return True
    if last in _WORDS.last_words:
        return before not in _HARMLESS_BEFORE.get(last, ())
    if before and _is_secret_pair(words, before, last):
        return True
    if _RE.keyword.search(plain) is not None or last in _WORDS.about:
        return False
    if len(words) <= _MOST_WORDS and last not in _WORDS.no_phone and _is_secret_phrase(words):
        return True
    return _is_foreign_secret(name, words, plain)


def _is_foreign_secret(name: str, words: list[str], plain: str) -> bool:
    if not _WORDS.foreign_words.isdisjoint(words) or compiled(_FOREIGN_PART).search(plain):
        return True
    if name.isascii():
        return False
    joined = _joined(name)
    return any(one in plain for one in _FOREIGN_OTHER) or any(
        one in joined for one in _FOREIGN_JOINED
    )


def _is_secret_phrase(words: Sequence[str]) -> bool:
    """Return whether words (lower case, no accents) contain a head with its modifier."""
    words = [bare(one) for one in words]
    if any(map(_is_joined, words)):
        return True
    if HEADS.isdisjoint(words) or MODIFIERS.isdisjoint(words):
        return False
    near = [(at, one) for at, one in enumerate(words) if one not in _WORDS.particles]
    return any(
        (_belong(one, other) or _belong(other, one))
        and (later - at > 1 or one not in _WORDS.english or other not in _WORDS.english)
        for (at, one), (later, other) in pairwise(near)
    )


def bare(word: str) -> str:
    """Return a word without the Arabic or Hebrew article."""
    if word[:2] == "ال":
        return word[2:]
    return word[1:] if word[:1] == "ה" else word


def _belong(head: str, modifier: str) -> bool:
    return any(head in heads and modifier in modifiers for heads, modifiers in _PHRASES)


def _is_joined(word: str) -> bool:
    return word.endswith(_JOINED_HEADS) and word.startswith(_JOINED_MODIFIERS)


_MOST_WORDS = 8
_FOREIGN_ASCII = tuple(one for one in _FOREIGN if one.isascii())
_FOREIGN_PART = any_of(_FOREIGN_ASCII)
_FOREIGN_JOINED = words("names.foreign_joined")
_FOREIGN_OTHER = tuple(folded(one) for one in _FOREIGN if not one.isascii())


def _joined(name: str) -> str:
    return _RE.separator.sub("", name).lower()


def _is_secret_pair(words: list[str], before: str, last: str) -> bool:
    singular = last.removesuffix("s")
    if singular == "key":
        return before in _WORDS.secret_keys or (before == "id" and "access" in words)
    if singular == "token":
        return before in _WORDS.secret_tokens and (
            singular == last or before in ("api", "access", "refresh")
        )
    if singular == "code":
        return before in _WORDS.secret_codes
    if last in ("url", "uri") and before in _WORDS.addresses:
        return True
    return f"{before}{last}" in _WORDS.secret_pairs


def _may_be_token(name: str, words: list[str], plain: str) -> bool:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return bool(before) and before not in _WORDS.harmless_keys
    if last == "token" or plain.endswith(_TOKEN_ENDINGS) or "токен" in words:
        return before not in _WORDS.harmless_tokens
    if plain.endswith("sonarlogin") or (
        last == "auth" and (words[0] == "x" or before in ("registry", "docker", "proxy", "http"))
    ):
        return True
    return (
        plain in ("auth", "sid", "signature", "sig", "appid", "secretid")
        or name.lower() == "sessionid"
    )


_TOKEN_ENDINGS = ("token", "tokenu", "tokeni", "токен", "トークン", "토큰", "jeton", "رمز")


def is_word_for_keyword(name: str) -> bool:
    """Return whether a name is a language's word for keyword, which contains its word for key."""
    return _RE.keyword.search(folded(name).lower()) is not None


_LONGEST_TALK = 200


def is_about_secret(value: str) -> bool:
    """Return whether a text speaks of a secret, or names one: `Reset password`, `忘记密码?`, `Passwort`."""
    if len(value) > _LONGEST_TALK or _RE.talk.fullmatch(value) is None:
        return False
    if not any(map(str.isspace, value)) and value.upper() != value.lower() and not value.istitle():
        return False  # one word in lower or mixed case may be a password: `geheim`, `MySecret`
    words = words_of(value)
    plain, joined = "".join(words), _joined(value)
    return (
        any(word in EXACT or word.removesuffix("s") in EXACT for word in words)
        or not _WORDS.foreign_words.isdisjoint(words)
        or any(one in plain for one in (*_FOREIGN_ASCII, *_FOREIGN_OTHER))
        or any(one in joined for one in _FOREIGN_JOINED)
    )


def is_postcode(name: str, value: object, beside: Iterable[str] = ()) -> bool:
    """Return whether a value is an Indian postcode: a `pincode`, or a `pin_code` in an address.

    `beside` are the keys or the words (in lower case) around the name.
    """
    if "".join(words_of(name)) != "pincode" or not _RE.postcode.fullmatch(str(value)):
        return False
    return name.lower() == "pincode" or not _WORDS.address.isdisjoint(beside)


def is_address(name: str) -> bool:
    """Return whether a name is that of a connection URL, which need not hold a password."""
    return words_of(name)[-1:] in (["url"], ["uri"], ["dsn"])
