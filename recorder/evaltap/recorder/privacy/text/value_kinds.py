"""Classify a value by its form: opaque, a token, a likely password."""

import re

from evaltap.recorder.privacy.text.stand_ins import is_code, is_placeholder

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_opaque(value: object) -> bool:
    """Return whether a value looks machine-generated: long, no spaces, and not a plain word."""
    if not isinstance(value, str) or len(value) < 12 or len(value.split(maxsplit=1)) != 1:
        return False
    looks_random = (
        len(value) > 256
        or any(map(str.isdigit, value))
        or value.endswith("=")
        or (len(value) >= 20 and not value.isalpha() and value.lower() != value)
        or (len(value) >= 16 and value.isalnum() and value[1:].lower() != value[1:])
        or (len(value) >= 21 and value.isalnum())
    )
    return looks_random and _READABLE.match(value) is None


def is_token(value: object) -> bool:
    """Return whether the value of a token field is a token, not a word, count or setting."""
    if not isinstance(value, str) or len(value) < 6 or any(map(str.isspace, value)):
        return False
    digits = sum(map(str.isdigit, value))
    looks_random = digits == len(value) or (len(value) >= 8 and digits > 0)
    return is_opaque(value) or (looks_random and _READABLE.match(value) is None)


_READABLE = re.compile(
    # a key of a cache, `user:42:profile`; a secret's place in a store, `prod/payments/stripe-v2`
    r"(?:[a-z_]{2,20}(?::(?:[a-z_]{1,20}|\d{1,10}))+"
    r"|/?[a-z]{2,20}\d{0,2}(?:[:._-][a-z]{1,20}\d{0,2})*(?:/[a-z]{1,20}\d{0,2}(?:[._-](?:[a-z]{1,20}\d{0,2}|\d{1,3}))*)+"
    # a class, `AccessTokenClaims`; a page; a date
    r"|(?:[A-Z]{1,4}[a-z]{2,14}){2,8}|https?://[\w.:-]{1,100}(?:/[\w.-]{0,40}){0,8}"
    r"|20\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d[\w:.+-]*)?)\Z"
)
"""What is no token although it is long or has digits."""
_NO_PASSWORD = re.compile(
    r"(?i)v?\d+(?:\.\d+)+[\w.-]*|(?:sha\d{1,3}|md5):.*|[\d.,]+[a-z%°µ€$£/]{1,4}|[€$£#]?[\d.,:/-]+%?|\d{4}-\d\d-\d\dT.*"
    r"|[\w.-]+\.[a-z]{2,4}|(?:https?:)?/.*|[\w.+-]+@[\w-]+\.[\w.-]+|[a-z]+://.*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Z]{1,4}-\d+"
    r"|(?:19|20)\d\d[a-z]\d{0,2}|(?:us|eu|ap|sa|ca|me|af|il|cn|europe|asia|australia)-(?:gov-)?[a-z]{4,13}-?\d{1,2}"
)
_MEASURE = re.compile(
    r"(?i)[v^~]?\d{1,6}(?:[.,]\d{1,6})++[a-z%µ]{0,3}|\d{1,6}(?:ms|[µun]s|s|m|h|d|%|x|[kmgt]i?b?|px)"
    r"|(?:amd|arm|x|i)\d{2,3}(?:_\d\d)?(?:v\d)?|https?/\d(?:\.\d)?|(?:u?int|float)\d{1,2}|x86_64|aarch64|s390x|ppc64le"
)


def is_measure(value: str) -> bool:
    """Return whether a word is a version, a time, a share or a processor: `0.04s`, `amd64`."""
    return _MEASURE.fullmatch(value) is not None


_QUANTITY = re.compile(r"\d{1,4}[a-zà-ÿа-я]{1,12}")


def may_be_password(value: str) -> bool:
    """Return whether a word of a sentence can be a password: mixed, but no version, date, unit or file."""
    letters = any(map(str.isalpha, value))
    mixed = any(map(str.isdigit, value)) or any(one in _SIGNS for one in value[1:-1])
    mixed = mixed or is_joined(value)
    return (
        4 <= len(value) <= 128
        and letters
        and mixed
        and not is_placeholder(value)
        and not is_code(value)
        and _NO_PASSWORD.fullmatch(value) is None
        and _QUANTITY.fullmatch(value) is None
    )


_SIGNS = frozenset("!@#$%^&*+=?~")
_JOINED = re.compile(r"[A-Z][a-z]{2,20}_[A-Za-z][a-z]{2,20}")


def is_joined(value: str) -> bool:
    """Return whether a value is two words as people join them for a password: `Kaffee_Satz`."""
    return _JOINED.fullmatch(value) is not None


_HASH = re.compile(r"[0-9a-f]{16,}|[0-9A-F]{16,}")
_NUMBERED_WORD = re.compile(
    r"[A-Z]?[a-z]+\d{1,2}[a-z]|(?i:argon2|oauth2|utf8|base64|md5|sha\d{1,3}|http2|ipv[46]|x509|k8s|ec2)\w*"
)
_DIGITS_INSIDE = re.compile(r"[A-Za-z]\d+[A-Za-z]")


def is_strong_password(value: str) -> bool:
    """Return whether a word can hardly be anything but a password: signs or digits inside it."""
    if not may_be_password(value) or len(value) < 6 or "/" in value or ":" in value:
        return False
    if any(one in _SIGNS for one in value):
        return any(map(str.isdigit, value)) and "=" not in value and value.isascii()
    if value.upper() == value or _HASH.fullmatch(value) or _NUMBERED_WORD.fullmatch(value):
        return False
    parts = re.split(r"[-_.]", value)
    return any(len(part) >= 6 and _DIGITS_INSIDE.search(part) is not None for part in parts)


_CASES = re.compile(r"[a-z][A-Z]")
_ID = re.compile(r"[A-Z]{1,8}[-_ ]?\d+[A-Z]?|#\S+|[a-z]+\d{1,3}")


def is_likely_password(value: str) -> bool:
    """Return whether a word can be a password and is no id: neither `ABC-1234` nor `user7`."""
    if not may_be_password(value) or _ID.fullmatch(value) is not None:
        return False
    if "/" in value and _READABLE.match(value) is not None:
        return False
    has_weight = sum(map(str.isdigit, value)) > 1 or _CASES.search(value) is not None
    return is_strong_password(value) or (len(value) > 7 and has_weight)
