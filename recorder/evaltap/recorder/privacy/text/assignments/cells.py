"""Read the value in a cell beside or below a secret's name: aligned columns, Markdown, psql's records."""

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_code, is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_likely_password, is_token
from evaltap.recorder.privacy.text.values import inside, is_mixed

_RE = patterns("cells")


def aligned(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether the name is the first of two columns, and the value in the second."""
    match = _RE.aligned.match(text, end)
    if match is None or _RE.line_start.search(text, max(0, start - 24), start) is None:
        return False, None
    if _is_in_cell(match[1], token=token):
        return True, match.span(1)
    is_record = not token and _RE.record.search(text, max(0, start - 2_000), start) is not None
    return True, inside(match, token) if is_record else None


def _is_in_cell(value: str, *, token: bool) -> bool:
    """Return whether a cell beside a secret's name holds the secret, not its algorithm or type."""
    if not is_mixed(value) or _RE.algorithm.fullmatch(value) or is_code(value):
        return False
    return not is_placeholder(value) and (not token or is_token(value))


def below(text: str, start: int, end: int) -> Span | None:
    """Return the word on a line of its own under a name on a line of its own."""
    match = _RE.below.match(text, end)
    if match is None or _RE.on_a_line.search(text, max(0, start - 32), start) is None:
        return None
    return match.span(1) if is_likely_password(match[1]) else None


def next_cell(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in a row of a Markdown table, `| password | x |`."""
    if _RE.first_cell.search(text, max(0, start - 80), start) is None:
        return None
    match = _RE.next_row_cell.match(text, end)
    if match is None or _RE.rule_below.match(text, end) is not None:
        return None
    value = match[1].rstrip("*_")
    if not _is_in_cell(value, token=token):
        return None
    return match.start(1), match.start(1) + len(value)
