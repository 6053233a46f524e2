"""Find the secret before its name: `x is the password`, `use x as password`, `x (my password)`."""

from collections.abc import Callable

from evaltap.recorder.privacy.lexicon import patterns, words
from evaltap.recorder.privacy.text.sentences.values_after import is_about
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import is_likely_password, may_be_password
from evaltap.recorder.privacy.text.values import is_mixed

_RE = patterns("before")

_LINKS = frozenset(words("before.links"))
_PRONOUNS = frozenset(words("before.pronouns"))
_POINTING = frozenset(words("before.pointing"))
_NO_ADJECTIVES = frozenset(words("before.no_adjectives"))
_COPULAS_FIRST = frozenset(words("before.copulas_first"))
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
    compared = _RE.compared.search(text, first, start)
    if compared is not None:
        return compared.span(1) if is_mixed(compared[1]) else None
    if (aside := _RE.aside.search(text, first, start)) is not None and text[end : end + 1] == ")":
        return aside.span(1) if is_likely_password(aside[1]) else None
    if (asked := _RE.asked.search(text, first, start)) is not None:
        return asked.span(1) if is_likely_password(asked[1]) else None
    line = text.rfind("\n", first, start) + 1
    stop = start - (text[start - 1] == "#")
    words = [match.span() for match in _RE.word.finditer(text, max(first, line), stop)]
    if _RE.control.match(text, end) is not None or text[start - 1] == "#":
        return _typed(text, words)
    if is_about(text, end):
        return None
    is_code = text[start:end].lower().endswith(_CODES)
    return _before_link(text, end, words, _may_be_code if is_code else may_be_password)


_INTO = frozenset(words("before.into"))


def _typed(text: str, words: list[Span]) -> Span | None:
    """Return what is typed `into the password field`."""
    for back in range(1, min(len(words), _MOST_ADJECTIVES)):
        if text[slice(*words[-back])].lower() in _INTO:
            return _nearest(text, words[:-back], 1, may_be_password)
    return None


def _before_link(
    text: str, end: int, words: list[Span], is_value: Callable[[str], bool]
) -> Span | None:
    """Return the value before the last link of words that lead to a name."""
    for back in range(1, min(len(words), _MOST_ADJECTIVES + 2)):
        word = text[slice(*words[-back])].lower().lstrip("(")
        if word in _POINTING:
            return _nearest(text, words[:-back], _MOST_BETWEEN, is_value)
        if word in _LINKS:
            before = words[:-back]
            if len(before) > 1 and text[slice(*before[-1])].lower() in _PRONOUNS:
                return _nearest(text, before[:-1], _MOST_BETWEEN, is_value)
            return _nearest(text, before, 1, is_value)
        if word.endswith(",") and back > 1 and _RE.clause_ends.match(text, end) is not None:
            return _nearest(text, words[: len(words) - back + 1], 1, is_value)
        if may_be_password(text[slice(*words[-back])]) and back < len(words):
            # "Is x still the password?"
            is_asked = text[slice(*words[-back - 1])].lower() in _COPULAS_FIRST
            return _nearest(text, words[: len(words) - back + 1], 1, is_value) if is_asked else None
        if word in _NO_ADJECTIVES or not word.replace("'", "").replace("-", "").isalpha():
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
