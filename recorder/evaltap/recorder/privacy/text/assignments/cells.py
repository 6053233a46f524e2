"""Read the value in a cell beside or below a secret's name: aligned columns, Markdown, psql's records."""

import re

from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_code, is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_likely_password, is_token
from evaltap.recorder.privacy.text.values import inside, is_mixed

_LINE_START = re.compile(r"(?:\A|\n)[ \t]{0,16}\Z")
_RECORD = re.compile(r"-\[ RECORD \d{1,9} \]")
"""Above the columns of a row that psql prints one below the other."""
_ALIGNED = re.compile(
    r"(?:[ ]{2,40}|[ ]{0,40}\|[ ])([^\s|]{4,256})[ \t]*(?=\n|\Z)(?!\n[-+=| ]{4,})"
)
"""The value in the second of two columns, at the end of its line."""


def aligned(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether the name is the first of two columns, and the value in the second."""
    match = _ALIGNED.match(text, end)
    if match is None or _LINE_START.search(text, max(0, start - 24), start) is None:
        return False, None
    if _is_in_cell(match[1], token=token):
        return True, match.span(1)
    is_record = not token and _RECORD.search(text, max(0, start - 2_000), start) is not None
    return True, inside(match, token) if is_record else None


def _is_in_cell(value: str, *, token: bool) -> bool:
    """Return whether a cell beside a secret's name holds the secret, not its algorithm or type."""
    if not is_mixed(value) or _ALGORITHM.fullmatch(value) or is_code(value):
        return False
    return not is_placeholder(value) and (not token or is_token(value))


_BELOW = re.compile(
    r"[ \t]{0,4}\n(?:[-=~]{3,80}\n)?[ \t]{0,8}([^\s\"'<>]{4,128})[ \t]{0,4}(?=\n|\Z)"
)


_ON_A_LINE = re.compile(r"(?:\A|\n)(?:[A-Za-z]{2,12} ){0,2}\Z")


def below(text: str, start: int, end: int) -> Span | None:
    """Return the word on a line of its own under a name on a line of its own."""
    match = _BELOW.match(text, end)
    if match is None or _ON_A_LINE.search(text, max(0, start - 32), start) is None:
        return None
    return match.span(1) if is_likely_password(match[1]) else None


_FIRST_CELL = re.compile(r"(?:^|\n)[ \t]{0,8}\|[ \t]{0,64}[^|\n]{0,24}\Z")
_NEXT_ROW_CELL = re.compile(
    r"[\"'`*_]{0,3}[ \t]{0,64}\|[ \t]{0,64}[\"'`*_]{0,3}([^\s|\"'`]{6,512})"
)
_RULE_BELOW = re.compile(r"[^\n]{0,512}\n[ \t]{0,8}\|[ \t]{0,8}:?--")
_ALGORITHM = re.compile(
    r"(?i)(?:sha|md|rs|hs|es|aes|utf|rsa|gpio|base|bcrypt)[_-]?\d.*|oauth\S*|x509"
)


def next_cell(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in a row of a Markdown table, `| password | x |`."""
    if _FIRST_CELL.search(text, max(0, start - 80), start) is None:
        return None
    match = _NEXT_ROW_CELL.match(text, end)
    if match is None or _RULE_BELOW.match(text, end) is not None:
        return None
    value = match[1].rstrip("*_")
    if not _is_in_cell(value, token=token):
        return None
    return match.start(1), match.start(1) + len(value)
