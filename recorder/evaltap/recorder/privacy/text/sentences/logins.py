"""Find the password of a login without a word for it: `log in with admin/x`, `sign in as bob with x`."""

from collections.abc import Iterator

from evaltap.recorder.privacy.lexicon import patterns, words
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import is_strong_password, may_be_password

_RE = patterns("logins")

_FOREIGN_ROOTS = words("logins.foreign_roots")


def _may_tell_login(text: str, lower: str) -> bool:
    # Written out: this runs on every text, and a loop costs three times as much.
    return (
        "log" in lower
        or "sign" in lower
        or "cred" in lower
        or "auth" in lower
        or "meld" in lower
        or "conne" in lower
        or "acced" in lower
        or "gangsdaten" in lower
        or (not text.isascii() and any(root in lower for root in _FOREIGN_ROOTS))
    )


def in_logins(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of strong passwords beside a user, after a word for logging in."""
    if "p:" in lower or "p=" in lower:
        for pair in _RE.short_pair.finditer(text):
            if may_be_password(pair[1]):
                yield pair.span(1)
    if not _may_tell_login(text, lower):
        return
    done = 0
    for login in _RE.login.finditer(lower):
        if login.start() < done:
            continue
        for pattern in (_RE.pair, _RE.user_with):
            match = pattern.match(text, login.end())
            if match is None:
                continue
            value = match[1].rstrip(".,;:!?)")
            if is_strong_password(value):
                done = match.end()
                yield match.start(1), match.start(1) + len(value)
                break
