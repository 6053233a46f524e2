"""Find keys and tokens by the formats of known services; a rule runs where a word has its prefix."""

import re
from collections.abc import Iterator
from string import ascii_letters

from evaltap.recorder.privacy.findings import Finding, matches_at
from evaltap.recorder.privacy.text.secret_formats import NEEDLED, SECRET_FORMATS

_START = r"(?<![A-Za-z0-9_])"
_BLANKS = {ord(sign): " " for sign in "_+/.=:&?%~$|-"}
_PrefixRule = tuple[tuple[str, ...], re.Pattern[str]]


def _prefix_rules() -> dict[str, list[_PrefixRule]]:
    """Return the rules by the prefix of the words that they match."""
    rules: dict[str, list[_PrefixRule]] = {}
    for prefixes, pattern in SECRET_FORMATS:
        compiled = re.compile(_START + "(?:" + pattern + ")")
        for start in {_beginning(one) for one in prefixes.split()}:
            needles = tuple(one for one in prefixes.split() if _beginning(one) == start)
            rules.setdefault(start, []).append((needles, compiled))
    return rules


def _beginning(prefix: str) -> str:
    return prefix.translate(_BLANKS).split()[0][:2]


_BY_BEGINNING = _prefix_rules()
_NEEDLED = tuple((needle, re.compile(pattern)) for needle, pattern in NEEDLED)
_OF_IDS = frozenset(first + second for first in "MNO" for second in ascii_letters)
_THREE_PARTS = re.compile(
    r"[MNO](?<![\w.-].)[A-Za-z][\w-]{21,27}\.[\w-]{6}\.(?=[\w-]{0,44}\d)[\w-]{27,45}(?![\w-])"
)
"""Discord's tokens: an id in base64, a time, a signature."""
_JWT = re.compile(r"eyJ(?<![\w-]...)[\w-]{8,}+(?:\.[\w-]{0,}+){1,4}")


def formats(seen: str, words: str) -> Iterator[Finding]:
    """Yield keys of known formats; a rule runs where a word has its prefix."""
    beginnings = {part[:2] for part in words.translate(_BLANKS).split()}
    for beginning in beginnings & _BY_BEGINNING.keys():
        for needles, pattern in _BY_BEGINNING[beginning]:
            for needle in needles:
                if needle in words:
                    for match in matches_at(needle, pattern, seen):
                        yield Finding("secret", *match.span(), match[0])
    for needle, pattern in _NEEDLED:
        if needle in words:
            for match in pattern.finditer(seen):
                group = match.lastindex or 0
                yield Finding("secret", *match.span(group), match[group])
    if not _OF_IDS.isdisjoint(beginnings):
        for match in _THREE_PARTS.finditer(seen):
            yield Finding("secret", *match.span(), match[0])
    if "eyJ" in words:
        for match in _JWT.finditer(seen):
            if match[0].count(".") and len(match[0]) > 24:
                yield Finding("jwt", *match.span(), match[0].rstrip("."))
