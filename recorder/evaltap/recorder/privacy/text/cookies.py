"""Judge the cookies of a header: a session's, or settings such as `theme=dark; lang=de`."""

import re

from evaltap.recorder.privacy.text.stand_ins import is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_token

_PAIR = re.compile(r"([^\s=;,]{1,256}+)=([^;\s]{0,4096}+)")
_ATTRIBUTES = frozenset(("path", "domain", "expires", "max-age", "samesite", "version", "priority"))
_OF_SESSION = re.compile(
    r"(?i)sess|sid(?![a-z]{3})|auth|token|jwt|[cx]srf|login|remember|ticket|secret|passw|user|uid|cred"
)
_NO_SESSION = re.compile(r"(?i)deleted|null|none|true|false|yes|no|0|1|\"\"|%[sdr]|\{\w*\}")
_SETTING = re.compile(r"[A-Za-z_/-]{1,24}|[A-Za-z]{0,3}\d{1,5}|#[0-9a-fA-F]{3,6}|[\d.x]{1,9}")
"""A word, a short number, a colour, a size: what a cookie of no session says."""


def may_tell_session(header: str) -> bool:
    """Return whether any cookie of a header may be that of a session."""
    pairs = [
        pair for pair in _PAIR.findall(header) if pair[0].lower().lstrip("$") not in _ATTRIBUTES
    ]
    return not pairs or any(_is_of_session(*pair) for pair in pairs)


def _is_of_session(name: str, value: str) -> bool:
    if not value or is_placeholder(value) or _NO_SESSION.fullmatch(value):
        return False
    if _OF_SESSION.search(name) and "consent" not in name.lower():
        return True
    return is_token(value) or _SETTING.fullmatch(value) is None
