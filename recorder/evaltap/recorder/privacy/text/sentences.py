"""Find the secret that a sentence tells: `the password is x`, `password x`, `use x as password`."""

import re

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.value_kinds import is_code, is_placeholder, is_token
from evaltap.recorder.privacy.text.values import Span, is_mixed, read_value

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
_BLANK_QUOTE = re.compile(r"[ \t]{1,4}(?=[\"'`]\S)")
USER_AND = re.compile(r"(?:user(?:name)?[ :=]{1,3})?[\w.@+-]{1,64}[ ]?[/:|][ ]?(?=\S)")
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
DIGITS = re.compile(r"[ \t:=#]{1,4}(?:(?:is|was|code|number|no\.?) )?(\d{3,8})(?![\w.,:/-]\w|\w)")


def said(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in `the password is x`, `password x`, `パスワードはx`."""
    if text[end - 1 : end] > "\u2e80" or not text[start:end].isascii():
        match = _CJK_IS.match(text, end)
        if match is not None:
            ascii_run = _ASCII_RUN.match(text, match.end())
            if ascii_run is not None and is_mixed(ascii_run[0]):
                return ascii_run.span()
    is_short = not token and text[start:end].lower() in SHORT_NUMBERS
    if is_short and (match := DIGITS.match(text, end)) is not None:
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
        if "cred" in text[start:end].lower() and (both := USER_AND.match(text, match.end())):
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


SHORT_NUMBERS = frozenset(
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


def value_before(text: str, start: int) -> Span | None:
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
