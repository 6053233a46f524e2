"""Find secrets in fixed forms without a name: SQL, Oracle connect strings, `.pgpass`, `/etc/shadow`.

The forms are the rows of `phrases.tsv`. A row's pattern runs where a text has what the row needs: of
each term, joined by `&`, one of the signs that `|` separates; `␣` is a blank. Or it needs `~` a pattern.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import compiled, patterns, rows, whole
from evaltap.recorder.privacy.text.value_kinds import (
    is_code,
    is_likely_password,
    is_placeholder,
    may_be_password,
)

_RE = patterns("phrases")
_CHECKS: dict[str, Callable[[str], bool]] = {
    "": lambda value: True,
    "likely_password": is_likely_password,
    "may_be_password": may_be_password,
    "no_code": lambda value: value[0] != "$" and not is_code(value),
}
"""What a value must look like where its form alone is not enough."""


class _Phrase(NamedTuple):
    needs: tuple[tuple[str, ...], ...]
    pattern: str
    check: str


_Terms = tuple[tuple[str, int], ...]
_Phrases = tuple[tuple[tuple[str, _Phrase], ...], ...]


@cache
def _phrases() -> tuple[_Terms, _Terms, _Phrases]:
    """Return the signs and the patterns of first terms, and the phrases of each by second signs."""
    terms: dict[tuple[str, ...], list[tuple[str, _Phrase]]] = {}
    for (_, pattern, check, _), (first, *more) in zip(
        rows("phrases"), needs_of_phrases(), strict=True
    ):
        phrase = _Phrase(tuple(more[1:]), whole("phrases", pattern), check)
        terms.setdefault(first, []).extend((sign, phrase) for sign in (more or [("",)])[0])
    signs = [(sign, place) for place, term in enumerate(terms) for sign in term]
    return (
        tuple(one for one in signs if one[0][0] != "~"),
        tuple((sign[1:], place) for sign, place in signs if sign[0] == "~"),
        tuple(map(tuple, terms.values())),
    )


def needs_of_phrases() -> Iterator[list[tuple[str, ...]]]:
    """Yield for each phrase its terms; a text needs one of the signs of each, `~` begins a pattern."""
    for needs, *_ in rows("phrases"):
        yield [
            (term,) if term[0] == "~" else tuple(term.replace("␣", " ").split("|"))
            for term in needs.split(" & ")
        ]


def in_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of values in forms without a name: SQL, Oracle connect strings, `.pgpass`."""
    signs, patterns, phrases = _phrases()
    places: list[int] = []
    for sign, place in signs:  # loops, since this runs on every text
        if sign in lower:
            places.append(place)
    for pattern, place in patterns:
        if compiled(pattern).search(lower) is not None:
            places.append(place)
    if places:
        for place in dict.fromkeys(places):
            found = [phrase for sign, phrase in phrases[place] if sign in lower]
            for needs, pattern, check in dict.fromkeys(found):
                if all(any(sign in lower for sign in term) for term in needs):
                    yield from _values(text, compiled(pattern), check)


def _values(text: str, pattern: re.Pattern[str], check: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        if check == "users":
            yield from (user.span(1) for user in _RE.user.finditer(text, *match.span(1)))
            continue
        for group, value in enumerate(match.groups(), start=1):
            if value is not None and _CHECKS[check](value) and not is_placeholder(value):
                yield match.span(group)
