"""Find keys without a form of their own: long words beside a service's name, or that look random."""

import re
from collections import Counter
from collections.abc import Iterator
from math import log2

from evaltap.recorder.privacy.findings import Finding
from evaltap.recorder.privacy.lexicon import patterns, words

_RE = patterns("long_words")

_NEAR_WORDS = frozenset(words("long_words.near_words")).union(
    words("long_words.services"),
    ("password", "passwort", "clave", "chave", "schlüssel", "schlussel", "clé"),
)


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
        before = lower[max(0, begin - 72) : begin]
        if _NEAR_WORDS.isdisjoint(_RE.lower_word.findall(before)) or not _is_random(value):
            continue
        if (
            _RE.near.search(before)
            and not _RE.no_key.search(before)
            and not (_RE.key_id.fullmatch(value) and _RE.of_key_id.search(before))
            and seen[begin + len(value) : begin + len(value) + 1] != "("
            and _RE.file_ending.match(seen, begin + len(value)) is None
        ):
            yield Finding("secret", begin, begin + len(value), value)


def _is_random(value: str) -> bool:
    digits = sum(map(str.isdigit, value))
    if (
        not digits
        or digits == len(value)
        or (value.count("/") > 2 and value[-1] != "=" and "+" not in value)
        or "://" in value
        or value.startswith(("http", "/", "arn:", "sha256:", "SHA256:", "MD5:"))
        or _RE.time.match(value) is not None
    ):
        return False
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
        if _RE.uuid.fullmatch(value) or not _is_random(value):
            continue
        hexadecimal = _RE.hex_only.fullmatch(value) is not None
        if len(value) >= 32 if hexadecimal else _entropy(value) >= 3.7:
            yield Finding("opaque", *match.span(), value)
