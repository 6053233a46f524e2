"""Read the value of a name in quotes: `"name": "password", "value": "x"`, `['password', 'x']`."""

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.values import inside, is_mixed, read_value

_RE = patterns("quoted")

_BETWEEN = (
    "pair",
    "with_value",
    "has_value",
    "bound",
    "numbered",
    "form_field",
    "default",
    "object",
)
"""What may be between a name in quotes and its value."""


def after_quoted(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether a form of a quoted name applies, and its value."""
    in_tuple = text[start - 2 : start - 1] in ("(", "[", "{", " ")
    for name in _BETWEEN:
        if name == "form_field" and not text.startswith("name=", start - 6):
            continue
        if (match := getattr(_RE, name).match(text, end)) is not None:
            return True, read_value(text, match.end(), token=token, sure=True)
    if in_tuple and (match := _RE.tuple.match(text, end)) is not None:
        span = read_value(text, match.end(), token=token, sure=True)
        # Of many names in a row none is the value of another.
        is_pair = text[start - 2] in "([" and text[match.end(1) :][:1] in (")", "]")
        is_value = span is not None and (is_pair or is_mixed(text[slice(*span)]))
        return True, span if is_value else None
    if (match := _RE.held.match(text, end)) is not None:
        return True, inside(match, token)
    first = max(0, start - 300)
    if (match := _RE.value_of.search(text, first, start)) is not None and is_mixed(match[1]):
        return True, match.span(1)
    match = _RE.value_in_front.search(text, first, start) or _RE.line_in_front.search(
        text, first, start
    )
    return match is not None, match.span(1) if match is not None else None
