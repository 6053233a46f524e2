"""Read the value at an offset of a text: quoted or a word, but not a placeholder or code."""

import re

from evaltap.recorder.privacy.text.cookies import may_tell_session
from evaltap.recorder.privacy.text.names.secret_names import (
    Name,
    is_about_secret,
    kind_of_name,
)
from evaltap.recorder.privacy.text.names.secret_words import EXACT
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import (
    is_code,
    is_expression,
    is_message,
    is_placeholder,
    is_stand_in,
    monospaced,
    stands_here,
)
from evaltap.recorder.privacy.text.value_kinds import is_joined, is_measure, is_opaque, is_token


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
_WORD = re.compile(r"[^\s\"'`&<>]{0,4096}+")
_AMPERSAND_ENDS = re.compile(r"&(?:&|#|[\w.%-]{1,64}=|[a-z]{2,6};|[\s\"'`<>]|\Z)")
"""An `&` that ends the value: between parameters or commands, or of an entity."""


_WRAPPED = re.compile(
    r"(?:[\w.]{0,40}(?:Some|Just|[Pp]tr|String::from|\[\]byte|[Pp]lainText|valueOf|Secret|Str|str|bytes|Password)"
    r"|(?:\w{0,12}(?:64|url|parse)[\w.]{0,12})?(?:encode|decode|quote))\w{0,12}[( ][ ]?(?=b?[\"'])"
)


_PREFIX = re.compile(r"(?:u8|[bfruLRUN@$]{1,2})(?=[\"'])")
"""What may be before the quote of a string in code."""
_IN_BRACES = re.compile(r"\{([\"'])[^\"'\n]{3,256}\1\}")


def read_value(
    text: str, at: int, *, token: bool, sure: bool, said: bool = False, code: bool = True
) -> Span | None:
    """Return the span of the value that starts here, None when there is none or only a placeholder.

    `sure`: a sign marks it as a value; `said`: it is part of a sentence; `code`: it may be code.
    """
    if code and (wrapped := _WRAPPED.match(text, at)) is not None:
        at = wrapped.end()
    if (prefix := _PREFIX.match(text, at)) is not None:
        at = prefix.end()
    if text[at : at + 1] == "{":
        if _IN_BRACES.match(text, at) is not None:
            at += 1  # `password={'x'}`
        elif (span := monospaced(text, at)) is not None:
            return span
    if text[at : at + 1] in _QUOTES and at < len(text):
        return _quoted(text, at, token=token)
    if text[at - 1 : at] == "=" and _TWO_WORDS.match(text, at) is not None:
        code = False
    if stands_here(text, at) or (code and is_expression(text, at)):
        return None
    value = text[at : _end_of_word(text, at)].rstrip(".,;:!?)]}*")
    end = at + len(value)
    if len(value) < 4 or is_placeholder(value) or _is_name_of_variable(value):
        return None
    if code and (is_code(value) or text[end : end + 1] == "("):
        return None
    if text[end : end + 1] in (")", ",") and _ARGUMENT.fullmatch(value) is not None:
        return None
    if _NO_WORD.match(value) is not None or (not sure and _is_no_value(text, at, value)):
        return None
    if token:
        accepted = (
            is_token(value) if sure else is_opaque(value) or (is_token(value) and is_mixed(value))
        )
    elif sure:
        accepted = True
    else:
        last_on_line = text[end : end + 1] in ("", "\n", "\r")
        accepted = not _is_wordy(value.strip("*_[")) or (not said and last_on_line)
    return (at, end) if accepted else None


_NO_WORD = re.compile(r"//\w[\w-]*[.:]\w|--[a-z]+(?:-[a-z]+)*(?:=|\Z)")
"""A page, or the next option."""
_NO_VALUE = re.compile(
    r"[a-z_]{2,20}=[A-Za-z_]*|#\d{1,7}\b.*|[A-Za-z]{2,10}-\d{1,2}(?:\.\d{1,3})+"
    r"|(?i:argon2\w{0,2}|bcrypt|scrypt|pbkdf2\S{0,16}|base64|utf-?8|pkcs#?\d{1,2}|x\.?509|sha-?\d{1,3}|md5|oauth2|rfc\d{1,5})"
)


_TWO_WORDS = re.compile(r"[A-Z][a-z]{2,20}\.[A-Za-z][a-z]{2,20}(?=[\s;&]|\Z)")
"""A password of two words in a file of settings; in code, an attribute has blanks around its `=`."""
_ARGUMENT = re.compile(r"_?[a-z]+(?:_[a-z]+)+")
"""A variable that is handed on: `Plugin(secret_key=key_bytes)`."""


def _is_no_value(text: str, at: int, word: str) -> bool:
    """Return whether a word is a measure or, without a sign before it, an id, a format or a setting."""
    if text[max(0, at - 2) : at].rstrip()[-1:] in (":", "="):
        return _SHARE.fullmatch(word) is not None
    inside = word.lstrip("([{")
    if inside != word and _ID.fullmatch(inside) is not None:
        return True
    return is_measure(inside) or _NO_VALUE.fullmatch(inside) is not None


_ID = re.compile(r"[A-Z]{1,8}-\d{1,7}|[a-z_]{2,20}=\d{1,12}")
_SHARE = re.compile(r"v?\d{1,3}(?:\.\d{1,3}){1,3}%?|\d{1,3}%|(?:amd|arm)64(?:v\d)?|x86_64|aarch64")
"""A version, a share, a processor."""


def _end_of_word(text: str, at: int) -> int:
    match = _WORD.match(text, at)
    end = match.end() if match else at
    while text.startswith("&", end) and end - at < _LONGEST_WORD:
        if _AMPERSAND_ENDS.match(text, end) is not None:
            return end
        match = _WORD.match(text, end + 1)
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
    return _VARIABLE.fullmatch(name) is not None and _is_name(name)


def _is_name(value: str) -> bool:
    return kind_of_name(value) in (Name.SECRET, Name.TOKEN)


_VARIABLE = re.compile(r"[A-Za-z_]+|[$@:&%{]{1,2}[A-Za-z_]+[a-z_]\d?|_?[A-Za-z]\w{0,60}_[A-Za-z]+")
_WORDS_OF_NAME = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z]+)+|[a-z]+(?:[A-Z][a-z]+)+")
"""What a program calls a secret: `API_KEY_HEADER = "x-api-key"`."""
_COMMAND = re.compile(
    r"(?:cat|pass|vault|op|aws|gcloud|az|kubectl|openssl|security|gpg|sops|lpass|bw|head|jq|curl|doppler|heroku|pwgen) "
)
"""A program of which a shell puts the output in place of the backquotes."""


_MENTIONED = re.compile(
    r"(?:[a-z.]*(?:_[a-z.]*)+|[A-Z.]*(?:_[A-Z.]*)+)(?:\(\))?|[A-Za-z_.]+(?:\(\)|=[\"']?[A-Za-z]*[\"']?)"
)
"""A name, a call or a setting in quotes of which a text speaks."""


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
    if trimmed.lower() in EXACT or says_other(trimmed):
        return None
    may_be_name = (token and trimmed.isalpha()) or _WORDS_OF_NAME.fullmatch(trimmed)
    if may_be_name and _is_name(trimmed):
        return None
    if quote == "`" and _COMMAND.match(trimmed) is not None:
        return None
    is_bare = text[at - 1 : at] in " \t" and text[at - 2 : at - 1].isalnum()
    if is_bare and (trimmed.isalpha() or _MENTIONED.fullmatch(trimmed) is not None):
        # Only a space in between: the quotes may belong to any word.
        return None
    return begin, begin + len(trimmed)


_LINE = re.compile(r"([\"'`]{0,4}[ ]?[\"'`]{0,2})([^\r\n\"'`]{0,4096}+)")


_WHOLE_LINE = re.compile(r"()([^\r\n]{0,4096}+)")


def rest_of_header(text: str, at: int, *, cookie: bool, quoted: bool) -> Span | None:
    """Return the span of a header's value: up to the closing quote or the end of the line."""
    match = (_LINE if quoted or text[at : at + 1] in ("'", '"', "`") else _WHOLE_LINE).match(
        text, at
    )
    if match is None:
        return None
    begin, value = match.start(2), match[2].rstrip(" \t,;}])\"'`")
    if "  " in value:  # an escaped line break
        value = value.split("  ", 1)[0]
    looks_secret = "=" in value or any(map(is_opaque, value.split()))
    if cookie and not looks_secret:
        looks_secret = is_token(value)
    if not cookie and not looks_secret:
        looks_secret = any(map(_may_be_credential, value.split()))
    if len(value) < 6 or not looks_secret or is_placeholder(value) or is_code(value):
        return None
    if not quoted and text[at : at + 1] not in ("'", '"', "`") and _is_typed(text, at):
        return None
    if cookie and "=" not in value and " " in value:
        return None
    if cookie and "=" in value and not may_tell_session(value):
        return None
    return begin, begin + len(value)


def _is_typed(text: str, at: int) -> bool:
    """Return whether a parameter's type or an expression is here, not a header's value."""
    return is_expression(text, at) or is_code(text[at : _end_of_word(text, at)])


def _may_be_credential(word: str) -> bool:
    return len(word) >= 6 and any(map(str.isdigit, word))


_WORD_LIST = re.compile(r"[\"'`]?((?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})")


def word_list(text: str, at: int) -> Span | None:
    """Return the span of a recovery phrase's words, or of one word."""
    match = _WORD_LIST.match(text, at)
    return match.span(1) if match else read_value(text, at, token=False, sure=True)


def is_mixed(value: str) -> bool:
    """Return whether a word mixes digits with other characters, or has characters no word has."""
    digits = sum(map(str.isdigit, value))
    if is_joined(value):
        return True
    if any(sign in value for sign in "!@#$%^&*+=?") and any(map(str.isalpha, value)):
        return not value.endswith(("?", "!", "*", "=")) or digits > 0
    return len(value) >= 4 and digits > 0
