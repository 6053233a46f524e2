"""Find secrets next to their names in text: `password = x`, `"api_key": "x"`, `<pin>x</pin>`.

`name_places` finds the names; only a name that means a secret triggers a search for its value: in
markup, in a cell, behind an operator, in a call here, in a sentence in `sentences`. Every step reads a
bounded part of the text, so the cost grows linearly with its length.
"""

import re
from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.text.assignments.cells import aligned, below, next_cell
from evaltap.recorder.privacy.text.assignments.mentions import is_postcode_in_text, is_reference
from evaltap.recorder.privacy.text.assignments.operators import OPERATOR, behind_operator, is_header
from evaltap.recorder.privacy.text.assignments.quoted_names import (
    DEFAULT,
    HAS_VALUE,
    LINE_IN_FRONT,
    after_quoted,
)
from evaltap.recorder.privacy.text.names.name_places import kind_at
from evaltap.recorder.privacy.text.names.secret_names import Name
from evaltap.recorder.privacy.text.sentences.values_after import other_said, said
from evaltap.recorder.privacy.text.sentences.values_before import value_before
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import is_likely_password
from evaltap.recorder.privacy.text.values import inside, is_mixed, read_value


def assigned(text: str, names: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans of values next to those of the names that belong to a secret."""
    done = header_end = 0
    for start, end in names:
        if start < done:
            continue
        kind = kind_at(text, start, end)
        if kind is not Name.SECRET and kind is not Name.TOKEN:
            continue
        if text[start - 1 : start] in ("$", "{", ":", " ", "-") and is_reference(text, start, end):
            continue
        if is_header(text[start:end]):
            # The rest of the line is its value: header names inside do not count.
            if start < header_end:
                continue
            line_end = text.find("\n", end, end + 4096)
            header_end = line_end if line_end >= 0 else end + 4096
        span = _value_after(text, start, end, token=kind is Name.TOKEN)
        if span is None and kind is Name.SECRET:
            span = value_before(text, start, end)
        if span is not None and not is_postcode_in_text(text, start, end, span):
            done = max(end, span[1])
            yield span
            if kind is Name.SECRET and (other := other_said(text, span[1])) is not None:
                done = other[1]
                yield other


def _value_after(text: str, start: int, end: int, *, token: bool) -> Span | None:
    applies, span = _in_markup(text, start, end, token=token)
    if applies:
        return span
    name, before = text[start:end], text[start - 1 : start]
    if before in "\"'`" and before:
        applies, span = after_quoted(text, start, end, token=token)
        if applies:
            return span
    elif (match := _PAIR_LINE.match(text, end) or _REPORTED.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=True)
    if (match := _NEXT_CELL.match(text, end) or _NEXT_INPUT.match(text, end)) is not None:
        return inside(match, token)
    applies, span = aligned(text, start, end, token=token)
    if applies:
        return span
    if (match := OPERATOR.match(text, end)) is not None:
        if match[1] == "|":
            return next_cell(text, start, end, token=token)
        return behind_operator(text, match, name, token=token)
    if before == "-" and (match := _FLAG.match(text, end)) is not None:
        if "$" in name or _NO_VALUE_OF_FLAG.match(text, match.end()) is not None:
            return None
        # `--secret-id` may be that of Vault, or only a name; `--tag-key Project` is none.
        span = read_value(text, match.end(), token=token and name[-2:] == "id", sure=True)
        return span if span is None or not token or is_mixed(text[slice(*span)]) else None
    if (match := _CALL.match(text, end)) is not None:
        if _GETTER.match(name) is not None or _METHOD.search(name) is not None:
            return None
        return read_value(text, match.end(), token=token, sure=True)
    if not token:
        applies, span = _in_other_form(text, start, end)
        if applies:
            return span
    return said(text, start, end, token=token)


def _in_markup(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether the name is that of an element or on a line of its own, and the value."""
    if _is_tag(text, start):
        return True, inside(_ELEMENT.match(text, end), token)
    if text[start - 1 : start] == ">" and (match := _PLIST.match(text, end)) is not None:
        return True, inside(match, token)
    span = below(text, start, end)
    return span is not None, span


def _is_tag(text: str, start: int) -> bool:
    """Return whether a name is that of a tag, `<ns:password>`, or of what a tag holds, `<parameter=password>`."""
    before = text[start - 1 : start]
    if before == ":":
        return _PREFIXED_TAG.search(text, max(0, start - 44), start) is not None
    if before == "=":
        return _TAG_OF.search(text, max(0, start - 44), start) is not None
    return before == "<"


def _in_other_form(text: str, start: int, end: int) -> tuple[bool, Span | None]:
    """Return whether a secret's name has its value in a call, in brackets or on the line before."""
    before, name = text[start - 1 : start], text[start:end]
    if before == "[" and (match := _IN_BRACKETS.match(text, end)) is not None:
        return True, match.span(1) if is_likely_password(match[1]) else None
    if before == " " and (match := LINE_IN_FRONT.search(text, max(0, start - 300), start)):
        return True, match.span(1)
    is_constant = name.isupper() and "_" in name
    for pattern in (_IN_CALL, HAS_VALUE, DEFAULT, *((_OF_CONSTANT,) if is_constant else ())):
        if (match := pattern.match(text, end)) is not None:
            span = read_value(text, match.end(), token=False, sure=True)
            return True, span if span and is_mixed(text[slice(*span)]) else None
    return False, None


_CALL = re.compile(r"[({][ \t]{0,4}(?=[\"'`])")
_REPORTED = re.compile(r"(?::|[ \t]{0,2}\n)[^\n]{0,200}?\binput_value=(?=[\"'])")
_ELEMENT = re.compile(
    r"[^<>\n]{0,120}>\s{0,8}(?:<(?i:value|string|text)>\s{0,8})?(?:<!\[CDATA\[)?((?:(?!\]\]>)[^<>]){1,4096}+)(?:\]\]>)?</?"
)
_PLIST = re.compile(
    r"</[\w:]{1,40}>\s{0,16}<[\w:]{0,40}(?:string|data|value|val|text|content)>\s{0,16}([^<>]{1,4096}+)</"
)
_FLAG = re.compile(r"[ \t]{1,4}(?:\\?\n[ \t]{0,16})?")
_NEXT_CELL = re.compile(
    r":?[ ]?</(?:td|th|dt|label|b|strong|span|div)>(?:\s|&nbsp;){0,40}<(?:td|dd|span|code|div|p|b|strong|em|i)(?: [^<>\n]{0,120})?>\s{0,8}(?:<(?:code|b|span|strong|em|i|pre|tt|kbd)(?: [^<>\n]{0,80})?>){0,2}([^<>\s][^<>]{0,4095}+)</"
)
_NEXT_INPUT = re.compile(
    r":?[ ]?</(?:td|th|dt|label|b|strong|span|div)>\s{0,40}(?:<(?:td|dd|div|span)(?: [^<>\n]{0,120})?>\s{0,8})?"
    r"<input [^<>\n]{0,200}?\bvalue=[\"']([^\"'<>\n]{1,256}+)[\"']"
)
_IN_CALL = re.compile(
    r"\)\.(?:not\.)?(?:to(?:Be|Equal|StrictEqual)|isEqualTo|to\.(?:be|equal|eq))\([ ]?(?=[\"'`])|(?:[\]'\"`]{1,3}|(?<=#password))(?:\){1,3}\.\w{2,20}\([ ]?|[ ]?,[ ]?)(?=[\"'`])"
)
_TAG_OF = re.compile(r"<[\w.-]{1,40}=\Z")
_PREFIXED_TAG = re.compile(r"<[\w.-]{1,40}:\Z")
_IN_BRACKETS = re.compile(r"\][ ]{1,4}([^\s\"'<>]{6,64})[ ]{0,4}(?=\n|\Z)")
_OF_CONSTANT = re.compile(r",[ ]{0,4}(?=[\"'])")
"""Of `curl_setopt($c, CURLOPT_USERPWD, 'bob:x')`."""
_NO_VALUE_OF_FLAG = re.compile(r"(?:id|type|src)=|(?:flag|option|argument|parameter)s?\b")
"""What `docker build --secret id=npmrc` is given, and how a text speaks of a flag."""
_METHOD = re.compile(
    r"(?i)(?:\.(?:encode|decode|r?split|l?strip|format|replace|join|startswith|endswith|get|pop|find|index|match|search|test"
    r"|includes|has|contains|lower|upper|trim|slice|log|debug|info|warn|error)|error|exception|warning)\Z"
)
"""What is done with a secret, and what is said of one, is given no secret."""
_GETTER = re.compile(
    r"(?i)(?:.{0,40}[._])?(?:get|prompt|read|ask|has|find|load|fetch|is)(?:_|(?-i:[A-Z]))"
)
_PAIR_LINE = re.compile(
    r"(?i:[ \t]{0,4}\n[ \t]{0,24}|[ ]?[,;|][ \t]{1,4})(?i:(?:new )?(?:value|content|default|data))(?::[ \t]{1,4}|=)(?=\S)"
)
