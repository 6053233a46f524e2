"""Find the secret after its name in a sentence: `the password is x`, `password x`, `パスワードはx`."""

import re

from evaltap.recorder.privacy.lexicon import patterns, words
from evaltap.recorder.privacy.text.sentences.topics import OF_WHAT, is_about
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import (
    is_likely_password,
    is_measure,
    is_strong_password,
    is_token,
    may_be_password,
)
from evaltap.recorder.privacy.text.values import is_mixed, read_value

_RE = patterns("sentences")

_IN_CLAUSE = (
    ("clause_is", may_be_password),
    ("verb_last", may_be_password),
    ("clause", is_strong_password),
    ("apposition", is_strong_password),
    ("announced", is_likely_password),
    ("it_is", is_likely_password),
    ("then_type", may_be_password),
)
"""The first also holds for tokens."""


def said(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in `the password is x`, `password x`, `パスワードはx`."""
    if text[end - 1 : end] > "\u2e80" or not text[start:end].isascii():
        match = _RE.cjk_is.match(text, end)
        if match is not None:
            ascii_run = _RE.ascii_run.match(text, match.end())
            if ascii_run is not None and is_mixed(ascii_run[0]):
                return ascii_run.span()
    is_short = not token and text[start:end].lower() in _NUMBERS
    if is_short and (match := _RE.digits.match(text, end)) is not None:
        return match.span(1)
    if (match := _RE.changed_to.match(text, end)) is not None and is_token(match[1]):
        return match.span(1) if is_mixed(match[1]) else None
    if (match := _RE.changed.match(text, end)) is not None:
        change = _RE.change.match(text, match.end())
        if change is not None and is_mixed(change[1]) and (not token or is_token(change[1])):
            return change.span(1) if text.startswith("to", change.start()) else change.span()
    if (match := _RE.changed_from.match(text, end)) is not None and is_mixed(match[1]):
        return None if is_measure(match[1].split()[0]) else match.span(1)
    match = _RE.copula.match(text, end)
    if match is not None and not (
        match[0].rstrip(" :\t").endswith(" on") and _RE.english.search(text, start, end)
    ):
        at = match.end()
        if "cred" in text[start:end].lower() and (both := _RE.user_and.match(text, at)):
            at, token = both.end(), False
        span = read_value(text, at, token=token, sure=False, said=True, code=False)
        if span is not None and _RE.time.match(text, span[0]) is not None:
            return None
        return span or _in_clause(text, start, end, token=token)
    match = _RE.qualified.match(text, end)
    if match is not None and OF_WHAT.isdisjoint(match[0].lower().rstrip(" :=-*_").split()[-1:]):
        span = read_value(
            text, match.end(), token=token, sure=match[1] == "=", said=True, code=False
        )
        return span or _in_clause(text, start, end, token=token)
    if _RE.secret.fullmatch(text, start, end) and _RE.name_of_secret.match(text, end) is not None:
        return None
    if (match := _RE.blank_quote.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=False)
    if not token and (match := _RE.switch.match(text, end)) is not None:
        return read_value(text, match.end(), token=False, sure=True)
    if (match := _RE.bare.match(text, end)) is not None:
        span = read_value(text, match.end(), token=token, sure=False)
        if span is not None and is_mixed(value := text[span[0] : span[1]]):
            # `key session:4711` names something else, `password x1y2` the password.
            if text[start:end].lower() == "key" and _RE.key_id.fullmatch(value) is not None:
                return None
            return None if re.fullmatch(r"[a-z]+:[\w:-]+", value) else span
    return _in_clause(text, start, end, token=token)


def answered(text: str, end: int) -> Span | None:
    """Return the password that answers the question which ends here."""
    match = _RE.answer.match(text, end)
    return match.span(1) if match is not None and is_likely_password(match[1]) else None


def _in_clause(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value further on in the clause, behind other words."""
    if not token and (span := answered(text, end)) is not None:
        return span
    if text[end : end + 1] not in (" ", ",", "'"):
        return None
    if not token and (span := _changed_to(text, start, end)) is not None:
        return span
    if is_about(text, end):
        return None
    for name, is_value in _IN_CLAUSE[:1] if token else _IN_CLAUSE:
        match = getattr(_RE, name).match(text, end)
        if match is None:
            continue
        value = match[1].rstrip(".,;:?)]}*")
        if is_value(value) and (not token or is_token(value)):
            return match.start(1), match.start(1) + len(value)
    return None


def _changed_to(text: str, start: int, end: int) -> Span | None:
    """Return what a verb before or after the name says that the value becomes."""
    match = _RE.to.match(text, end)
    if match is None or _RE.changes.search(text, max(0, start - 40), match.start(1)) is None:
        return None
    value = match[1].rstrip(".,;:!?)")
    return (match.start(1), match.start(1) + len(value)) if may_be_password(value) else None


def other_said(text: str, end: int) -> Span | None:
    """Return a second password behind the first: `the old one was x and the new one is y`."""
    if (match := _RE.arrow.match(text, end)) is not None:
        return read_value(text, match.end(), token=False, sure=True)
    match = _RE.and_new.match(text, end)
    if match is None:
        return None
    value = match[1].rstrip(".,;:!?)")
    return (match.start(1), match.start(1) + len(value)) if may_be_password(value) else None


SHORT_NUMBERS = frozenset(words("sentences.short_numbers"))
_NUMBERS = SHORT_NUMBERS | {"code", "codice", "código", "kod", "kode", "код"}
