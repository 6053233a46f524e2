"""Find the password of a login without a word for it: `log in with admin/x`, `sign in as bob with x`."""

import re
from collections.abc import Iterator

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.value_kinds import is_strong_password, may_be_password

_FOREIGN_ROOTS = listed("логин войт войд giriş 登录 登錄 ログイン 로그인 sesión sessão connex")
_LOGIN = re.compile(
    r"\b(?:(?:log(?:ged|ging)?|sign(?:ed|ing)?)[ -]?(?:in|on|into)\b|auth\w{0,12} failed for|creds?\b|credential|anmeld|melde\b|zugangsdaten|einlogg"
    r"|inlogg|zalogu|logowan|connect|connex|acced|sesión|sessão|credenzial|credencia|логин|войт|войд|giriş)"
    r"|登录|登錄|ログイン|로그인"
)
_PAIR = re.compile(
    r"[^\n]{0,40}?(?<![\w./:@-])[\w.@+-]{2,40}[ ]?[/:|][ ]?([^\s\"'`<>/]{6,64})(?=[\s\"'`.,;)]|\Z)"
)
_USER_WITH = re.compile(
    r"[^\n]{0,24}?\b(?:as|user(?:name)?|als|benutzer|como|usuario|usuário|utilisateur|come|utente|jako)[ ][\"'`]?[\w.@+-]{2,40}"
    r"[\"'`]?,?[ ](?:with|and|using|mit|und|con|y|avec|et|e|com|met|en|i|z|med|och|og)[ ][\"'`]?([^\s\"'`<>/]{6,64})"
)
_SHORT_PAIR = re.compile(
    r"(?i)\bu(?:ser)?[:=][ ]?[\w.@+-]{2,40}[\s,;/|]{1,4}p(?:w|ass)?[:=][ ]?[\"'`]?([^\s\"'`<>,;]{4,64})"
)


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
        for pair in _SHORT_PAIR.finditer(text):
            if may_be_password(pair[1]):
                yield pair.span(1)
    if not _may_tell_login(text, lower):
        return
    done = 0
    for login in _LOGIN.finditer(lower):
        if login.start() < done:
            continue
        for pattern in (_PAIR, _USER_WITH):
            match = pattern.match(text, login.end())
            if match is None:
                continue
            value = match[1].rstrip(".,;:!?)")
            if is_strong_password(value):
                done = match.end()
                yield match.start(1), match.start(1) + len(value)
                break
