"""Find the secrets that sentences tell: `the password is x`, `x is the password`, `log in as bob with x`.

The sentences are the rows of `sentences.tsv`, tried in their order: those whose pattern matches right behind
the name (`next`), those that look `further` on in the clause, those `before` the name, those behind a word
for a `login`. A row says for which names (of those before the name, behind what) and whether for tokens it
holds, how the value is read where its pattern ends, what the value must look like, and what follows if it
does not: the next row, or the rest of the clause, or nothing.
"""

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import NamedTuple

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import compiled, lists, patterns, rows, whole, words
from evaltap.recorder.privacy.text.value_kinds import (
    is_likely_password,
    is_measure,
    is_strong_password,
    is_token,
    may_be_password,
)
from evaltap.recorder.privacy.text.values import is_mixed, read_value

_RE = patterns("sentences")
_WORDS = lists("sentences")

SHORT_NUMBERS = frozenset(words("sentences.short_numbers"))
_NUMBERS = SHORT_NUMBERS | {"code", "codice", "código", "kod", "kode", "код"}

_NAMES: dict[str, Callable[[str], bool]] = {
    "": lambda name: True,
    "credentials": lambda name: "cred" in name.lower(),
    "foreign": lambda name: not name.isascii(),
    "key": lambda name: name.lower() == "key",
    # In names with an English word `on` is no Finnish for `is`.
    "not_english": lambda name: _RE.english.search(name) is None,
    "number": lambda name: name.lower() in _NUMBERS,
    "secret": lambda name: _RE.secret.fullmatch(name) is not None,
    "asked": lambda before: " for " in before[-12:],
    "compared": lambda before: before[-2:].rstrip()[-1:] in ("=", ","),
    "in_brackets": lambda before: "(" in before[-34:],
}
_CHECKS: dict[str, Callable[[str], bool]] = {
    "": lambda value: True,
    "changed": lambda value: is_mixed(value) and not is_measure(value.split()[0]),
    "likely_password": is_likely_password,
    "may_be_password": may_be_password,
    "mixed": is_mixed,
    "mixed_last": lambda value: is_mixed(value.split()[-1]),
    "mixed_no_key_id": lambda value: is_mixed(value) and _RE.key_id.fullmatch(value) is None,
    "mixed_no_pair": lambda value: is_mixed(value) and _RE.key_and_id.fullmatch(value) is None,
    "mixed_token": lambda value: is_token(value) and is_mixed(value),
    "strong_password": is_strong_password,
}


class _Sentence(NamedTuple):
    holds_for: Callable[[str], bool]
    pattern: str
    reading: str
    check: Callable[[str], bool]
    tokens: str
    otherwise: str


@cache
def _sentences(place: str) -> tuple[_Sentence, ...]:
    return tuple(
        _Sentence(
            _NAMES[names], whole("sentences", pattern), reading, _CHECKS[check], tokens, otherwise
        )
        for where, _, names, pattern, reading, check, tokens, otherwise, _ in rows("sentences")
        if where == place
    )


def said(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in `the password is x`, `password x`, `パスワードはx`."""
    name = text[start:end]
    for one in _sentences("next"):
        if (token and one.tokens == "no") or not one.holds_for(name):
            continue
        match = compiled(one.pattern).match(text, end)
        if match is None or (one.reading == "after_sign" and _is_topic(match[0])):
            continue
        span = _read(text, match, one, token=token)
        if span is not None or one.otherwise == "stop":
            return span
        if one.otherwise == "clause":
            break
    return _in_clause(text, start, end, token=token)


def _read(text: str, match: re.Match[str], sentence: _Sentence, *, token: bool) -> Span | None:
    """Return the value that a sentence tells, if it is one."""
    at, reading = match.end(), sentence.reading
    if reading == "nothing":
        return None
    if reading == "group":
        span: Span | None = match.span(1)
        if sentence.tokens == "token" and token and not is_token(match[1].split()[-1]):
            return None
    elif reading in ("said", "after_sign"):
        sure = reading == "after_sign" and match[1] == "="
        span = read_value(text, at, token=token, sure=sure, said=True, code=False)
        if span is not None and _RE.time.match(text, span[0]) is not None:
            return None
    else:
        span = read_value(text, at, token=token, sure=reading == "sure")
    return span if span is not None and sentence.check(text[slice(*span)]) else None


def _is_topic(said_of_it: str) -> bool:
    """Return whether it ends with what is only about a password: `password for bob, length: `."""
    return not _WORDS.of_what.isdisjoint(said_of_it.lower().rstrip(" :=-*_").split()[-1:])


def is_about(text: str, end: int) -> bool:
    """Return whether the name is only the first of two: `the password policy`."""
    following = _RE.following.match(text, end)
    return following is not None and following[1].lower() in _WORDS.of_what


def answered(text: str, end: int) -> Span | None:
    """Return the password that answers the question which ends here."""
    match = _RE.answer.match(text, end)
    return match.span(1) if match is not None and is_likely_password(match[1]) else None


def _in_clause(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value further on in the clause, behind other words."""
    if not token and (span := answered(text, end)) is not None:
        return span
    if text[end : end + 1] not in (" ", ",", "'"):
        return None
    if not token and (span := _changed_to(text, start, end)) is not None:
        return span
    if is_about(text, end):
        return None
    for one in _sentences("further"):
        if token and one.tokens == "no":
            continue
        if (match := compiled(one.pattern).match(text, end)) is not None:
            value = match[1].rstrip(".,;:?)]}*")
            if one.check(value) and (not token or is_token(value)):
                return match.start(1), match.start(1) + len(value)
    return None


def _changed_to(text: str, start: int, end: int) -> Span | None:
    """Return what a verb before or after the name says that the value becomes."""
    match = _RE.to.match(text, end)
    if match is None or _RE.change.search(text, max(0, start - 40), match.start(1)) is None:
        return None
    return _password(match)


def other_said(text: str, end: int) -> Span | None:
    """Return a second password behind the first: `the old one was x and the new one is y`."""
    if (match := _RE.arrow.match(text, end)) is not None:
        return read_value(text, match.end(), token=False, sure=True)
    match = _RE.and_new.match(text, end)
    return _password(match) if match is not None else None


def _password(match: re.Match[str]) -> Span | None:
    value = match[1].rstrip(".,;:!?)")
    return (match.start(1), match.start(1) + len(value)) if may_be_password(value) else None


_LONGEST_BEFORE = 100
_MOST_ADJECTIVES, _MOST_BETWEEN = 4, 4


def value_before(text: str, start: int, end: int) -> Span | None:
    """Return the value in `x is the password`, `use x as password`, `with x? that's the password`."""
    first = max(0, start - _LONGEST_BEFORE)
    if text[start] > "\u2e80":
        match = _RE.cjk_before.search(text, first, start)
        return match.span(1) if match is not None and may_be_password(match[1]) else None
    if text[start - 1 : start] not in (" ", "(", "#"):
        return None
    for one in _sentences_behind(text[first:start]):
        match = compiled(one.pattern).search(text, first, start)
        if match is not None and (one.reading != "aside" or text.startswith(")", end)):
            return match.span(1) if one.check(match[1]) else None
    line = text.rfind("\n", first, start) + 1
    stop = start - (text[start - 1] == "#")
    words = [match.span() for match in _RE.word.finditer(text, max(first, line), stop)]
    if _RE.control.match(text, end) is not None or text[start - 1] == "#":
        return _typed(text, words)
    if is_about(text, end):
        return None
    is_code = text[start:end].lower().endswith(_CODES)
    return _before_link(text, end, words, _may_be_code if is_code else may_be_password)


def _sentences_behind(before: str) -> list[_Sentence]:
    return [one for one in _sentences("before") if one.holds_for(before)]


def _typed(text: str, words: list[Span]) -> Span | None:
    """Return what is typed `into the password field`."""
    for back in range(1, min(len(words), _MOST_ADJECTIVES)):
        if text[slice(*words[-back])].lower() in _WORDS.into:
            return _nearest(text, words[:-back], 1, may_be_password)
    return None


def _before_link(
    text: str, end: int, words: list[Span], is_value: Callable[[str], bool]
) -> Span | None:
    """Return the value before the last link of words that lead to a name."""
    for back in range(1, min(len(words), _MOST_ADJECTIVES + 2)):
        word = text[slice(*words[-back])].lower().lstrip("(")
        if word in _WORDS.pointing:
            return _nearest(text, words[:-back], _MOST_BETWEEN, is_value)
        if word in _WORDS.links:
            before = words[:-back]
            if len(before) > 1 and text[slice(*before[-1])].lower() in _WORDS.pronouns:
                return _nearest(text, before[:-1], _MOST_BETWEEN, is_value)
            return _nearest(text, before, 1, is_value)
        if word.endswith(",") and back > 1 and _RE.clause_ends.match(text, end) is not None:
            return _nearest(text, words[: len(words) - back + 1], 1, is_value)
        if may_be_password(text[slice(*words[-back])]) and back < len(words):
            # "Is x still the password?"
            is_asked = text[slice(*words[-back - 1])].lower() in _WORDS.copulas_first
            return _nearest(text, words[: len(words) - back + 1], 1, is_value) if is_asked else None
        if word in _WORDS.no_adjectives or not word.replace("'", "").replace("-", "").isalpha():
            return None
    return None


def _nearest(
    text: str, words: list[Span], most: int, is_value: Callable[[str], bool]
) -> Span | None:
    """Return the last of some words that can be a password, of at most so many, signs aside."""
    for start, stop in reversed(words[-most - 1 :]):
        word = text[start:stop]
        value = word.strip("\"'`(),;:").rstrip(".?")
        if is_value(value) and not any(sign in value for sign in _OF_MARKUP):
            begin = start + word.find(value)
            return begin, begin + len(value)
        if word != "-":
            most -= 1
        if not most:
            break
    return None


_OF_MARKUP = ("](", "='", '="')
_CODES = ("code", "pin", "otp", "codice", "código", "codigo", "kode", "kod", "код", "koodi", "kód")


def _may_be_code(value: str) -> bool:
    return _RE.code.fullmatch(value) is not None or may_be_password(value)


A_LOGIN = "a word for logging in"
_FOREIGN_LOGINS = words("sentences.foreign_logins")


def begins_login(word: str) -> bool:
    """Return whether a word of ASCII letters may begin what says that someone logs in."""
    return _RE.login_word.match(word) is not None


def in_logins(text: str, lower: str, triggers: Collection[str]) -> Iterator[Span]:
    """Yield the spans of strong passwords beside a user, after a word for logging in."""
    if A_LOGIN not in triggers and (
        text.isascii() or not any(root in lower for root in _FOREIGN_LOGINS)
    ):
        return
    done = 0
    for login in _RE.login.finditer(lower):
        if login.start() < done:
            continue
        for one in _sentences("login"):
            match = compiled(one.pattern).match(text, login.end())
            value = match[1].rstrip(".,;:!?)") if match is not None else ""
            if match is not None and one.check(value):
                done = match.end()
                yield match.start(1), match.start(1) + len(value)
                break
