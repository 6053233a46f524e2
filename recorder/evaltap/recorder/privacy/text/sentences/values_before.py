"""Find the secret before its name: `x is the password`, `use x as password`, `x (my password)`."""

import re
from collections.abc import Callable

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.sentences.topics import is_about
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import is_likely_password, may_be_password
from evaltap.recorder.privacy.text.values import is_mixed

_COMPARED = re.compile(
    r"(?:[\"'](?=[^\"'\n]{4,64}[\"'] ?[!=]==? ?\Z)|[Ee]q\w{0,8}!?\([ ]?[\"'])([^\"'\n]{4,64})[\"'](?: ?[!=]==? ?|,[ ])\Z"
)
_WORD = re.compile(r"\S+")
_LINKS = frozenset(
    listed("""
is as for was are being into ist als es como est comme è come é är som er jest to jako это є е је je είναι هي هو היא הוא là
adalah ni 是 为 este són és
""")
)
_PRONOUNS = frozenset(
    listed("""
that this it das dies dat dit det der to это це esa esta eso essa esse isso questa questo ce cette tämä هذه هذا זו
""")
)
_POINTING = frozenset(listed("that's thats it's this's c'est c’est that’s it’s"))
_NO_ADJECTIVES = frozenset(
    listed("""
not no never in of from with about on at to a's nicht kein keine non nessuna pas ne nie не mit von dans avec con en sin
for if and or und oder et y e without wrong invalid falsch
""")
)
_COPULAS_FIRST = frozenset(listed("is was ist war es est era è é är er jest"))
_LONGEST_BEFORE = 100
_MOST_ADJECTIVES, _MOST_BETWEEN = 4, 4
_CJK_BEFORE = re.compile(
    r"([!-~]{4,64})[ ]?(?:是|为|為|が|は|가|이|는|은|을|를)(?:[ ]?[^\x00-\x7f]){0,10}[ ]?\Z"
)
_ASIDE = re.compile(
    r"([^\s\"'`<>(),;]{6,64})[\"'`]?[ ]\((?:my |the |your |our )?(?:[a-z-]{2,12} ){0,2}\Z"
)
"""What is before a name in parentheses: x (my password)."""


_ASKED = re.compile(
    r"([^\s\"'`<>(),;]{4,64})[\"'`]?[ ](?:when|if|once)[ ][a-z ]{0,24}?(?:ask|prompt)\w{0,3}(?:[ ]you)?[ ]for[ ](?:the |a |your )?\Z"
)
"""Enter x when it asks for the | password."""


def value_before(text: str, start: int, end: int) -> Span | None:
    """Return the value in `x is the password`, `use x as password`, `with x? that's the password`."""
    first = max(0, start - _LONGEST_BEFORE)
    if text[start] > "\u2e80":
        match = _CJK_BEFORE.search(text, first, start)
        return match.span(1) if match is not None and may_be_password(match[1]) else None
    if text[start - 1 : start] not in (" ", "(", "#"):
        return None
    compared = _COMPARED.search(text, first, start)
    if compared is not None:
        return compared.span(1) if is_mixed(compared[1]) else None
    if (aside := _ASIDE.search(text, first, start)) is not None and text[end : end + 1] == ")":
        return aside.span(1) if is_likely_password(aside[1]) else None
    if (asked := _ASKED.search(text, first, start)) is not None:
        return asked.span(1) if is_likely_password(asked[1]) else None
    line = text.rfind("\n", first, start) + 1
    stop = start - (text[start - 1] == "#")
    words = [match.span() for match in _WORD.finditer(text, max(first, line), stop)]
    if _CONTROL.match(text, end) is not None or text[start - 1] == "#":
        return _typed(text, words)
    if is_about(text, end):
        return None
    is_code = text[start:end].lower().endswith(_CODES)
    return _before_link(text, end, words, _may_be_code if is_code else may_be_password)


_CONTROL = re.compile(r"(?i)[ -](?:field|input|box|textbox|prompt|feld|champ|campo|veld|pole)\b")
_INTO = frozenset(listed("in into im ins dans en nel no w в to"))


def _typed(text: str, words: list[Span]) -> Span | None:
    """Return what is typed `into the password field`."""
    for back in range(1, min(len(words), _MOST_ADJECTIVES)):
        if text[slice(*words[-back])].lower() in _INTO:
            return _nearest(text, words[:-back], 1, may_be_password)
    return None


_CLAUSE_ENDS = re.compile(r"[.!?)\n]|\Z")


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
        if word.endswith(",") and back > 1 and _CLAUSE_ENDS.match(text, end) is not None:
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
_CODE = re.compile(r"(?:[A-Z]{1,3}-)?\d{4,8}")


def _may_be_code(value: str) -> bool:
    return _CODE.fullmatch(value) is not None or may_be_password(value)
