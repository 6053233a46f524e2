"""Classify a value by its name: a secret, a token, a phone number, a card, an id.

One classifier for object keys, variables, headers, columns and words in a sentence. A name is split
into its words (`dbPassword`, `DB_PASSWORD` and `db password` are equal), without accents.
"""

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache

from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.text.names.phrase_words import is_secret_phrase
from evaltap.recorder.privacy.text.names.secret_words import (
    ADDRESSES,
    CARD_WORDS,
    ENDINGS,
    EXACT,
    FOREIGN,
    FOREIGN_RAW,
    FOREIGN_WORDS,
    HARMLESS_BEFORE,
    HARMLESS_KEYS,
    HARMLESS_TOKENS,
    IDENTIFIERS,
    LAST_WORDS,
    NO_PHONE,
    PASSWORDS,
    PASSWORDS_OF,
    PHONE_ENDINGS,
    PHONE_EXACT,
    PHONE_RAW,
    PHONE_WORDS,
    REFERRING,
    SECRET_CODES,
    SECRET_KEYS,
    SECRET_PAIRS,
    SECRET_TOKENS,
)
from evaltap.recorder.privacy.text.normalization import folded, listed


class Name(Enum):
    """What a name implies about its value."""

    SECRET = "a secret, whatever it looks like"
    TOKEN = "a token or a word: the value decides"
    PHONE = "a phone number, where it is a number"
    CARD = "a payment card, where it is a number"
    IDENTIFIER = "an id, a hash or a time: digits mean nothing else"
    PLAIN = "nothing"


_WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+[a-z]*|[^\W\da-zA-Z_]+")
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
    while len(words) > 1 and words[-1].isdigit() and words[-2] != "pin":
        del words[-1]  # `secret_1`
    plain = "".join(words)
    if _is_secret(name, words, plain):
        return Name.SECRET
    if _may_be_token(name, words, plain):
        return Name.TOKEN
    last = words[-1]
    if last in NO_PHONE:
        return Name.IDENTIFIER if last in IDENTIFIERS else Name.PLAIN
    is_phone = plain in PHONE_EXACT or plain in PHONE_WORDS or plain.endswith(PHONE_ENDINGS)
    if not name.isascii() and any(one in name.lower().replace("_", " ") for one in PHONE_RAW):
        return Name.PHONE
    if is_phone or not PHONE_WORDS.isdisjoint(words):
        return Name.PHONE
    if not CARD_WORDS.isdisjoint(words):
        return Name.CARD
    is_id = last in IDENTIFIERS or last.rstrip("0123456789") in IDENTIFIERS
    if is_id:
        return Name.IDENTIFIER
    aside = _ASIDE.search(name)
    return _kind(name[: aside.start()]) if aside is not None else Name.PLAIN


_PSEUDONYM = re.compile(rf"{PSEUDONYM.pattern}|<[a-z_]{{0,20}}(?::[0-9a-f]{{0,12}})?\Z")
"""Also one whose end was cut off.  A text that was redacted before is no name."""
_ASIDE = re.compile(r"[ ]?[(\[][^()\[\]]{1,40}[)\]]\Z")
"""What is behind a name in brackets: `API Key (live)`."""


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without accents."""
    return [_unnumbered(word.lower()) for word in _WORDS.findall(folded(name))]


def _unnumbered(word: str) -> str:
    return word.rstrip("0123456789") or word


def _is_secret(name: str, words: list[str], plain: str) -> bool:
    last = words[-1]
    if last in ("secret", "secrets") and len(words) > 1 and words[-2] in REFERRING:
        return False
    if plain in EXACT or plain.endswith(ENDINGS) or plain.removesuffix("s").endswith(ENDINGS):
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[0] in PASSWORDS and before and PASSWORDS_OF.issuperset(words[1:]):
        return True
    if last in LAST_WORDS:
        return before not in HARMLESS_BEFORE.get(last, ())
    if before and _is_secret_pair(words, before, last):
        return True
    if _KEYWORD.search(plain) is not None or last in _ABOUT:
        return False
    if not FOREIGN_WORDS.isdisjoint(words) or any(one in plain for one in _FOREIGN_ASCII):
        return True
    if len(words) <= _MOST_WORDS and last not in NO_PHONE and is_secret_phrase(words):
        return True
    joined = _SEPARATOR.sub("", name).lower()
    return not name.isascii() and (
        any(one in plain for one in _FOREIGN_OTHER) or any(one in joined for one in _FOREIGN_JOINED)
    )


_MOST_WORDS = 8


_ABOUT = frozenset(
    listed("""
manager policy richtlinie length lange laenge hint hinweis reset rules regels regeln vergeten vergessen oublie olvidada dimenticata esquecida requisitos requisiti anforderungen longueur longitud lunghezza lengte dlugosc длина
""")
)
"""What ends a name that is about a password in another language, but is none."""
_KEYWORD = re.compile(r"palabras?claves?$|palavras?chaves?$|parol[ae]chiave$")
_FOREIGN_ASCII = tuple(one for one in FOREIGN if one.isascii())
_SEPARATOR = re.compile(r"[\s_.-]+")
_FOREIGN_JOINED = tuple(one.replace(" ", "") for one in FOREIGN_RAW)
_FOREIGN_OTHER = tuple(folded(one) for one in FOREIGN if not one.isascii())


def _is_secret_pair(words: list[str], before: str, last: str) -> bool:
    singular = last.removesuffix("s")
    if singular == "key":
        return before in SECRET_KEYS or (before == "id" and "access" in words)
    if singular == "token":
        return before in SECRET_TOKENS and (
            singular == last or before in ("api", "access", "refresh")
        )
    if singular == "code":
        return before in SECRET_CODES
    if last in ("url", "uri") and before in ADDRESSES:
        return True
    return f"{before}{last}" in SECRET_PAIRS


def _may_be_token(name: str, words: list[str], plain: str) -> bool:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return bool(before) and before not in HARMLESS_KEYS
    if last == "token" or plain.endswith(_TOKEN_ENDINGS) or "токен" in words:
        return before not in HARMLESS_TOKENS
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
    return _KEYWORD.search(folded(name).lower()) is not None


_TALK = re.compile(r"[^\W\d_]+(?:['’ .,:;!?()-]{1,3}[^\W\d_]+)*[.!?:)]{0,2}")
_LONGEST_TALK = 200


def is_about_secret(value: str) -> bool:
    """Return whether a text speaks of a secret, or names one: `Reset password`, `忘记密码?`, `Passwort`."""
    if len(value) > _LONGEST_TALK or _TALK.fullmatch(value) is None:
        return False
    if not any(map(str.isspace, value)) and value.upper() != value.lower() and not value.istitle():
        return False  # one word in lower or mixed case may be a password: `geheim`, `MySecret`
    words = words_of(value)
    plain, joined = "".join(words), _SEPARATOR.sub("", value).lower()
    return (
        any(word in EXACT or word.removesuffix("s") in EXACT for word in words)
        or not FOREIGN_WORDS.isdisjoint(words)
        or any(one in plain for one in (*_FOREIGN_ASCII, *_FOREIGN_OTHER))
        or any(one in joined for one in _FOREIGN_JOINED)
    )


_POSTCODE = re.compile(r"[1-8]\d{2} ?\d{3}")
_ADDRESS = frozenset(
    listed("""
address city country district locality state street road nagar colony taluk tehsil village india delhi mumbai bengaluru
bangalore chennai hyderabad kolkata pune maharashtra karnataka gujarat kerala rajasthan punjab
""")
)


def is_postcode(name: str, value: object, beside: Iterable[str] = ()) -> bool:
    """Return whether a value is an Indian postcode: a `pincode`, or a `pin_code` in an address.

    `beside` are the keys or the words (in lower case) around the name.
    """
    if "".join(words_of(name)) != "pincode" or not _POSTCODE.fullmatch(str(value)):
        return False
    return name.lower() == "pincode" or not _ADDRESS.isdisjoint(beside)


def is_address(name: str) -> bool:
    """Return whether a name is that of a connection URL, which need not hold a password."""
    return words_of(name)[-1:] in (["url"], ["uri"], ["dsn"])
