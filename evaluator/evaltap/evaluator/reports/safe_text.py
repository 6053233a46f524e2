"""Make recorded text safe for readers, on a page, in a terminal, or in XML."""

import json
import re
from typing import Final

from evaltap.evaluator.cases.text import one_line

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, marks that change the text direction, zero-width characters, lone surrogates, tags."""


def visible(text: str) -> str:
    """Return a text with every hidden or hiding character replaced by a visible one.

    Line feeds and tabs are unchanged.  Other control characters become their Unicode pictures; all other
    replaced characters become their code in brackets.  The result is valid in XML.
    """
    return _HIDDEN.sub(_picture, text)


def named_value(by: str, value: str) -> str:
    """Return a value of a dimension as a table names it; intents are named by a text, which may be long."""
    if by == "intent" and value:
        return repr(visible(one_line(value, 60)))
    return visible(value) or "(none)"


def escaped(text: str) -> str:
    """Return equivalent JSON in which these characters are written as escapes."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟦U+{code:04X}⟧"
