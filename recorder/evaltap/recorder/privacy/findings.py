"""What redaction finds in a text, and what replaces it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

PSEUDONYM = re.compile(r"<[a-z_]{2,20}:[0-9a-f]{12}>")
"""The token that replaced a value; never sensitive again."""
LOOKED_FOR = ("keys", "email", "phone", "card", "IBAN", "SSN")
NOT_LOOKED_FOR = "Names and postal addresses are not detected."


class Finding(NamedTuple):
    """A sensitive part of a text: its kind, its span, its normal form."""

    kind: str
    start: int
    end: int
    value: str


Span = tuple[int, int]
"""The offsets of the start and the end of a part of a text."""

Place = tuple[int, int, str]
"""The span of a sensitive value, and its normal form."""


def matches_at(beginning: str, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches that start with a literal text, as `finditer` does.

    One match at a time: a single search holds the interpreter until its end, and in a text of nothing but
    beginnings that is hundreds of milliseconds.
    """
    at = text.find(beginning)
    while at >= 0:
        if (match := pattern.match(text, at)) is not None:
            yield match
        at = text.find(beginning, at + 1 if match is None else max(match.end(), at + 1))
