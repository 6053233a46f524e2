"""Find keys and tokens by the formats of known services: the rows of `formats.tsv`.

A row runs where a word starts with one of its signs, or has its sign inside; a group marks the secret where
the pattern needs surrounding context. Lengths are lower bounds where a service has changed them before.
The formats are facts from the services' own documentation and key pages, checked for completeness against
the rules that gitleaks publishes (MIT license).
"""

from collections.abc import Iterator
from functools import cache
from string import ascii_letters

from evaltap.recorder.privacy.findings import Finding, matches_at
from evaltap.recorder.privacy.lexicon import compiled, patterns, rows

_RE = patterns("formats")

_BLANKS = {ord(sign): " " for sign in "_+/.=:&?%~$|-"}
_Format = tuple[tuple[str, ...], str]


@cache
def _by_beginning() -> dict[str, list[_Format]]:
    """Return the formats that start with a sign, by the first characters of the word they match."""
    found: dict[str, list[_Format]] = {}
    for place, signs, pattern, _, _ in rows("formats"):
        if place == "start":
            whole = _RE.whole(f"(?&start)(?:{pattern})")
            for start in {_beginning(one) for one in signs.split()}:
                here = tuple(one for one in signs.split() if _beginning(one) == start)
                found.setdefault(start, []).append((here, whole))
    return found


@cache
def _with_sign_inside() -> tuple[tuple[str, str], ...]:
    return tuple((sign, one) for place, sign, one, _, _ in rows("formats") if place == "inside")


def _beginning(prefix: str) -> str:
    return prefix.translate(_BLANKS).split()[0][:2]


_OF_IDS = frozenset(first + second for first in "MNO" for second in ascii_letters)


def formats(seen: str, words: str) -> Iterator[Finding]:
    """Yield keys of known formats; a rule runs where a word has its prefix."""
    beginnings = {part[:2] for part in words.translate(_BLANKS).split()}
    formats_there = _by_beginning()
    for beginning in beginnings & formats_there.keys():
        for signs, pattern in formats_there[beginning]:
            for sign in signs:
                if sign in words:
                    for match in matches_at(sign, compiled(pattern), seen):
                        yield Finding("secret", *match.span(), match[0])
    for sign, pattern in _with_sign_inside():
        if sign in words:
            for match in compiled(pattern).finditer(seen):
                group = match.lastindex or 0
                yield Finding("secret", *match.span(group), match[group])
    if not _OF_IDS.isdisjoint(beginnings):
        for match in _RE.three_parts.finditer(seen):
            yield Finding("secret", *match.span(), match[0])
    if "eyJ" in words:
        for match in _RE.jwt.finditer(seen):
            if match[0].count(".") and len(match[0]) > 24:
                yield Finding("jwt", *match.span(), match[0].rstrip("."))
