"""Tell secrets by the company they keep: names that hold them, and the value beside such a name."""

import re
from enum import Enum
from functools import lru_cache
from typing import Any

_NAMES_TEXT = """
password passwd passwort passphrase passcode pwd pass secret apikey xapikey accesskey
secretaccesskey secretkey privatekey encryptionkey signingkey accountkey masterkey sshkey
authorization proxyauthorization authtoken accesstoken refreshtoken idtoken sessiontoken
bearertoken apitoken csrftoken xsrftoken securitytoken clienttoken devicetoken jwt cookie
setcookie sessioncookie credential clientsecret connectionstring dsn cvv cvc cvv2 cardnumber
creditcardnumber creditcard cardcvc ssn socialsecuritynumber pin pincode otp totp mfacode
securityanswer passwordhash passwordsalt privatekeypem webhooksecret
"""
_NAMES = frozenset(_NAMES_TEXT.split())
_ENDINGS = (
    "password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey", "privatekey",
    "accesstoken", "authtoken", "refreshtoken", "bearertoken", "sessiontoken", "apitoken",
    "clientsecret", "credential", "authorization", "passwordconfirmation", "cardnumber",
)  # fmt: skip
_SEPARATORS = str.maketrans("", "", "_-. ")
_ID_NAME = re.compile(
    r"(?i)(?:^|[_\-. ])(?:id|uuid|guid|sha\d{0,3}|hash|etag|ts|time|date|timestamp|at)s?$"
)
_ID_CAMEL = re.compile(r"(?<=[a-z0-9])(?:Id|ID|Ids|IDs|Uuid|Hash|Time|Timestamp|Date|At)$")

_PLACEHOLDERS_TEXT = """
null none nil true false undefined required optional missing invalid incorrect string str
empty yes no n/a expired wrong correct reset changed needed unknown the a an not in to for
must should too your my is was redacted hidden and or
"""
_PLACEHOLDERS = frozenset(_PLACEHOLDERS_TEXT.split())
_QUOTES = "\"'`"


class Name(Enum):
    """What the name of a key says about its value."""

    SECRET = "a secret, whatever it looks like"
    TOKEN = "a token or a word: the value decides"
    IDENTIFIER = "an id, a hash or a time: digits mean nothing else"
    PLAIN = "nothing"


def kind_of_name(name: str) -> Name:
    """Return what the name of a key says about its value."""
    # Names come again and again; texts that are used as keys do not and are long.
    return _kind_of_name(name) if len(name) <= _LONGEST_REMEMBERED else _kind(name)


_LONGEST_REMEMBERED = 64


@lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> Name:
    return _kind(name)


def _kind(name: str) -> Name:
    if is_sensitive_name(name):
        return Name.SECRET
    if is_token_name(name):
        return Name.TOKEN
    return Name.IDENTIFIER if is_identifier_name(name) else Name.PLAIN


def is_sensitive_name(name: str) -> bool:
    """Return whether a key of that name holds a secret whatever its value looks like."""
    plain = name.translate(_SEPARATORS).lower().rstrip("0123456789")
    singular = plain.removesuffix("s")
    return (
        plain in _NAMES
        or singular in _NAMES
        or plain.endswith(_ENDINGS)
        or singular.endswith(_ENDINGS)
    )


def is_token_name(name: str) -> bool:
    """Return whether a key of that name may hold a token or a word: the value decides."""
    plain = name.translate(_SEPARATORS).lower()
    return plain == "auth" or plain.endswith("token")


def is_identifier_name(name: str) -> bool:
    """Return whether a key of that name holds an id, a hash or a time: digits mean nothing else."""
    return bool(_ID_NAME.search(name) or _ID_CAMEL.search(name))


def is_opaque(value: Any) -> bool:
    """Return whether a value looks made by a machine: long, no blanks, and not a plain word."""
    if not isinstance(value, str) or len(value) < 12 or len(value.split(maxsplit=1)) != 1:
        return False
    return (
        len(value) > 256
        or (any(map(str.isdigit, value)) and not value.isdigit())
        or value.endswith("=")
        or (len(value) >= 20 and not value.isalpha() and value.lower() != value)
    )


def assigned_value(match: re.Match[str]) -> tuple[int, int, str] | None:
    """Return the place of the value after `password =`, `"api_key":`, `--token` or `secret is`."""
    text, start = match.string, match.end()
    strong = match[1] in ("=", "=>") or (match[1] is None and match[2] is None)
    token = match[0].lower().startswith("token")
    quote_at = start
    while quote_at < len(text) and text[quote_at] == "\\":
        quote_at += 1
    if quote_at < len(text) and text[quote_at] in _QUOTES:
        opening = text[start : quote_at + 1]
        begin = quote_at + 1
        end = text.find(opening, begin, begin + 4096)
        end = end if end >= 0 else min(len(text), begin + 4096)
        value = text[begin:end]
        # Nothing but a blank between: the quotes may be those of any word.
        unsure = match[1] is None and match[2] is None and value.isalpha()
        accepted = is_opaque(value) if token else len(value) > 2 and not unsure
        return (begin, end, value) if accepted and not _is_placeholder(value) else None
    value = _word(text, start)
    end = start + len(value)
    if _is_placeholder(value) or len(value) < 4:
        return None
    if token:
        accepted = is_opaque(value)
    elif strong:
        accepted = True
    else:
        last_on_line = text[end : end + 1] in ("", "\n", "\r")
        accepted = not value.isalpha() or (match[1] is not None and last_on_line)
    return (start, end, value) if accepted else None


def rest_of_header(match: re.Match[str]) -> tuple[int, int, str] | None:
    """Return the place of a header's value: up to the closing quote or the end of the line."""
    text, start = match.string, match.end()
    found = _LINE.match(text, start)
    if found is None:
        return None
    begin = start + len(found[1])
    value = found[2].rstrip(" \t,;}\\\"'")
    looks_secret = "=" in value or any(is_opaque(part) for part in value.split())
    if len(value) < 6 or not looks_secret or _is_placeholder(value):
        # What lies within this line was looked at: say so, or a hostile line is read many times.
        return begin, begin + len(value), ""
    return begin, begin + len(value), value


_LINE = re.compile(r"([\\\"'`]{0,4})([^\r\n\"'`]{0,4096})")
_WORD = re.compile(r"[^\s\"'`&<>]{0,4096}")


def _word(text: str, start: int) -> str:
    found = _WORD.match(text, start)
    return found[0].rstrip(".,;:!?)]}\\") if found else ""


def _is_placeholder(value: str) -> bool:
    plain = value.strip().lower()
    return (
        plain in _PLACEHOLDERS
        or not any(map(str.isalnum, plain))
        or plain.startswith(("<", "[redacted", "***", "${", "$(", "{{"))
    )
