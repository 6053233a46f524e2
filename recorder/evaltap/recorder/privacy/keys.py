"""Find keys and tokens: by the formats of known services, beside a service's name, or as they look random.

The formats are the rows of `formats.tsv`. A row runs where a word starts with one of its signs, or has its
sign inside; a group marks the secret where the pattern needs surrounding context. Lengths are lower bounds
where a service has changed them before.
They are facts from the services' own documentation and key pages, checked for completeness against
the rules that gitleaks publishes (MIT license).
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import log2
from string import ascii_letters

from evaltap.recorder.privacy.findings import Finding, matches_at
from evaltap.recorder.privacy.lexicon import compiled, patterns, rows, whole, words

_RE = patterns("keys")

_SIGNS = b"_+/.=:&?%~$|-"
_ALNUM = bytes(one if one < 128 and chr(one).isalnum() else 32 for one in range(256))
_OF_LONG_WORDS = bytes(one if one in _SIGNS else _ALNUM[one] for one in range(256))
_JOINED = bytes(32 if one == 32 else 45 for one in _OF_LONG_WORDS)
_LONG = b"-" * 14
_Format = tuple[tuple[str, ...], str]


@cache
def _by_beginning() -> dict[str, list[_Format]]:
    """Return the formats that start with a sign, by the first characters of the word they match."""
    found: dict[str, list[_Format]] = {}
    for place, signs, pattern, _, _ in rows("formats"):
        if place == "start":
            of_word = whole("keys", f"(?&start)(?:{pattern})")
            for start in {_beginning(one) for one in signs.split()}:
                here = tuple(one for one in signs.split() if _beginning(one) == start)
                found.setdefault(start, []).append((here, of_word))
    return found


@cache
def _with_sign_inside() -> tuple[tuple[str, str], ...]:
    return tuple((sign, one) for place, sign, one, _, _ in rows("formats") if place == "inside")


def _beginning(prefix: str) -> str:
    return prefix.encode().translate(_ALNUM).split()[0][:2].decode()


_OF_IDS = frozenset(first + second for first in "MNO" for second in ascii_letters)


def long_words(text: str) -> str:
    """Return the words that may be keys or encoded texts: unlike ordinary words, they are long."""
    content = text.encode("utf-8", "surrogatepass")
    if _LONG not in content.translate(_JOINED):
        return ""
    words = content.translate(_OF_LONG_WORDS).split()
    return b" ".join([one for one in words if len(one) >= len(_LONG)]).decode()


def has_digit(words: str) -> bool:
    """Return whether some words have a digit, as what is beside a service's name must."""
    return _RE.digit.search(words) is not None


def formats(seen: str, long_words: str) -> Iterator[Finding]:
    """Yield keys of known formats; a rule runs where a word has its prefix."""
    parts = long_words.encode().translate(_ALNUM).decode().split()
    beginnings = {part[:2] for part in parts}
    formats_there = _by_beginning()
    for beginning in beginnings & formats_there.keys():
        for signs, pattern in formats_there[beginning]:
            for sign in signs:
                if sign in long_words:
                    for match in matches_at(sign, compiled(pattern), seen):
                        yield Finding("secret", *match.span(), match[0])
    for sign, pattern in _with_sign_inside():
        if sign in long_words:
            for match in compiled(pattern).finditer(seen):
                group = match.lastindex or 0
                yield Finding("secret", *match.span(group), match[group])
    if not _OF_IDS.isdisjoint(beginnings):
        for match in _RE.three_parts.finditer(seen):
            yield Finding("secret", *match.span(), match[0])
    if "eyJ" in long_words:
        for match in _RE.jwt.finditer(seen):
            if match[0].count(".") and len(match[0]) > 24:
                yield Finding("jwt", *match.span(), match[0].rstrip("."))


_NEAR_WORDS = frozenset((*words("keys.near_words"), *words("keys.services")))


def beside_services(seen: str, lower: str) -> Iterator[Finding]:
    """Yield long words next to the name of a service, or the word key."""
    for match in _RE.candidate.finditer(seen):
        begin = match.start()
        value = match[0]
        name, sign, rest = value.partition("=")
        if sign and rest.strip("=") and _RE.name.fullmatch(name.lstrip("-")):
            if len(rest) < 14:
                continue  # another setting: `--region=eu-west-1`
            begin, value = begin + len(name) + 1, rest
        value = value.rstrip(".:")
        if not _may_be_random(value):
            continue
        before = lower[max(0, begin - 72) : begin]
        if _NEAR_WORDS.isdisjoint(_RE.lower_word.findall(before)) or not _is_mixed(value):
            continue
        if (
            _RE.near.search(before)
            and not _RE.no_key.search(before)
            and not (_RE.key_id.fullmatch(value) and _RE.of_key_id.search(before))
            and seen[begin + len(value) : begin + len(value) + 1] != "("
            and _RE.file_ending.match(seen, begin + len(value)) is None
        ):
            yield Finding("secret", begin, begin + len(value), value)


def _may_be_random(value: str) -> bool:
    """Return whether a word is neither a name nor a number, an address, a path, a digest or a time."""
    return not (
        not has_digit(value)
        or value.isdigit()
        or _RE.time.match(value) is not None
        or value.startswith(("http", "/", "arn:", "sha256:", "SHA256:", "MD5:"))
        or "://" in value
        or (value.count("/") > 2 and value[-1] != "=" and "+" not in value)
    )


def _is_mixed(value: str) -> bool:
    return _entropy(value) >= (
        2.5 if _RE.hex_only.fullmatch(value) else 3.0
    ) and not _is_made_of_words(value)


def _is_made_of_words(value: str) -> bool:
    """Return whether it is a name with numbers: `gpt-4o-mini-2024-07-18`, `v1.2.3-rc4`."""
    parts = re.split(r"[-_./:]", value)
    return len(parts) > 2 and all(
        part.isalpha() or part.isdigit() or len(part) < 5 for part in parts
    )


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(n / total * log2(n / total) for n in Counter(value).values())


def random_words(seen: str) -> Iterator[Finding]:
    """Yield words that look random: an opt-in rule."""
    for match in _RE.random_word.finditer(seen):
        value = match[0]
        if _RE.uuid.fullmatch(value) or not (_may_be_random(value) and _is_mixed(value)):
            continue
        hexadecimal = _RE.hex_only.fullmatch(value) is not None
        if len(value) >= 32 if hexadecimal else _entropy(value) >= 3.7:
            yield Finding("opaque", *match.span(), value)
