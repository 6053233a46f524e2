"""Read the value of a name in quotes: `"name": "password", "value": "x"`, `['password', 'x']`."""

import re

from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.values import inside, is_mixed, read_value

_PAIR = re.compile(
    r"[\"'`]?(?:[^<>{}\[\]=:\n]{0,4}|[ \t,;]{1,4}[^<>{}=:]{1,24}[=:][ \t]?[\"'][^\"'<>{}]{0,60}[\"'])"
    r"[ \t,;]{0,4}\n?[ \t-]{0,24}[\"'`]?(?i:value|val|content|text|default|data)[\"'`]?[ \t]{0,3}(?:=>|[=:])"
    r"[ \t]{0,3}(?=\S)"
)
_HELD = re.compile(
    r"[\"'][^<>\n]{0,60}>\s{0,8}(?:<[\w:]{0,40}(?i:value|string|text)(?: [^<>\n]{0,80})?>\s{0,8})?([^<>\s][^<>]{0,4095}+)</"
)
DEFAULT = re.compile(r"\"?[ \t]{0,4}\{[^{}]{0,400}?\b(?:default|value)[ \t]{0,16}=[ \t]{0,4}(?=\")")
"""What is between the name of a Terraform variable and its default."""
_OBJECT = re.compile(
    r"[\"'][ \t]{0,4}:[ \t]{0,4}\{[^{}]{0,400}?[\"'](?:value|plaintext|plainText|data)[\"'][ \t]{0,4}:[ \t]{0,4}(?=[\"'])"
)
_FORM_FIELD = re.compile(r"[\"']\r?\n(?:[\w-]{1,40}:[^\r\n]{0,128}\r?\n){0,4}\r?\n")
"""What is between the name of a multipart form's field and its value."""
_NUMBERED = re.compile(r"[\"']\n[ ]{0,4}\d{1,3}\)[ ](?=[\"'])")
"""What is between name and value in the answer of a Redis client."""
_TUPLE = re.compile(r"[\"'`][ \t]?,[ \t]{0,16}(?=([\"'`][^\"'`]{1,4096}[\"'`][ \t]?)[,)\]}])")
_WITH_VALUE = re.compile(
    r"[\"'`][ ](?:with|has|to|is|(?:(?:was|is|has been) )?(?:set|changed|updated|reset) to)(?: the)?(?: value)?[ ](?=[\"'`])"
)
_VALUE_IN_FRONT = re.compile(
    r"(?i)[\s{,\"'](?:value|content|val)[\"']?[ ]{0,2}[=:][ ]{0,2}[\"']([^\"'<>]{3,256})[\"'][^<>{}]{0,120}\Z"
)
_BOUND = re.compile(r"[\"'] to [\w.]{1,60}:\s{1,8}(?:Property: \S{1,80}\s{1,8})?Value: (?=\S)")
"""What Spring says of a property that it cannot bind."""
HAS_VALUE = re.compile(
    r"[\"'`]?(?:[ ](?:has|had|with|contains|got)(?:[ ][a-z]{2,12}){0,3}|[:,;]?[ ](?:rejected|invalid|bad|actual|given))[ ]value:?[ ](?:\[(?=\S)|(?=[\"'`]|\S{6,}))"
)
_VALUE_OF = re.compile(
    r"[\"']([^\"'\n]{4,128})[\"'][ ](?:at|for|of|in|as|(?:is|was) not (?:a )?valid(?: value)? for)[ ][\"'`]?\Z"
)
"""What an error says of a value, before its name: `Value 'x' at 'password'`."""
LINE_IN_FRONT = re.compile(
    r"(?:\A|\n)[ \t-]{0,40}(?:value|val):[ ][\"']?([^\s\"'{}]{3,256})[\"']?[ ]{0,4}\n[ \t]{0,40}(?:name|key):[ ][\"']?\Z"
)
_AFTER_QUOTED = (_WITH_VALUE, HAS_VALUE, _BOUND, _NUMBERED, _FORM_FIELD, DEFAULT, _OBJECT)
"""What may be between a name in quotes and its value."""


def after_quoted(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether a form of a quoted name applies, and its value."""
    in_tuple = text[start - 2 : start - 1] in ("(", "[", "{", " ")
    for pattern in (_PAIR, *_AFTER_QUOTED):
        if pattern is _FORM_FIELD and not text.startswith("name=", start - 6):
            continue
        if (match := pattern.match(text, end)) is not None:
            return True, read_value(text, match.end(), token=token, sure=True)
    if in_tuple and (match := _TUPLE.match(text, end)) is not None:
        span = read_value(text, match.end(), token=token, sure=True)
        # Of many names in a row none is the value of another.
        is_pair = text[start - 2] in "([" and text[match.end(1) :][:1] in (")", "]")
        is_value = span is not None and (is_pair or is_mixed(text[slice(*span)]))
        return True, span if is_value else None
    if (match := _HELD.match(text, end)) is not None:
        return True, inside(match, token)
    first = max(0, start - 300)
    if (match := _VALUE_OF.search(text, first, start)) is not None and is_mixed(match[1]):
        return True, match.span(1)
    match = _VALUE_IN_FRONT.search(text, first, start) or LINE_IN_FRONT.search(text, first, start)
    return match is not None, match.span(1) if match is not None else None
