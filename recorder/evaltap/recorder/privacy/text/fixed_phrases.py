"""Find secrets in fixed forms without a name: SQL, Oracle connect strings, `.pgpass`, `/etc/shadow`."""

import re
from collections.abc import Iterator

from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_likely_password, may_be_password

_QUOTED_PAIR = r"\(\s{0,4}['\"][^'\"\n]{1,64}['\"]\s{0,4},\s{0,4}['\"]([^'\"\n]{3,256})['\"]"
_PHRASES = tuple(
    (needle, re.compile(pattern))
    for needle, pattern in (
        (
            "identified",
            r"(?i)\bidentified (?:with [\w'\"]{1,40} )?(?:by|as) (?:password )?['\"]([^'\"\n]{3,256})['\"]",
        ),
        ("securestring", r"(?i)securestring +(?:-string +)?['\"]([^'\"\n]{3,256})['\"]"),
        ("credential", r"(?i)credentials?" + _QUOTED_PAIR),
        (
            "jwt.",
            r"\bjwt\.(?:sign|encode|verify|decode)\(\s{0,4}[\w.]{1,40},\s{0,4}b?['\"]((?=[^'\"\n]{0,200}\d)[^'\"\n]{8,256})['\"]",
        ),
        (
            "hmac",
            r"(?:hmac\.new\(|[cC]reateHmac\(['\"]\w{2,10}['\"],[ ]?)\s{0,4}b?['\"]((?=[^'\"\n]{0,200}\d)[^'\"\n]{8,256})['\"]",
        ),
        ("fernet(", r"Fernet\(\s{0,4}b?['\"]([^'\"\n]{20,256})['\"]"),
        ("login(", r"(?i)login" + _QUOTED_PAIR),
        ("userpwd", r"USERPWD\b['\"]?[ ]{0,4}(?:,|=>)[ ]{0,4}['\"]([^'\"\n]{4,256})['\"]"),
        (
            "crypt",
            r"(?:bcrypt|scrypt)[\w.]{0,24}\([ ]?b?['\"]([^'\"\n]{4,256})['\"]|\bcrypt\(['\"]([^'\"\n]{4,256})['\"],[ ]?gen_salt",
        ),
        ("hasher", r"(?:asswordHasher|argon2)[\w.()]{0,24}\([ ]?b?['\"]([^'\"\n]{4,256})['\"]"),
    )
)
_AUTH = re.compile(r"(?i)auth\w{0,12}[ ]?=?[ (]{1,2}" + _QUOTED_PAIR.removeprefix(r"\("))
_SIGN_IN = re.compile(
    r"(?i)(?:sign_?in|credentials?(?:\.\w{1,20})?)\(\s{0,4}(?:['\"][^'\"\n]{1,80}['\"],[ ]?){1,3}['\"]([^'\"\n]{4,256})['\"]\s{0,4}\)"
)
_DEFAULT = re.compile(
    r"\{\{[^{}\n]{0,80}(?:pass|pw|secret|token|key)[^{}\n]{0,60}\|[ ]?default[( ][ ]?['\"]([^'\"\n]{4,128})['\"]"
)
"""What a template has in place of a variable that is not set."""
_LINES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?m)^[\w.*-]{1,64}:(?:\d{2,5}|\*):[\w.*-]{1,64}:[\w.*-]{1,64}:([^\s:]{3,128})$",
        r"(?m)^[\w-]{1,32}:([^\s:*!x][^\s:]{3,128}):\d{1,6}:\d{1,6}(?=:|$)",
    )
)
_FIELD = re.compile(r":(?:\d{1,6}|\*):")
_BARE_COMMANDS = re.compile(
    r"(?m)^AUTH (?:[\w-]{1,32} )?(\S{4,128})$|snmp-server community (\S{3,64})"
)


def in_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of values in forms without a name: SQL, Oracle connect strings, `.pgpass`."""
    patterns: list[re.Pattern[str]] = []
    if "'" in text or '"' in text:
        patterns += (pattern for needle, pattern in _PHRASES if needle in lower)
        if "auth" in lower:
            patterns.append(_AUTH)
        if "(" in text and ("sign" in lower or "credential" in lower):
            patterns.append(_SIGN_IN)
        if "{{" in text and "default" in lower:
            patterns.append(_DEFAULT)
    if _FIELD.search(text) is not None:
        patterns += _LINES
    patterns += _signed(text, lower)
    for pattern in patterns:
        is_value = _CHECKS.get(pattern)
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            if pattern is _CHPASSWD:
                yield from (user.span(1) for user in _OF_USER.finditer(text, *match.span(1)))
            elif (is_value is None or is_value(match[group])) and not is_placeholder(match[group]):
                yield match.span(group)


_LDAP_HASH = re.compile(
    r"\{(?:S?SHA(?:[-]?\d{3})?|S?MD5|CRYPT|PBKDF2(?:-SHA\d{1,3})?)\}([\w+/=$.]{12,256})"
)
_CONNECTED = re.compile(
    r"(?i)(?:connect(?:ion)?|new pdo)\((?:[^()'\"\n]{0,60},[ ]?)?(?:['\"][^'\"\n]{0,100}['\"],[ ]?)?"
    r"['\"][^'\"\n]{1,64}['\"],[ ]?['\"]((?=[^'\"\n]{0,200}\d)[^'\"\n]{6,256})['\"]"
)
"""Host or address, user and password as the arguments of a call."""
_SET_PASSWORD = re.compile(
    r"(?i)\bset password for [^=;\n]{1,80}=[ ]?(?:password\()?['\"]([^'\"\n]{3,256})['\"]"
)
_REDIS_USER = re.compile(r"(?i)acl setuser \S{1,64} [^\n>]{0,80}>(\S{3,128})")
_WIFI_CODE = re.compile(r"WIFI:[^\n]{0,80}?P:([^;\n]{3,64});")
"""What a QR code for a wireless network says."""
_FTP_USER = re.compile(r"(?m)^[ \t]*user [\w.@-]{1,64} ([^\s\"']{4,128})$")
_EXPECTED = re.compile(
    r"(?i)assw(?:ord|ort)[^\n]{0,24}\n?[^\n]{0,40}?\bsend(?:line)?(?: --)?[ (]{1,2}[\"']{1,2}([^\s\"'\\]{3,128})"
)
"""What `expect` sends when it was asked for a password."""
_GO_ADDRESS = re.compile(r"[\w-]{1,64}:([^\s:@/\"'()]{3,128})@(?:(?:tcp|unix)\(|/\w)")
_ORACLE = re.compile(r"(?i)jdbc:oracle:\w{2,6}:[\w.]{1,64}/([^\s@\"']{3,128})@")


_IDENTIFIED = re.compile(
    r"(?i)\b(?:alter|create) user [\w.\"$]{1,64} identified by (?!values\b|globally|externally)([^\s'\";]{3,128})"
)
_MAIL_LOGIN = re.compile(
    r"(?m)^[ \t]*(?:[CS]: ?|> ?)?[A-Za-z]\w{0,7} LOGIN \S{1,64} \"?([^\s\"]{4,128})\"?\r?$"
)
_TYPED = re.compile(r"(?i)\b(?:input|fill|type) password[ ]{2,8}\S{1,80}[ ]{2,8}([^\s$]\S{3,128})")
"""A step of Robot Framework."""
_EASY_CONNECT = re.compile(
    r"(?<![\w/.:@-])[\w$#]{1,30}/([^\s@/\"']{3,128})@(?://[\w.-]{1,100}|[\w.-]{1,100}:15\d\d/)"
)
_CHPASSWD = re.compile(
    r"chpasswd:[^\n]{0,20}\n(?:[ ]{1,8}[a-z]+:[^\n]{0,20}\n){1,3}((?:[ ]{1,16}(?:- )?[\w-]{1,32}:[^\s:|]{3,128}\n?){1,64})"
)
_OF_USER = re.compile(r":([^\s:|]{3,128})")


_DIRECTIVES = re.compile(
    r"\blogin \S{1,64}\s{1,8}password (\S{3,128})|\binsecure-password (\S{3,128})"
    r"|\bnmcli [^\n]{0,120}?\bpassword (\S{3,128})"
)
"""Of `.netrc`, HAProxy and NetworkManager."""
_NET_USE = re.compile(r"(?i)\bnet use [^\n]{1,120}? /user:\S{1,64} ([^\s/]\S{3,128})")
_REGISTRY = re.compile(
    r"(?i)reg(?:\.exe)? add [^\n]{1,200}?/v \"?[\w -]{0,40}(?:pass|pwd|secret|token)\w{0,20}\"?[^\n]{1,60}?/d \"?([^\s\"]{3,256})"
)
_MASKED = re.compile(
    r"##vso\[task\.setvariable [^\]\n]{0,80}(?:(?:password|passwd|pwd|secret|token|key)(?=[;\]])|issecret=true)[^\]\n]{0,60}\]([^\n]{3,4096})"
    r"|::add-mask::([^\s]{3,4096})"
)
"""Secret variables of pipelines, as their steps print them."""
_CHECKS = {
    _AUTH: may_be_password,
    _SIGN_IN: is_likely_password,
    _CONNECTED: is_likely_password,
    _EASY_CONNECT: is_likely_password,
    _MAIL_LOGIN: may_be_password,
}
"""What a value must look like where its form alone is not enough."""


def _signed(text: str, lower: str) -> Iterator[re.Pattern[str]]:
    """Yield the patterns whose signs a text has; written out, since this runs on every text."""
    if "@" in text:
        if "jdbc:oracle" in lower:
            yield _ORACLE
        if "@//" in text or ":15" in text:
            yield _EASY_CONNECT
        if "@tcp(" in lower or "@unix(" in lower or "@/" in lower:
            yield _GO_ADDRESS
    if "}" in text and ("sha" in lower or "md5}" in lower or "crypt}" in lower):
        yield _LDAP_HASH
    if "(" in text and ("connect" in lower or "new pdo" in lower):
        yield _CONNECTED
    if "assw" in lower:
        if "chpasswd:" in text:
            yield _CHPASSWD
        yield _DIRECTIVES
        if "  " in text:
            yield _TYPED
        if "set password for " in lower:
            yield _SET_PASSWORD
        if "send" in lower:
            yield _EXPECTED
    if " LOGIN " in text:
        yield _MAIL_LOGIN
    if "user " in lower:
        if "identified by " in lower:
            yield _IDENTIFIED
        if "acl setuser" in lower:
            yield _REDIS_USER
        if "ftp" in lower:
            yield _FTP_USER
    if " /user:" in lower:
        yield _NET_USE
    if "/v " in lower:
        yield _REGISTRY
    if "##vso[" in text or "::add-mask::" in text:
        yield _MASKED
    if "WIFI:" in text:
        yield _WIFI_CODE
    if "AUTH " in text or "community" in text:
        yield _BARE_COMMANDS
