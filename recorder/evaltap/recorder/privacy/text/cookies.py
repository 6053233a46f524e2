"""Judge the cookies of a header: a session's, or settings such as `theme=dark; lang=de`."""

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.stand_ins import is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_token

_RE = patterns("cookies")

_ATTRIBUTES = frozenset(("path", "domain", "expires", "max-age", "samesite", "version", "priority"))


def may_tell_session(header: str) -> bool:
    """Return whether any cookie of a header may be that of a session."""
    pairs = [
        pair for pair in _RE.pair.findall(header) if pair[0].lower().lstrip("$") not in _ATTRIBUTES
    ]
    return not pairs or any(_is_of_session(*pair) for pair in pairs)


def _is_of_session(name: str, value: str) -> bool:
    if not value or is_placeholder(value) or _RE.no_session.fullmatch(value):
        return False
    if _RE.of_session.search(name) and "consent" not in name.lower():
        return True
    return is_token(value) or _RE.setting.fullmatch(value) is None
