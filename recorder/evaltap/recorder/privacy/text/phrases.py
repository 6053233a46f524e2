"""Find secrets in fixed forms without a name: SQL, Oracle connect strings, `.pgpass`, `/etc/shadow`.

The forms are the rows of `phrases.tsv`. A row's pattern runs where a text has what the row needs: of
each term, joined by `&`, one of the signs that `|` separates; `~` begins a pattern, `␣` is a blank.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import Patterns, compiled, rows
from evaltap.recorder.privacy.text.value_kinds import (
    is_code,
    is_likely_password,
    is_placeholder,
    may_be_password,
)

_RE = Patterns("phrases")
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


@cache
def _phrases() -> tuple[tuple[tuple[str, ...], tuple[_Phrase, ...]], ...]:
    """Return the phrases by the first term of what they need, since many share it."""
    found: dict[tuple[str, ...], list[_Phrase]] = {}
    for needs, pattern, check, _ in rows("phrases"):
        first, *more = (
            (term,) if term[0] == "~" else tuple(term.replace("␣", " ").split("|"))
            for term in needs.split(" & ")
        )
        phrase = _Phrase(tuple(more), _RE.whole(pattern), check)
        found.setdefault(first, []).append(phrase)
    return tuple((first, tuple(phrases)) for first, phrases in found.items())


def in_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of values in forms without a name: SQL, Oracle connect strings, `.pgpass`."""
    for first, phrases in _phrases():
        if not _has(first, lower):
            continue
        for needs, pattern, check in phrases:
            for term in needs:
                if not _has(term, lower):
                    break
            else:
                yield from _values(text, compiled(pattern), check)


def _has(term: tuple[str, ...], lower: str) -> bool:
    # A loop: this runs on every text, and a generator costs three times as much.
    for sign in term:
        if sign in lower:
            return True
    return term[0][0] == "~" and compiled(term[0][1:]).search(lower) is not None


def _values(text: str, pattern: re.Pattern[str], check: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        if check == "users":
            yield from (user.span(1) for user in _RE.user.finditer(text, *match.span(1)))
            continue
        for group, value in enumerate(match.groups(), start=1):
            if value is not None and _CHECKS[check](value) and not is_placeholder(value):
                yield match.span(group)
