"""Find secrets next to their names in text: `password = x`, `"api_key": "x"`, `<pin>x</pin>`.

Stems of secrets' names are searched as substrings; around each one `secret_names` classifies the
full name, and only a significant name triggers a search for its value. Every step reads a bounded
part of the text, so the cost grows linearly with its length.
"""

import re
from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.secret_names import (
    Name,
    is_address,
    is_postcode,
    is_word_for_keyword,
    kind_of_name,
)
from evaltap.recorder.privacy.text.value_kinds import is_code, is_placeholder, is_token
from evaltap.recorder.privacy.text.values import (
    Span,
    inside,
    is_mixed,
    read_value,
    rest_of_header,
    word_list,
)

_STEMS = listed("""
pass secret token key cred code auth clave senha kennw wachtw heslo haslo salasan kodeord adgangsk sandi
parol parool lozink geslo slaptazod jelszav siri wagwoord gasla contrase sifre jeton klucz chave anahtar geheim schluessel
""")  # fmt: skip
"""Stems of secrets' names in sentences, commands and markup; before a sign any name is read."""
_SHORT_STEMS = ("pw", "pin", "otp", "cvv", "cvc", "mdp")
"""Parts of many ordinary words: they count only at the start or end of one."""
_FOREIGN_STEMS = listed("""
парол лозинк секрет ключ код_доступа код-доступа гасл hasł lösen şifre jelsz clé khẩu лозинк паролат slaptažod lykilor المرور السر السري пасворд পাসওয়ার্ড 密码 密碼 密钥 密鑰 口令 验证码 驗證碼 令牌 凭证 パスワード
暗証番号 秘密鍵 合言葉 認証コード トークン 토큰 токен 비밀번호 비번 암호 비밀키 인증번호 인증코드 패스워드 키 인증키 キー 認証キー 私钥 私鑰 金鑰 पासवर्ड كلم رمز مفتاح סיסמ รหัส κωδ συνθ schlüssel
""")  # fmt: skip
_ENDS_OF_PHRASES = frozenset(listed("""
key code keys codes passe token tokens phrase string answer secret secreta secrète acceso clave number
pass clef chave доступа الوصول السري
"""))  # fmt: skip

_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-$"
_LONGEST_NAME = 64
_MARKS = "\u0300-\u036f\u0610-\u065f\u0900-\u0dff\u0e00-\u0e7f"  # combining marks
_NAME_REST = re.compile(r"[\w.$" + _MARKS + r"-]{0,64}")
_BEFORE_API = frozenset(listed("clé clave chave klucz ключ مفتاح"))
_NAME_AND_API = re.compile(_NAME_REST.pattern + r"(?: (?:de |d['’])?API\b)?")
"""In `clave API` the word for key comes first."""
_SIGN = re.compile(r"[=:]")
_BACKWARDS = re.compile(r"[\"'`\])}*_~ \t]{0,12}([\w.$" + _MARKS + r"-]{2,64})")
"""A name before a sign, on the reversed text."""


def assigned(text: str, names: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans of values next to those of the names that belong to a secret."""
    done = header_end = 0
    for start, end in names:
        if start < done:
            continue
        kind = _kind_at(text, start, end)
        if kind is not Name.SECRET and kind is not Name.TOKEN:
            continue
        if text[start - 2 : start] == "${" and text[end : end + 2] in (":?", ":+"):
            continue
        if _is_header(text[start:end]):
            # The rest of the line is its value: header names inside do not count.
            if start < header_end:
                continue
            line_end = text.find("\n", end, end + 4096)
            header_end = line_end if line_end >= 0 else end + 4096
        span = _value_after(text, start, end, token=kind is Name.TOKEN)
        if span is None and kind is Name.SECRET:
            span = _value_before(text, start)
        if span is not None and not is_postcode(text[start:end], text[slice(*span)]):
            done = max(end, span[1])
            yield span


_QUOTED_PAIR = r"\(\s{0,4}['\"][^'\"\n]{1,64}['\"]\s{0,4},\s{0,4}['\"]([^'\"\n]{3,256})['\"]"
_PHRASES = tuple(
    (needle, re.compile(pattern))
    for needle, pattern in (
        (
            "identified",
            r"(?i)\bidentified (?:with [\w'\"]{1,40} )?(?:by|as) (?:password )?['\"]([^'\"\n]{3,256})['\"]",
        ),
        ("securestring", r"(?i)securestring +(?:-string +)?['\"]([^'\"\n]{3,256})['\"]"),
        ("credential(", r"(?i)credential" + _QUOTED_PAIR),
        ("login(", r"(?i)login" + _QUOTED_PAIR),
        ("auth", r"(?i)auth\w{0,12}=?[ (]" + _QUOTED_PAIR.removeprefix(r"\(")),
    )
)
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
    if _FIELD.search(text) is not None:
        patterns += _LINES
    if "jdbc:oracle" in lower:
        patterns.append(_ORACLE)
    if "@tcp(" in lower or "@unix(" in lower or "@/" in lower:
        patterns.append(_GO_ADDRESS)
    if "AUTH " in text or "community" in text:
        patterns.append(_BARE_COMMANDS)
    for pattern in patterns:
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            if not is_placeholder(match[group]):
                yield match.span(group)


_GO_ADDRESS = re.compile(r"[\w-]{1,64}:([^\s:@/\"'()]{3,128})@(?:(?:tcp|unix)\(|/\w)")
_ORACLE = re.compile(r"(?i)jdbc:oracle:\w{2,6}:[\w.]{1,64}/([^\s@\"']{3,128})@")


def names_in(text: str, lower: str) -> list[Span]:
    """Return the spans of words that may be, or may end, the name of a secret."""
    found: dict[int, int] = {}
    for sign in _SIGN.finditer(text):
        at = sign.start()
        if text[at - 1 : at].isdigit() and text[at + 1 : at + 2].isdigit():
            continue  # a time
        match = _BACKWARDS.match(text[at - 40 if at > 40 else 0 : at][::-1])
        if match is None:
            continue
        name = match[1][::-1]
        if kind_of_name(name) in _TELLING or name.lower() in _ENDS_OF_PHRASES:
            start = at - match.end()
            found[start] = start + len(name)
    stems = _STEMS if text.isascii() else _STEMS + _FOREIGN_STEMS
    for stem in stems:
        if stem in lower:
            _collect(text, lower, stem, found, short=False)
    for stem in _SHORT_STEMS:
        if stem in lower:
            _collect(text, lower, stem, found, short=True)
    return sorted(found.items())


_TELLING = (Name.SECRET, Name.TOKEN)


def _collect(text: str, lower: str, stem: str, found: dict[int, int], *, short: bool) -> None:
    at = lower.find(stem)
    while at >= 0:
        behind = at + len(stem)
        if short and lower[at - 1 : at].isalpha() and lower[behind : behind + 1].isalpha():
            at = lower.find(stem, behind)
            continue
        before = text[max(0, at - _LONGEST_NAME) : at]
        if stem.isascii() or stem > "\u2e80":
            start = at - len(before) + len(before.rstrip(_NAME_CHARACTERS))
        else:
            backwards = _NAME_REST.match(before[::-1])
            start = at - (backwards.end() if backwards else 0)
        # In languages without spaces, a name ends with its stem.
        name_rest = _NAME_AND_API if stem in _BEFORE_API else _NAME_REST
        rest = None if stem > "\u2e80" else name_rest.match(text, behind)
        end = rest.end() if rest else behind
        while end > behind and text[end - 1] in ".-$":
            end -= 1
        while start < at and text[start] in ".-$":
            start += 1
        found[start] = max(end, found.get(start, 0))
        at = lower.find(stem, end)


_SAME_PHRASE = re.compile(r"[^.,;:!?\"'`()\[\]{}<>=\n_]*\Z")


def _kind_at(text: str, start: int, end: int) -> Name:
    name = text[start:end]
    kind = kind_of_name(name)
    if text[start - 1 : start] != " ":
        return kind
    # "security code", "mot de passe", but "palabra clave": the preceding words belong to the name.
    tail = _SAME_PHRASE.search(text, start - 40 if start > 40 else 0, start - 1)
    before = tail[0].replace("-", " ").split()[-3:] if tail else []
    if kind is Name.SECRET or kind is Name.TOKEN:
        is_keyword = bool(before) and is_word_for_keyword(before[-1] + name)
        return Name.PLAIN if is_keyword else kind
    return kind_of_name(" ".join((*before, name))) if before else kind


_OPERATOR = re.compile(
    r"[\"'`\])}*_~ ]{0,12}[ \t]{0,8}(?:\((?:[^()\n]{1,40})\)[ \t]?)?"
    r"(=>|->|<-|→|:=|\?=|[!=]==?|=|::?|\|)[ \t]{0,8}[*_~]{0,2}[ \t]?"
)
_QUALIFIER = (
    r"(?:[ \t](?:for|of|to|in|on|at|from|für|von|zu|zum|de|del|della|di|da|do|des|para|pour|du|voor|van|för|til|dla|do|per"
    r"|для|от|к)[ \t][^\n:=.,;!?\"']{1,48}?)?"
)
_POSSESSIVE = r"(?:[ \t](?:saya|anda|kamu|mea|meu|mia|mio|mea|moje|moja|mia|minha|nova|nuova|nueva|nouvelle|của tôi|του|μου|yangu|ko))?"
"""A postposed word for `my`."""
_IS = re.compile(
    r"(?i)[\"'`]?"
    + _QUALIFIER
    + _POSSESSIVE
    + r"(?:'s|[ \t]{1,3}(?:is|was|are|equals|to|should be|will be|now|ist|lautet|war|sind"
    r"|es|era|está|est|c'est|sera|était|è|é|era|is nu|är|er|on|jest|to|je|bol|este|olarak|é|és|yra|ir|adalah|ialah|là"
    r"|është|er|ni|ay|это|теперь|будет|равен|е|є|це|je|је|είναι|هي|هو|है|हैं|হল|হলো|היא|הוא|است))"
    r"(?:[ \t](?:now|still|set to|currently|just|simply|jetzt|ahora|maintenant|agora|ora|nu|теперь|changed to"
    r"|going to be|as follows))?[ \t:]{1,3}"
)
_QUALIFIED = re.compile(
    r"(?i)" + _QUALIFIER + r"(?:[ \t][^\W\d_]{2,12})?[ \t]?(=|:|[ ]-[ ])[ \t]{0,4}"
)
_CJK_IS = re.compile(
    r"[ \t]?(?:是|为|為|は|が|を|는|은|이|가|를|을)?[ \t]?"
    r"(?:(?:お使い|使って|使用して)ください|사용하세요|사용해(?:[ ]?주세요)?|써[ ]?(?:줘|주세요))?[ \t]?[:：=]?[ \t\"']{0,3}"
)
_NEXT_LINE = re.compile(
    r"[\"'`]?[ \t]{0,4}:[ \t]{0,4}\n[ \t]{0,12}([^\s:]{4,128})[ \t]{0,8}(?=\n|\Z)"
)
_BLANK_QUOTE = re.compile(r"[ \t]{1,4}(?=[\"'`]\S)")
_CALL = re.compile(r"\([ \t]{0,4}(?=[\"'`])")
_PAIR = re.compile(
    r"[\"'`]?(?:[^<>{}\[\]=:\n]{0,4}|[ \t,;]{1,4}[^<>{}=:]{1,24}[=:][ \t]?[\"'][^\"'<>{}]{0,60}[\"'])"
    r"[ \t,;]{0,4}\n?[ \t-]{0,24}[\"'`]?(?i:value|val|content|text|default|data)[\"'`]?[ \t]{0,3}(?:=>|[=:])"
    r"[ \t]{0,3}(?=\S)"
)
_HELD = re.compile(
    r"[\"'][^<>\n]{0,60}>\s{0,8}(?:<(?:value|string|text)>\s{0,8})?([^<>\s][^<>]{0,4095}+)</"
)
_DEFAULT = re.compile(r"\"[ \t]{0,4}\{[^{}]{0,400}?\bdefault[ \t]{0,16}=[ \t]{0,4}(?=\")")
"""What is between the name of a Terraform variable and its default."""
_BLOCK = re.compile(r"[|>][+-]?[ \t]{0,4}\n[ \t]{1,32}([^\s:]{4,4096})[ \t]{0,8}(?=\n|\Z)")
"""A YAML block scalar of one word."""
_FORM_FIELD = re.compile(r"[\"']\r?\n(?:[\w-]{1,40}:[^\r\n]{0,128}\r?\n){0,4}\r?\n")
"""What is between the name of a multipart form's field and its value."""
_REPORTED = re.compile(r"[ \t]{0,2}\n[^\n]{0,200}?\binput_value=(?=[\"'])")
_USER_AND = re.compile(r"(?:user(?:name)?[ :=]{1,3})?[\w.@+-]{1,64}[ ]?[/:|][ ]?(?=\S)")
_ELEMENT = re.compile(
    r"[^<>\n]{0,120}>\s{0,8}(?:<!\[CDATA\[)?((?:(?!\]\]>)[^<>]){1,4096}+)(?:\]\]>)?</?"
)
_PLIST = re.compile(r"</key>\s{0,16}<(?:string|data)>\s{0,16}([^<>]{1,4096}+)</")
_TUPLE = re.compile(r"[\"'`][ \t]?,[ \t]?(?=[\"'`][^\"'`]{1,4096}[\"'`][ \t]?[,)\]}])")
_FLAG = re.compile(r"[ \t]{1,4}(?:\\?\n[ \t]{0,16})?")
_BARE = re.compile(_POSSESSIVE + r"[ \t]{1,8}(?:[0-9] )?")
_CHANGED = re.compile(
    r"(?i) (?:(?:was|is|has been|got) )?(?:changed|reset|rotated|updated|set)(?: back)?(?: from)? "
)
_CHANGED_TO = re.compile(
    r"(?i)(?:[ ](?:wurde|ist)[ ](?:auf|zu|in)|[ ](?:wurde )?geändert[ ](?:auf|in)|[ ](?:сменили|изменили)[ ]на|[ ](?:se |fue |ha sido )?cambi(?:ó|ada|ado)[ ](?:a|por)"
    r"|[ ](?:a été )?(?:changé|modifié|réinitialisé)e?[ ](?:en|à|par)|[ ](?:foi )?(?:alterada|mudada)[ ]para"
    r"|[ ](?:è stata )?(?:cambiata|modificata)[ ]in|[ ](?:is )?(?:gewijzigd|veranderd)[ ](?:in|naar)"
    r"|[ ](?:został[ao]? )?zmienion[eoay]{1,2}[ ]na|[ ](?:был )?(?:измен[её]н|смен[её]н)[ ]на"
    r"|已?(?:改|更改|修改|重置|设置)(?:为|成)|[ ]?を[ ]?|[ ]?[을를][ ]?)[ ]?[\"'`]?([!-+\--~]{4,128})"
)
_CHANGED_FROM = re.compile(r"(?i) from [\"'`]?([^\s\"'`]{4,128})[\"'`]? to ")
_CHANGE = re.compile(r"(?:\S{4,128} )?to ([^\s,;]{4,128})")
_SECOND_WORD = re.compile(r"[^\W\d_]{2,24}[ ]([^\s\"'`&<>,;]{6,128})")
_NEXT_CELL = re.compile(
    r"</(?:td|th|dt|label|b|strong|span|div)>\s{0,40}<(?:td|dd|span|code|div|p|b)(?: [^<>\n]{0,120})?>\s{0,8}([^<>\s][^<>]{0,4095}+)</"
)
_IN_CALL = re.compile(r"[\]'\"`]{1,3}(?:\)\.\w{2,20}\([ ]?|[ ]?,[ ]?)(?=[\"'`])")
_PREFIXED_TAG = re.compile(r"<[\w.-]{1,40}:\Z")
_VALUE_IN_FRONT = re.compile(
    r"(?i)[\s{,\"'](?:value|content|val)[\"']?[ ]{0,2}[=:][ ]{0,2}[\"']([^\"'<>]{3,256})[\"'][^<>{}]{0,120}\Z"
)
_DIGITS = re.compile(r"[ \t:=#]{1,4}(?:(?:is|was|code|number|no\.?) )?(\d{3,8})(?![\w.,:/-]\w|\w)")
_ANNOTATED = re.compile(r"(?:[A-Za-z&?*][\w.\[\], |]{1,40}?)[ \t]{0,2}=[ \t]{0,2}(?=[\"'])")


def _value_after(text: str, start: int, end: int, *, token: bool) -> Span | None:
    before = text[start - 1 : start]
    if before == "<" or (before == ":" and _PREFIXED_TAG.search(text, max(0, start - 44), start)):
        return inside(_ELEMENT.match(text, end), token)
    if before == ">" and text.startswith("</key>", end):
        return inside(_PLIST.match(text, end), token)
    name = text[start:end]
    if before in "\"'`" and before:
        for pattern in (_PAIR, _TUPLE):
            if pattern is _TUPLE and text[start - 2 : start - 1] not in ("(", "[", "{", " "):
                continue
            if (match := pattern.match(text, end)) is not None:
                return read_value(text, match.end(), token=token, sure=True)
        if (match := _FORM_FIELD.match(text, end)) is not None:
            return read_value(text, match.end(), token=token, sure=True)
        if (match := _DEFAULT.match(text, end)) is not None:
            return read_value(text, match.end(), token=token, sure=True)
        if (match := _HELD.match(text, end)) is not None:
            return inside(match, token)
        if (match := _VALUE_IN_FRONT.search(text, max(0, start - 300), start)) is not None:
            return match.span(1)
    elif (match := _PAIR_LINE.match(text, end) or _REPORTED.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=True)
    if (match := _OPERATOR.match(text, end)) is not None:
        if match[1] == "|":
            return _next_cell(text, start, end, token=token)
        return _behind_operator(text, match, name, token=token)
    if before == "-" and (match := _FLAG.match(text, end)) is not None:
        return read_value(text, match.end(), token=False, sure=True)
    if (match := _CALL.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=True)
    if (match := _NEXT_CELL.match(text, end)) is not None:
        return inside(match, token)
    if (match := _IN_CALL.match(text, end)) is not None and not token:
        span = read_value(text, match.end(), token=False, sure=True)
        return span if span and is_mixed(text[slice(*span)]) else None
    return _said(text, start, end, token=token)


_FIRST_CELL = re.compile(r"(?:^|\n)[ \t]{0,8}\|[ \t]{0,64}[^|\n]{0,24}\Z")
_NEXT_ROW_CELL = re.compile(
    r"[\"'`*_]{0,3}[ \t]{0,64}\|[ \t]{0,64}[\"'`*_]{0,3}([^\s|\"'`]{6,512})"
)
_RULE_BELOW = re.compile(r"[^\n]{0,512}\n[ \t]{0,8}\|[ \t]{0,8}:?--")
_ALGORITHM = re.compile(
    r"(?i)(?:sha|md|rs|hs|es|aes|utf|rsa|gpio|base|bcrypt)[_-]?\d.*|oauth\S*|x509"
)


def _next_cell(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in a row of a Markdown table, `| password | x |`."""
    if _FIRST_CELL.search(text, max(0, start - 80), start) is None:
        return None
    match = _NEXT_ROW_CELL.match(text, end)
    if match is None or _RULE_BELOW.match(text, end) is not None:
        return None
    value = match[1].rstrip("*_")
    if not is_mixed(value) or _ALGORITHM.fullmatch(value) or is_code(value):
        return None
    if is_placeholder(value) or (token and not is_token(value)):
        return None
    return match.start(1), match.start(1) + len(value)


_PAIR_LINE = re.compile(r"[ \t]{0,4}\n[ \t]{0,24}(?:value|content|default|data):[ \t]{1,4}(?=\S)")


def _behind_operator(text: str, match: re.Match[str], name: str, *, token: bool) -> Span | None:
    operator, at = match[1], match.end()
    is_short = name[-4:].lower() in _SHORT_NUMBERS or name[-3:].lower() in _SHORT_NUMBERS
    if is_short and (digits := _DIGITS.match(text, match.start())) is not None:
        return digits.span(1)
    if at >= len(text) or text[at] == "\n":
        found = _NEXT_LINE.match(text, match.start())
        if found is None or found[1].isalpha() or is_placeholder(found[1]):
            return None
        return found.span(1)
    if operator == ":" and (block := _BLOCK.match(text, at)) is not None:
        return inside(block, token)
    if _is_header(name):
        quoted = text[match.start() - len(name) - 1 : match.start() - len(name)] in ("'", '"', "`")
        return rest_of_header(text, at, cookie="ookie" in name.lower(), quoted=quoted)
    if operator == ":" and (annotated := _ANNOTATED.match(text, at)) is not None:
        at = annotated.end()
        operator = "="
    if (
        name.lower().endswith(("phrase", "mnemonic", "_words", "seedwords"))
        or name.lower() == "words"
    ):
        return word_list(text, at)
    if name.lower().startswith("cred") and (both := _USER_AND.match(text, at)) is not None:
        at = both.end()
    span = read_value(text, at, token=token, sure=operator != ":")
    if span is None and not token and (second := _SECOND_WORD.match(text, at)) is not None:
        span = second.span(1) if is_mixed(second[1]) and not is_code(second[1]) else None
    if span is not None and is_address(name) and "@" not in text[span[0] : span[1]]:
        return None
    return span


def _said(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in `the password is x`, `password x`, `パスワードはx`."""
    if text[end - 1 : end] > "\u2e80" or not text[start:end].isascii():
        match = _CJK_IS.match(text, end)
        if match is not None:
            ascii_run = _ASCII_RUN.match(text, match.end())
            if ascii_run is not None and is_mixed(ascii_run[0]):
                return ascii_run.span()
    is_short = not token and text[start:end].lower() in _SHORT_NUMBERS
    if is_short and (match := _DIGITS.match(text, end)) is not None:
        return match.span(1)
    if (match := _CHANGED_TO.match(text, end)) is not None and is_token(match[1]):
        return match.span(1) if is_mixed(match[1]) else None
    if (match := _CHANGED.match(text, end)) is not None:
        change = _CHANGE.match(text, match.end())
        if change is not None and is_mixed(change[1]) and (not token or is_token(change[1])):
            return change.span(1) if text.startswith("to ", change.start()) else change.span()
    if (match := _CHANGED_FROM.match(text, end)) is not None and is_mixed(match[1]):
        return match.span(1)
    if (match := _IS.match(text, end)) is not None:
        if "cred" in text[start:end].lower() and (both := _USER_AND.match(text, match.end())):
            return read_value(text, both.end(), token=False, sure=False, said=True, code=False)
        return read_value(text, match.end(), token=token, sure=False, said=True, code=False)
    match = _QUALIFIED.match(text, end)
    if match is not None and " where " not in match[0].lower():
        return read_value(
            text, match.end(), token=token, sure=match[1] == "=", said=True, code=False
        )
    if (match := _BLANK_QUOTE.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=False)
    if (match := _BARE.match(text, end)) is not None:
        span = read_value(text, match.end(), token=token, sure=False)
        if span is not None and is_mixed(value := text[span[0] : span[1]]):
            # `key session:4711` names something else, `password x1y2` the password.
            return None if re.fullmatch(r"[a-z]+:[\w:-]+", value) else span
    return None


_SHORT_NUMBERS = frozenset(
    listed("""
pin cvv cvc csc otp cvv2 cvc2
""")
)
_ASCII_RUN = re.compile(r"[!-~]{4,4096}+")


_COMPARED = re.compile(r"[\"']([^\"'\n]{4,64})[\"'] ?[!=]==? ?\Z")
_AS = re.compile(
    r"(\S{4,64})[\"'`,]{0,2}[ ](?:is|as|for|was)[ ](?:(?:the|my|your|our|a|his|her|their|its|new|old|current)[ ]){0,2}"
    r"(?:[A-Za-z]{2,14}[ ]){0,3}\Z"
)


def _value_before(text: str, start: int) -> Span | None:
    """Return the value in `x is the password`, `use x as password`."""
    if text[start - 1 : start] != " ":
        return None
    compared = _COMPARED.search(text, max(0, start - 100), start)
    if compared is not None:
        return compared.span(1) if is_mixed(compared[1]) else None
    match = _AS.search(text, max(0, start - 100), start)
    if match is None:
        return None
    value = match[1].strip("\"'`(),;:")
    begin = match.start(1) + match[1].find(value) if value else 0
    if not value or not is_mixed(value) or is_placeholder(value) or is_code(value):
        return None
    return (begin, begin + len(value)) if any(map(str.isdigit, value)) else None


def _is_header(name: str) -> bool:
    return name.lower().endswith(("authorization", "cookie"))
