"""Find secrets in fixed forms without a name: SQL, Oracle connect strings, `.pgpass`, `/etc/shadow`.

The forms are the rows of `phrases.tsv`. A row's pattern runs where a text has what the row needs: of
each term, joined by `&`, one of the signs that `|` separates; `␣` is a blank. Or it needs `~` a pattern.
A row with a term of words is looked for only in a text with one of them.
"""

import re
from collections.abc import Callable, Collection, Iterator
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


_Phrases = dict[str, list[_Phrase]]


@cache
def _phrases() -> tuple[_Phrases, _Phrases]:
    """Return the phrases by a word that they need, and those that need none by their first signs."""
    by_word: _Phrases = {}
    by_sign: _Phrases = {}
    for (_, pattern, check, _), needs in zip(rows("phrases"), needs_of_phrases(), strict=True):
        phrase = _Phrase(tuple(needs), whole("phrases", pattern), check)
        words = words_needed(needs)
        for one in words or needs[0]:
            (by_word if words else by_sign).setdefault(one, []).append(phrase)
    return by_word, by_sign


_OFTEN = ("user",)
"""Words of signs that are too frequent to look for."""


def words_needed(needs: list[tuple[str, ...]]) -> list[str]:
    """Return words of which a text needs one: of the last term each of whose signs has one."""
    for term in reversed(needs):
        words = [max(re.findall("[a-z]*", sign)[::-1], key=len) for sign in term]
        if all(len(one) > 2 and one not in _OFTEN for one in words):
            return words
    return []


def needs_of_phrases() -> Iterator[list[tuple[str, ...]]]:
    """Yield for each phrase its terms; a text needs one of the signs of each, `~` begins a pattern."""
    for needs, *_ in rows("phrases"):
        yield [
            (term,) if term[0] == "~" else tuple(term.replace("␣", " ").split("|"))
            for term in needs.split(" & ")
        ]


def in_phrases(text: str, lower: str, triggers: Collection[str]) -> Iterator[Span]:
    """Yield the spans of values in forms without a name: SQL, Oracle connect strings, `.pgpass`."""
    by_word, by_sign = _phrases()
    found: list[_Phrase] = []
    for word in triggers:
        found += by_word.get(word, ())
    for sign, phrases in by_sign.items():
        if sign in lower or sign[0] == "~":
            found += phrases
    for needs, pattern, check in found:
        if all(_has_one(lower, term) for term in needs):
            yield from _values(text, compiled(pattern), check)


def _has_one(lower: str, term: tuple[str, ...]) -> bool:
    for sign in term:  # a loop: a generator costs three times as much
        if sign in lower or (sign[0] == "~" and compiled(sign[1:]).search(lower) is not None):
            return True
    return False


def _values(text: str, pattern: re.Pattern[str], check: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        if check == "users":
            yield from (user.span(1) for user in _RE.user.finditer(text, *match.span(1)))
            continue
        for group, value in enumerate(match.groups(), start=1):
            if value is not None and _CHECKS[check](value) and not is_placeholder(value):
                yield match.span(group)
