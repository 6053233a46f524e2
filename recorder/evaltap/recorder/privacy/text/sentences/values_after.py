"""Find the secret after its name in a sentence: `the password is x`, `password x`, `パスワードはx`."""

import re

from evaltap.recorder.privacy.text.normalization import listed
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

_QUALIFIER = (
    r"(?:[ \t](?:for|of|to|in|on|at|from|with|für|von|zu|zum|de|del|della|di|da|do|des|para|pour|du|voor|van|för|til|dla|do|per"
    r"|для|от|к)[ \t][^\n:=.,;!?\"']{1,48}?|[ \t](?:for|of|von|für|de|pour)[^\n:=.,;!?\"']{0,24}[ ]['\"][^'\"\n]{1,80}['\"]|[ \t](?:d|l|de l|all|dell)['’][^\n:=.,;!?\"']{1,48}?)?"
)
_POSSESSIVE = r"(?:[ \t](?:saya|anda|kamu|mea|meu|mia|mio|mea|moje|moja|mia|minha|nova|nuova|nueva|nouvelle|của tôi|του|μου|الخاصة? بك|yangu|ko|langu|lako|lake|letu|lenu))?"
"""A postposed word for `my`."""
_COPULAS = (
    r"to be|to equal|is|was|are|equals|reads|heißt|heisst|será|sarà|serà|wird|bude|będzie|brzmi|zní|lyder|luidt|звучит|should be|will be|might be|could be|would be|ist|lautet|war|sind|es|era|está|est|c'est|sera|était|è|é|is nu|är|er|jest|to je|je|bol"
    r"|este|é|és|yra|ir|adalah|ialah|là|është|ay|это|теперь|будет|равен|е|є|це|је|είναι|هي|هو|है|हैं|হল|হলো|היא|הוא|است"
)
_IS = re.compile(
    r"(?i)[\"'`]?"
    + _QUALIFIER
    + _POSSESSIVE
    + rf"(?:'s|[ \t]{{1,3}}(?:{_COPULAS}|to|now|on|olarak|ni))"
    r"(?:[ \t](?:now|still|set to|currently|just|simply|jetzt|ahora|maintenant|agora|ora|nu|теперь|changed to"
    r"|going to be|as follows))?[ \t:]{1,3}"
)
_OTHER_WORD = r"[ ][^\s.,:;!?=\"<>()]{1,24}"
_END = r"(?=[ .,;!?\"')\n]|\Z)"
_CLAUSE_IS = re.compile(
    rf"(?i)(?:[ ]\([^()\n]{{1,40}}\))?(?:{_OTHER_WORD}){{0,9}}?[ ](?:{_COPULAS})[ :]{{1,3}}[\"'`]?([^\s\"'`<>]{{4,128}})"
)
"""The password that I use for this | is | x."""
_CLAUSE = re.compile(
    r"(?![ ](?:to|must|should|can|may|needs?|has|have)[ ])(?:[ ][^\W\d_]{1,20}){1,5}?[ ]((?=[^\s]{0,63}\d)[^\s\"'`<>,;]{6,64})"
    + _END
)
"""The password for this | x; only where x can hardly be anything else."""
_APPOSITION = re.compile(
    r"(?:[ ][^\W\d_]{1,20}['’]?[a-z]?){0,5}(?:,|:|[ ]-)[ ][\"'`]?((?=[^\s]{0,63}\d)[^\s\"'`<>,;]{6,64})"
    + _END
)
"""The same password as before, | x."""
_ANNOUNCED = re.compile(
    r"(?:[ ][^\s:,;!?\"<>()]{1,40}){1,6}(?:[ ]\([^()\n]{1,60}\))?[ ]?:(?:[ ][\"'`]?|[ ]?(?:\n[ \t]{0,8}){1,2}(?=\S{6,64}[ \t]{0,4}(?:\n|\Z)))((?=[^\s]{0,63}\d)[^\s\"'`<>,;]{6,64})"
    + _END
)
"""The password you asked for: | x."""
_VERB_LAST = re.compile(
    r"(?:[ ][^\s\d.,:;!?\"<>()]{1,20}){0,3}?[ ]([!-~]{4,64})[ ](?:است|هست|है|हैं|idi|oldu|olacak|da)(?!\w)"
)
_IT_IS = re.compile(
    r"(?:'s)?(?:[ ][^\s.:;?!\"<>]{1,24}){0,8}[ ]it(?:['’]s|[ ]is)(?:[ ]now)?:?[ ][\"'`]?([^\s\"'`<>,;]{6,64})"
    + _END
)
"""The password has been reset, it is now | x."""
_THEN_TYPE = re.compile(
    r"(?:[ ][^\W\d_]{1,20}){0,4},[ ](?:(?:just|please|then)[ ])?(?:type|enter|use|give|try|put)(?:[ ]in)?[ ][\"'`]?([^\s\"'`<>,;]{4,64})"
    + _END
)
"""When prompted for the password, type | x."""
_IN_CLAUSE = (
    (_CLAUSE_IS, may_be_password),
    (_VERB_LAST, may_be_password),
    (_CLAUSE, is_strong_password),
    (_APPOSITION, is_strong_password),
    (_ANNOUNCED, is_likely_password),
    (_IT_IS, is_likely_password),
    (_THEN_TYPE, may_be_password),
)
"""The first also holds for tokens."""
_CHANGES = re.compile(
    r"(?i)\b(?:chang|set\b|reset|updat|cambi|remplac|replac|sostitu|ersetz|vervang|zastąp|замен|modifi|alter|ändere|setze|stell|mets |mettre|wijzig|verander|zmie|сменит?|смени|измени|поставь"
    r"|установи|byt |fill|enter|ändra|ændr|změn|zmen|endre|skift|mude|ponga|pon |imposta|muda)"
)
_TO = re.compile(
    r"(?:[ ][^\W\d_]{1,20}){0,4}?[ ](?:to|with|mit|avec|con|en|auf|in|a|à|por|para|naar|na|на|till|til|par|com)[ ][\"'`]?([^\s\"'`<>,;]{6,64})"
    + _END
)
"""Change the password to | x."""
_QUALIFIED = re.compile(
    r"(?i)" + _QUALIFIER + r"(?:[ \t][^\W\d_]{2,20})?[ \t]?(=|:|[ ]-[ ])[*_]{0,2}[ \t]{0,4}"
)
_CJK_IS = re.compile(
    r"[ \t]?(?:是|为|為|は|が|を|に|는|은|이|가|를|을)?[ \t]?"
    r"(?:(?:お使い|使って|使用して)ください|사용하세요|사용해(?:[ ]?주세요)?|써[ ]?(?:줘|주세요))?[ \t]?[:：=]?[ \t\"']{0,3}"
)
_BLANK_QUOTE = re.compile(r"[ \t]{1,4}(?=[\"'`](?![ ]?[+%.,);])\S)")
USER_AND = re.compile(r"(?:user(?:name)?[ :=]{1,3})?[\w.@+-]{1,64}[ ]?[/:|][ ]?(?=\S)")
_BARE = re.compile(_POSSESSIVE + r"[ \t]{1,8}(?:[0-9] )?")
_TIME = re.compile(r"(?:19|20)\d\d-\d\d-\d\d(?!\w)|\d\d?:\d\d(?!\w)")
_CHANGED = re.compile(
    r"(?i) (?:(?:was|is|has been|got) )?(?:changed|reset|rotated|updated|set)(?: back)?(?: from)? "
)
_CHANGED_TO = re.compile(
    r"(?i)(?:[ ](?:wurde|ist)[ ](?:auf|zu|in)|[ ](?:wurde )?geändert[ ](?:auf|in)|[ ](?:сменили|изменили)[ ]на|[ ](?:se |fue |ha sido )?cambi(?:ó|ada|ado)[ ](?:a|por)"
    r"|[ ](?:a été )?(?:changé|modifié|réinitialisé)e?[ ](?:en|à|par)|[ ](?:foi )?(?:alterada|mudada)[ ]para"
    r"|[ ](?:è stata )?(?:cambiata|modificata)[ ]in|[ ](?:is )?(?:gewijzigd|veranderd)[ ](?:in|naar)"
    r"|[ ](?:został[ao]? )?zmienion[eoay]{1,2}[ ]na|[ ](?:был )?(?:измен[её]н|смен[её]н)[ ]на"
    r"|已?(?:改|更改|修改|重置|设置)(?:为|成)了?|[ ]?を[ ]?|[ ]?[을를][ ]?)[ ]?[\"'`]?([!-+\--~]{4,128})"
)
_CHANGED_FROM = re.compile(
    r"(?i) (?:from|von|de|da|van|från|z|с) [\"'`]?([^\s\"'`]{4,128}[\"'`]? (?:to|auf|zu|in|a|à|para|naar|till|na|на)"
    r" [\"'`]?[^\s\"'`,;]{1,128})"
)
_CHANGE = re.compile(r"(?:\S{4,128} )?to:? ([^\s,;]{4,128})")
DIGITS = re.compile(r"[ \t:=#]{1,4}(?:(?:is|was|code|number|no\.?) )?(\d{3,8})(?![\w.,:/-]\w|\w)")


def said(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in `the password is x`, `password x`, `パスワードはx`."""
    if text[end - 1 : end] > "\u2e80" or not text[start:end].isascii():
        match = _CJK_IS.match(text, end)
        if match is not None:
            ascii_run = _ASCII_RUN.match(text, match.end())
            if ascii_run is not None and is_mixed(ascii_run[0]):
                return ascii_run.span()
    is_short = not token and text[start:end].lower() in _NUMBERS
    if is_short and (match := DIGITS.match(text, end)) is not None:
        return match.span(1)
    if (match := _CHANGED_TO.match(text, end)) is not None and is_token(match[1]):
        return match.span(1) if is_mixed(match[1]) else None
    if (match := _CHANGED.match(text, end)) is not None:
        change = _CHANGE.match(text, match.end())
        if change is not None and is_mixed(change[1]) and (not token or is_token(change[1])):
            return change.span(1) if text.startswith("to", change.start()) else change.span()
    if (match := _CHANGED_FROM.match(text, end)) is not None and is_mixed(match[1]):
        return None if is_measure(match[1].split()[0]) else match.span(1)
    match = _IS.match(text, end)
    if match is not None and not (
        match[0].rstrip(" :\t").endswith(" on") and _ENGLISH.search(text, start, end)
    ):
        at = match.end()
        if "cred" in text[start:end].lower() and (both := USER_AND.match(text, at)):
            at, token = both.end(), False
        span = read_value(text, at, token=token, sure=False, said=True, code=False)
        if span is not None and _TIME.match(text, span[0]) is not None:
            return None
        return span or _in_clause(text, start, end, token=token)
    match = _QUALIFIED.match(text, end)
    if match is not None and OF_WHAT.isdisjoint(match[0].lower().rstrip(" :=-*_").split()[-1:]):
        span = read_value(
            text, match.end(), token=token, sure=match[1] == "=", said=True, code=False
        )
        return span or _in_clause(text, start, end, token=token)
    if _SECRET.fullmatch(text, start, end) and _NAME_OF_SECRET.match(text, end) is not None:
        return None
    if (match := _BLANK_QUOTE.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=False)
    if not token and (match := _SWITCH.match(text, end)) is not None:
        return read_value(text, match.end(), token=False, sure=True)
    if (match := _BARE.match(text, end)) is not None:
        span = read_value(text, match.end(), token=token, sure=False)
        if span is not None and is_mixed(value := text[span[0] : span[1]]):
            # `key session:4711` names something else, `password x1y2` the password.
            if text[start:end].lower() == "key" and _KEY_ID.fullmatch(value) is not None:
                return None
            return None if re.fullmatch(r"[a-z]+:[\w:-]+", value) else span
    return _in_clause(text, start, end, token=token)


_ENGLISH = re.compile(r"(?i)pass|pw|token|key|secret|code|cred")
"""In names with one of these `on` is no Finnish for `is`."""
_SWITCH = re.compile(r"[ ]--(?:plaintext|iscrypted)[ ]")
"""Between `rootpw` and the password in Kickstart's files."""
_KEY_ID = re.compile(r"0x[0-9A-F]{8,40}|[0-9A-F]{16}|[0-9A-F]{40}")
"""How GPG writes which key it means."""
_SECRET = re.compile(r"(?i)(?:[\w-]{0,40}[ _-])?secrets?")
_NAME_OF_SECRET = re.compile(
    r"[ ][\"'`\[]?(?![a-z]+[-_.](?!19|20)\d{3,8}(?!\w))[a-z0-9.]+(?:[-/_][a-z0-9.]+)+[\"'`\].,;:]{0,3}(?=\s|\Z)"
)
"""How tools write of a secret in a store, by its name: `secret "pg-auth" deleted`."""
_ANSWER = re.compile(
    r"(?:[?:]?[ \t]{0,2}\n[ \t]{0,8}(?:a|answer|user|human|me|client|customer|input|benutzer|usuario|utilisateur)[:>][ ]"
    r"|[ ]?\?[ \t]{0,2}\n[ \t]{0,8}(?:[\w .-]{1,24}[:>][ ])?|\?[ ]{1,3})(?:(?:it['’]?s|it is|es ist|c['’]est|es|è|is|das ist|that['’]s)[ ])?([^\s\"'<>]{4,128})[ \t]{0,4}(?=\n|\Z)",
    re.IGNORECASE,
)
"""What stands alone on the line after a question for the password."""


def answered(text: str, end: int) -> Span | None:
    """Return the password that answers the question which ends here."""
    match = _ANSWER.match(text, end)
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
    for pattern, is_value in _IN_CLAUSE[:1] if token else _IN_CLAUSE:
        match = pattern.match(text, end)
        if match is None:
            continue
        value = match[1].rstrip(".,;:?)]}*")
        if is_value(value) and (not token or is_token(value)):
            return match.start(1), match.start(1) + len(value)
    return None


def _changed_to(text: str, start: int, end: int) -> Span | None:
    """Return what a verb before or after the name says that the value becomes."""
    match = _TO.match(text, end)
    if match is None or _CHANGES.search(text, max(0, start - 40), match.start(1)) is None:
        return None
    value = match[1].rstrip(".,;:!?)")
    return (match.start(1), match.start(1) + len(value)) if may_be_password(value) else None


_AND_NEW = re.compile(
    r"(?i)[\"'`]?,?[ ](?:and|but|then|und|aber|et|y|e|en|i)[ ](?:(?:the|das|die|le|la|el|il|o|a|het)[ ])?"
    r"(?:new|old|other|next|current|second|neue|alte|nouveau|nueva|nuovo|nova|nieuwe)(?:[ ](?:one|password|passwort))?"
    r"(?:[ ](?:is|was|ist|lautet|est|es|é|è))?:?[ ][\"'`]?([^\s\"'`<>,;]{4,64})"
)


_ARROW = re.compile(r"[\"'`]?[ ]{1,2}(?:->|=>|→)[ ]{1,2}(?=\S)")
"""What a plan of changes has between the old value and the new one."""


def other_said(text: str, end: int) -> Span | None:
    """Return a second password behind the first: `the old one was x and the new one is y`."""
    if (match := _ARROW.match(text, end)) is not None:
        return read_value(text, match.end(), token=False, sure=True)
    match = _AND_NEW.match(text, end)
    if match is None:
        return None
    value = match[1].rstrip(".,;:!?)")
    return (match.start(1), match.start(1) + len(value)) if may_be_password(value) else None


SHORT_NUMBERS = frozenset(
    listed("""
pin cvv cvc csc otp cvv2 cvc2
""")
)
_NUMBERS = SHORT_NUMBERS | {"code", "codice", "código", "kod", "kode", "код"}
_ASCII_RUN = re.compile(r"[!-~]{4,4096}+")
