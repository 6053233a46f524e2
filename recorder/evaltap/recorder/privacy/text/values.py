"""Read the value at an offset of a text: quoted or a word, but not a placeholder or code."""

import re

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.secret_names import EXACT, Name, is_about_secret, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import (
    is_code,
    is_expression,
    is_joined,
    is_measure,
    is_message,
    is_opaque,
    is_placeholder,
    is_stand_in,
    is_token,
    monospaced,
    stands_here,
)

_RE = patterns("values")


def inside(match: re.Match[str] | None, token: bool) -> Span | None:
    """Return the stripped span of a match's first group; None when it is not a value."""
    if match is None:
        return None
    value = match[1].strip()
    if not value or is_placeholder(value) or is_stand_in(value):
        return None
    if token and not is_token(value):
        return None
    begin = match.start(1) + match[1].find(value)
    return begin, begin + len(value)


def says_other(value: str) -> bool:
    """Return whether all of a value is no secret: a variable, a form's message, talk of a secret."""
    return is_stand_in(value) or is_message(value) or is_about_secret(value)


_QUOTES = "\"'`"
_LONGEST_WORD = 4096


def read_value(
    text: str, at: int, *, token: bool, sure: bool, said: bool = False, code: bool = True
) -> Span | None:
    """Return the span of the value that starts here, None when there is none or only a placeholder.

    `sure`: a sign marks it as a value; `said`: it is part of a sentence; `code`: it may be code.
    """
    if (token or not sure) and _RE.plain_word.match(text, at) is not None:
        return None
    at = _behind_wrapping(text, at, code=code)
    if text[at : at + 1] == "{":
        if _RE.in_braces.match(text, at) is not None:
            at += 1  # `password={'x'}`
        elif (span := monospaced(text, at)) is not None:
            return span
    if text[at : at + 1] in _QUOTES and at < len(text):
        return _quoted(text, at, token=token)
    if text[at - 1 : at] == "=" and _RE.two_words.match(text, at) is not None:
        code = False
    if stands_here(text, at) or (code and is_expression(text, at)):
        return None
    value = text[at : _end_of_word(text, at)].rstrip(".,;:!?)]}*")
    end = at + len(value)
    if _is_other(text, at, value, sure=sure, code=code):
        return None
    if token:
        accepted = (
            is_token(value) if sure else is_opaque(value) or (is_token(value) and is_mixed(value))
        )
    else:
        last_on_line = text[end : end + 1] in ("", "\n", "\r")
        accepted = sure or not _is_wordy(value.strip("*_[")) or (not said and last_on_line)
    return (at, end) if accepted else None


def _behind_wrapping(text: str, at: int, *, code: bool) -> int:
    """Return the offset behind what may stand before a value: a call around it, a prefix of its quotes."""
    if code and (wrapped := _RE.wrapped.match(text, at)) is not None:
        at = wrapped.end()
    prefix = _RE.prefix.match(text, at)
    return at if prefix is None else prefix.end()


def _is_other(text: str, at: int, value: str, *, sure: bool, code: bool) -> bool:
    """Return whether a word is no secret, whatever its name: a placeholder, code, a measure."""
    if len(value) < 4 or is_placeholder(value) or _is_name_of_variable(value):
        return True
    end = at + len(value)
    if code and (is_code(value) or text[end : end + 1] == "("):
        return True
    if text[end : end + 1] in (")", ",") and _RE.argument.fullmatch(value) is not None:
        return True
    return _RE.no_word.match(value) is not None or (not sure and _is_no_value(text, at, value))


def _is_no_value(text: str, at: int, word: str) -> bool:
    """Return whether a word is a measure or, without a sign before it, an id, a format or a setting."""
    if text[max(0, at - 2) : at].rstrip()[-1:] in (":", "="):
        return _RE.share.fullmatch(word) is not None
    inside = word.lstrip("([{")
    if inside != word and _RE.id.fullmatch(inside) is not None:
        return True
    return is_measure(inside) or _RE.no_value.fullmatch(inside) is not None


def _end_of_word(text: str, at: int) -> int:
    match = _RE.word.match(text, at)
    end = match.end() if match else at
    while text.startswith("&", end) and end - at < _LONGEST_WORD:
        if _RE.ampersand_ends.match(text, end) is not None:
            return end
        match = _RE.word.match(text, end + 1)
        end = match.end() if match else end + 1
    return end


def _is_wordy(value: str) -> bool:
    return (
        not is_joined(value)
        and value.replace("-", "").replace("'", "").replace("/", "").replace("_", "").isalpha()
    )


def _is_name_of_variable(value: str) -> bool:
    """Return whether it is a secret's name: `password=password`, `SET password = :password`."""
    name = value.partition(")")[0]  # `filter_by(token=token).first()`
    return _RE.variable.fullmatch(name) is not None and _is_name(name)


def _is_name(value: str) -> bool:
    return kind_of_name(value) in (Name.SECRET, Name.TOKEN)


def _quoted(text: str, at: int, *, token: bool) -> Span | None:
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    begin = at + len(quote)
    end = text.find(quote, begin, begin + 4096)
    value = text[begin : end if end >= 0 else begin + 4096]
    if end < 0:
        value = value.split("\n", 1)[0]
    trimmed = value.rstrip()
    if len(trimmed) < 3 or is_placeholder(trimmed) or (token and not is_token(trimmed)):
        return None
    if _says_no_value(trimmed, token=token):
        return None
    if quote == "`" and _RE.command.match(trimmed) is not None:
        return None
    is_bare = text[at - 1 : at] in " \t" and text[at - 2 : at - 1].isalnum()
    if is_bare and (trimmed.isalpha() or _RE.mentioned.fullmatch(trimmed) is not None):
        # Only a space in between: the quotes may belong to any word.
        return None
    return begin, begin + len(trimmed)


def _says_no_value(value: str, *, token: bool) -> bool:
    """Return whether a text in quotes is the name of a secret or talks about one."""
    if value.lower() in EXACT or says_other(value):
        return True
    may_be_name = (token and value.isalpha()) or _RE.words_of_name.fullmatch(value) is not None
    return may_be_name and _is_name(value)


def rest_of_header(text: str, at: int, *, cookie: bool, quoted: bool) -> Span | None:
    """Return the span of a header's value: up to the closing quote or the end of the line."""
    quoted = quoted or text[at : at + 1] in ("'", '"', "`")
    if (match := (_RE.line if quoted else _RE.whole_line).match(text, at)) is None:
        return None
    begin, value = match.start(2), match[2].rstrip(" \t,;}])\"'`")
    if "  " in value:  # an escaped line break
        value = value.split("  ", 1)[0]
    if len(value) < 6 or is_placeholder(value) or is_code(value):
        return None
    if not quoted and _is_typed(text, at):
        return None
    is_secret = _is_cookie(value) if cookie else _has_credential(value)
    return (begin, begin + len(value)) if is_secret else None


def _is_cookie(value: str) -> bool:
    if "=" in value:
        return may_tell_session(value)
    return " " not in value and (any(map(is_opaque, value.split())) or is_token(value))


def _has_credential(value: str) -> bool:
    return "=" in value or any(is_opaque(one) or _may_be_credential(one) for one in value.split())


def _is_typed(text: str, at: int) -> bool:
    """Return whether a parameter's type or an expression is here, not a header's value."""
    return is_expression(text, at) or is_code(text[at : _end_of_word(text, at)])


def _may_be_credential(word: str) -> bool:
    return len(word) >= 6 and any(map(str.isdigit, word))


def word_list(text: str, at: int) -> Span | None:
    """Return the span of a recovery phrase's words, or of one word."""
    match = _RE.word_list.match(text, at)
    return match.span(1) if match else read_value(text, at, token=False, sure=True)


def is_mixed(value: str) -> bool:
    """Return whether a word mixes digits with other characters, or has characters no word has."""
    digits = sum(map(str.isdigit, value))
    if is_joined(value):
        return True
    if any(sign in value for sign in "!@#$%^&*+=?") and any(map(str.isalpha, value)):
        return not value.endswith(("?", "!", "*", "=")) or digits > 0
    return len(value) >= 4 and digits > 0


_ATTRIBUTES = frozenset(("path", "domain", "expires", "max-age", "samesite", "version", "priority"))


def may_tell_session(header: str) -> bool:
    """Return whether any cookie of a header may be that of a session."""
    pairs = [
        pair
        for pair in _RE.cookie.findall(header)
        if pair[0].lower().lstrip("$") not in _ATTRIBUTES
    ]
    return not pairs or any(_is_of_session(*pair) for pair in pairs)


def _is_of_session(name: str, value: str) -> bool:
    if not value or is_placeholder(value) or _RE.no_session.fullmatch(value):
        return False
    if _RE.of_session.search(name) and "consent" not in name.lower():
        return True
    return is_token(value) or _RE.setting.fullmatch(value) is None
