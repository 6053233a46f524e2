"""Find secrets next to their names in text: `password = x`, `"api_key": "x"`, `<pin>x</pin>`.

`name_places` finds the names; only a name that means a secret triggers a search for its value: in
markup, in a cell, behind an operator, in a call here, in a sentence in `sentences`. Every step reads a
bounded part of the text, so the cost grows linearly with its length.
"""

from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.assignments.cells import aligned, below, next_cell
from evaltap.recorder.privacy.text.assignments.mentions import is_postcode_in_text, is_reference
from evaltap.recorder.privacy.text.assignments.operators import behind_operator, is_header
from evaltap.recorder.privacy.text.assignments.quoted_names import after_quoted
from evaltap.recorder.privacy.text.names.name_places import kind_at
from evaltap.recorder.privacy.text.names.secret_names import Name
from evaltap.recorder.privacy.text.sentences.values_after import other_said, said
from evaltap.recorder.privacy.text.sentences.values_before import value_before
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import is_likely_password
from evaltap.recorder.privacy.text.values import inside, is_mixed, read_value

_RE = patterns("assigned")
_QUOTED = patterns("quoted")


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
    elif (match := _RE.pair_line.match(text, end) or _RE.reported.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=True)
    if (match := _RE.next_cell.match(text, end) or _RE.next_input.match(text, end)) is not None:
        return inside(match, token)
    applies, span = aligned(text, start, end, token=token)
    if applies:
        return span
    if (match := patterns("operators").operator.match(text, end)) is not None:
        if match[1] == "|":
            return next_cell(text, start, end, token=token)
        return behind_operator(text, match, name, token=token)
    if before == "-" and (match := _RE.flag.match(text, end)) is not None:
        if "$" in name or _RE.no_value_of_flag.match(text, match.end()) is not None:
            return None
        # `--secret-id` may be that of Vault, or only a name; `--tag-key Project` is none.
        span = read_value(text, match.end(), token=token and name[-2:] == "id", sure=True)
        return span if span is None or not token or is_mixed(text[slice(*span)]) else None
    if (match := _RE.call.match(text, end)) is not None:
        if _RE.getter.match(name) is not None or _RE.method.search(name) is not None:
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
        return True, inside(_RE.element.match(text, end), token)
    if text[start - 1 : start] == ">" and (match := _RE.plist.match(text, end)) is not None:
        return True, inside(match, token)
    span = below(text, start, end)
    return span is not None, span


def _is_tag(text: str, start: int) -> bool:
    """Return whether a name is that of a tag, `<ns:password>`, or of what a tag holds, `<parameter=password>`."""
    before = text[start - 1 : start]
    if before == ":":
        return _RE.prefixed_tag.search(text, max(0, start - 44), start) is not None
    if before == "=":
        return _RE.tag_of.search(text, max(0, start - 44), start) is not None
    return before == "<"


def _in_other_form(text: str, start: int, end: int) -> tuple[bool, Span | None]:
    """Return whether a secret's name has its value in a call, in brackets or on the line before."""
    before, name = text[start - 1 : start], text[start:end]
    if before == "[" and (match := _RE.in_brackets.match(text, end)) is not None:
        return True, match.span(1) if is_likely_password(match[1]) else None
    if before == " " and (match := _QUOTED.line_in_front.search(text, max(0, start - 300), start)):
        return True, match.span(1)
    is_constant = name.isupper() and "_" in name
    for pattern in (
        _RE.in_call,
        _QUOTED.has_value,
        _QUOTED.default,
        *((_RE.of_constant,) if is_constant else ()),
    ):
        if (match := pattern.match(text, end)) is not None:
            span = read_value(text, match.end(), token=False, sure=True)
            return True, span if span and is_mixed(text[slice(*span)]) else None
    return False, None
