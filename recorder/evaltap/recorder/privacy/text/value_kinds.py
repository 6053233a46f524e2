"""Classify a value by its form: opaque, a token, a likely password, or what stands where a secret would.

Placeholders, variables, look-ups in code and remarks are no secrets, whatever name is in front of them:
`password = var.db_password`, `password: (sensitive value)`, `token: ${{ secrets.TOKEN }}`.
"""

import re

from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.lexicon import lists, patterns, words

_RE = patterns("value_kinds")
_WORDS = lists("value_kinds")


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
    return looks_random and _RE.readable.match(value) is None


def is_token(value: object) -> bool:
    """Return whether the value of a token field is a token, not a word, count or setting."""
    if not isinstance(value, str) or len(value) < 6 or any(map(str.isspace, value)):
        return False
    if "<" in value and PSEUDONYM.search(value) is not None:
        return False  # a part of it was redacted before
    digits = sum(map(str.isdigit, value))
    looks_random = digits == len(value) or (len(value) >= 8 and digits > 0)
    return is_opaque(value) or (looks_random and _RE.readable.match(value) is None)


def is_measure(value: str) -> bool:
    """Return whether a word is a version, a time, a share or a processor: `0.04s`, `amd64`."""
    return _RE.measure.fullmatch(value) is not None


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
        and _RE.no_password.fullmatch(value) is None
        and _RE.quantity.fullmatch(value) is None
    )


_SIGNS = frozenset("!@#$%^&*+=?~")


def is_joined(value: str) -> bool:
    """Return whether a value is two words as people join them for a password: `Kaffee_Satz`."""
    return _RE.joined.fullmatch(value) is not None


def is_strong_password(value: str) -> bool:
    """Return whether a word can hardly be anything but a password: signs or digits inside it."""
    if not may_be_password(value) or len(value) < 6 or "/" in value or ":" in value:
        return False
    if any(one in _SIGNS for one in value):
        return any(map(str.isdigit, value)) and "=" not in value and value.isascii()
    if value.upper() == value or _RE.hash.fullmatch(value) or _RE.numbered_word.fullmatch(value):
        return False
    parts = re.split(r"[-_.]", value)
    return any(len(part) >= 6 and _RE.digits_inside.search(part) is not None for part in parts)


def is_likely_password(value: str) -> bool:
    """Return whether a word can be a password and is no id: neither `ABC-1234` nor `user7`."""
    if not may_be_password(value) or _RE.id.fullmatch(value) is not None:
        return False
    if "/" in value and _RE.readable.match(value) is not None:
        return False
    has_weight = sum(map(str.isdigit, value)) > 1 or _RE.cases.search(value) is not None
    return is_strong_password(value) or (len(value) > 7 and has_weight)


_VARIABLES = words("value_kinds.variables")
"""How variables, and addresses in a store of secrets, begin."""


def is_placeholder(value: str) -> bool:
    """Return whether a value only stands in for a secret: `${TOKEN}`, `null`, `***`."""
    plain = value.strip().lower()
    return plain in _WORDS.words or is_variable(value) or not any(map(str.isalnum, plain))


def is_variable(value: str) -> bool:
    """Return whether a value refers to a variable: `${TOKEN}`, `$TOKEN`, `os.environ["TOKEN"]`."""
    plain = value.strip()
    if plain.lower().startswith(_VARIABLES):
        return _RE.monospaced.fullmatch(plain) is None
    return plain[:1] in ("$", "@") and _RE.shell_variable.match(plain) is not None


def is_code(value: str) -> bool:
    """Return whether an unquoted word is an expression or a type: `get_secret()`, `user.pw`."""
    return bool(_RE.code.fullmatch(value) or _RE.types.fullmatch(value))


def stands_here(text: str, at: int) -> bool:
    """Return whether a remark, a file, a version or a template's field starts here."""
    return _RE.stands.match(text, at) is not None


def is_expression(text: str, at: int) -> bool:
    """Return whether a look-up, a call or a type of a program starts here."""
    return _RE.expression.match(text, at) is not None


def monospaced(text: str, at: int) -> tuple[int, int] | None:
    """Return the span of a password in Jira's `{{x}}` that starts here."""
    match = _RE.monospaced.match(text, at)
    return match.span(1) if match is not None else None


def is_stand_in(value: str) -> bool:
    """Return whether all of a value is a variable, a mask, a remark or a version.

    Stricter than `is_placeholder`: for a value that a secret's name would hide whatever it looks like.
    """
    return _RE.all_of_it.fullmatch(value) is not None and _RE.monospaced.fullmatch(value) is None


def is_message(value: str) -> bool:
    """Return whether it is what a form says of a field: `This field is required.`"""
    if _RE.sentence.fullmatch(value) is None:
        return False
    return not _WORDS.of_messages.isdisjoint(
        word.strip(".,:;!?()").lower() for word in value.split()
    )
