"""Find the secret that a sentence tells: `the password is x`, `password x`, `use x as password`."""

import re
from collections.abc import Callable

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.value_kinds import (
    is_strong_password,
    is_token,
    may_be_password,
)
from evaltap.recorder.privacy.text.values import Span, is_mixed, read_value

_QUALIFIER = (
    r"(?:[ \t](?:for|of|to|in|on|at|from|with|für|von|zu|zum|de|del|della|di|da|do|des|para|pour|du|voor|van|för|til|dla|do|per"
    r"|для|от|к)[ \t][^\n:=.,;!?\"']{1,48}?|[ \t](?:for|of|von|für|de|pour)[^\n:=.,;!?\"']{0,24}[ ]['\"][^'\"\n]{1,80}['\"]|[ \t](?:d|l|de l|all|dell)['’][^\n:=.,;!?\"']{1,48}?)?"
)
_POSSESSIVE = r"(?:[ \t](?:saya|anda|kamu|mea|meu|mia|mio|mea|moje|moja|mia|minha|nova|nuova|nueva|nouvelle|của tôi|του|μου|yangu|ko))?"
"""A postposed word for `my`."""
_COPULAS = (
    r"is|was|are|equals|reads|heißt|heisst|será|sarà|serà|wird|bude|będzie|brzmi|zní|lyder|luidt|звучит|should be|will be|might be|could be|would be|ist|lautet|war|sind|es|era|está|est|c'est|sera|était|è|é|is nu|är|er|jest|to je|je|bol"
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
_CLAUSE = re.compile(r"(?:[ ][^\W\d_]{1,20}){1,5}?[ ]((?=[^\s]{0,63}\d)[^\s\"'`<>,;]{6,64})" + _END)
"""The password for this | x; only where x can hardly be anything else."""
_APPOSITION = re.compile(
    r"(?:[ ][^\W\d_]{1,20}['’]?[a-z]?){0,5}(?:,|:|[ ]-)[ ][\"'`]?((?=[^\s]{0,63}\d)[^\s\"'`<>,;]{6,64})"
    + _END
)
"""The same password as before, | x."""
_ANNOUNCED = re.compile(
    r"(?:[ ][^\s:,;!?\"<>]{1,40}){1,6}[ ]?:[ ][\"'`]?((?=[^\s]{0,63}\d)[^\s\"'`<>,;]{6,64})" + _END
)
"""The password you asked for: | x."""
_VERB_LAST = re.compile(
    r"(?:[ ][^\s\d.,:;!?\"<>()]{1,20}){0,3}?[ ]([!-~]{4,64})[ ](?:است|هست|है|हैं|idi|oldu|olacak)(?!\w)"
)
_ID = re.compile(r"[A-Z]{1,8}[-_ ]?\d+[A-Z]?|#\S+|[a-z]+\d{1,3}")


def _is_likely_password(value: str) -> bool:
    return may_be_password(value) and _ID.fullmatch(value) is None


_IN_CLAUSE = (
    (_CLAUSE_IS, may_be_password),
    (_VERB_LAST, may_be_password),
    (_CLAUSE, is_strong_password),
    (_APPOSITION, is_strong_password),
    (_ANNOUNCED, _is_likely_password),
)
"""The first also holds for tokens."""
_CHANGES = re.compile(
    r"(?i)\b(?:chang|set\b|reset|updat|cambi|remplac|replac|sostitu|ersetz|vervang|zastąp|замен|modifi|alter|ändere|setze|stell|mets |mettre|wijzig|verander|zmie|сменит?|смени|измени|поставь"
    r"|установи|byt |ändra|endre|skift|mude|ponga|pon |imposta|muda)"
)
_TO = re.compile(
    r"(?:[ ][^\W\d_]{1,20}){0,4}?[ ](?:to|en|auf|in|a|à|por|para|naar|na|на|till|til|par|com)[ ][\"'`]?([^\s\"'`<>,;]{6,64})"
    + _END
)
"""Change the password to | x."""
_OF_WHAT = frozenset(
    listed("""
policy policies manager field fields hash hashes hashing reset resets length size rule rules hint type format strength
generator prompt box form page requirement requirements authentication protected protection expiry expired expires
history change changed changes limit count counter column algorithm encryption check validation error errors failure
failed attempt attempts name names id ids owner created version versions usage provider providers where file not nicht no non pas ne nie не
""")
)
"""What stands after such a word is about the password, not the password."""
_QUALIFIED = re.compile(
    r"(?i)" + _QUALIFIER + r"(?:[ \t][^\W\d_]{2,20})?[ \t]?(=|:|[ ]-[ ])[*_]{0,2}[ \t]{0,4}"
)
_CJK_IS = re.compile(
    r"[ \t]?(?:是|为|為|は|が|を|に|는|은|이|가|를|을)?[ \t]?"
    r"(?:(?:お使い|使って|使用して)ください|사용하세요|사용해(?:[ ]?주세요)?|써[ ]?(?:줘|주세요))?[ \t]?[:：=]?[ \t\"']{0,3}"
)
_BLANK_QUOTE = re.compile(r"[ \t]{1,4}(?=[\"'`]\S)")
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
    r"|已?(?:改|更改|修改|重置|设置)(?:为|成)|[ ]?を[ ]?|[ ]?[을를][ ]?)[ ]?[\"'`]?([!-+\--~]{4,128})"
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
    is_short = not token and text[start:end].lower() in SHORT_NUMBERS
    if is_short and (match := DIGITS.match(text, end)) is not None:
        return match.span(1)
    if (match := _CHANGED_TO.match(text, end)) is not None and is_token(match[1]):
        return match.span(1) if is_mixed(match[1]) else None
    if (match := _CHANGED.match(text, end)) is not None:
        change = _CHANGE.match(text, match.end())
        if change is not None and is_mixed(change[1]) and (not token or is_token(change[1])):
            return change.span(1) if text.startswith("to", change.start()) else change.span()
    if (match := _CHANGED_FROM.match(text, end)) is not None and is_mixed(match[1]):
        return match.span(1)
    if (match := _IS.match(text, end)) is not None:
        at = match.end()
        if "cred" in text[start:end].lower() and (both := USER_AND.match(text, at)):
            at, token = both.end(), False
        span = read_value(text, at, token=token, sure=False, said=True, code=False)
        if span is not None and _TIME.match(text, span[0]) is not None:
            return None
        return span or _in_clause(text, start, end, token=token)
    match = _QUALIFIED.match(text, end)
    if match is not None and _OF_WHAT.isdisjoint(match[0].lower().rstrip(" :=-*_").split()[-1:]):
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
    return _in_clause(text, start, end, token=token)


_ANSWER = re.compile(
    r"(?:[?:]?[ \t]{0,2}\n[ \t]{0,8}(?:a|answer|user|human|me|client|customer|input|benutzer|usuario|utilisateur)[:>][ ]"
    r"|[ ]?\?[ \t]{0,2}\n[ \t]{0,8}(?:[\w .-]{1,24}[:>][ ])?|\?[ ]{1,3})([^\s\"'<>]{4,128})[ \t]{0,4}(?=\n|\Z)",
    re.IGNORECASE,
)
"""What stands alone on the line after a question for the password."""


def answered(text: str, end: int) -> Span | None:
    """Return the password that answers the question which ends here."""
    match = _ANSWER.match(text, end)
    return match.span(1) if match is not None and _is_likely_password(match[1]) else None


def _in_clause(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value further on in the clause, behind other words."""
    if not token and (span := answered(text, end)) is not None:
        return span
    if text[end : end + 1] not in (" ", ","):
        return None
    following = _FOLLOWING.match(text, end)
    if following is not None and following[1].lower() in _OF_WHAT:
        return None
    for pattern, is_value in _IN_CLAUSE[:1] if token else _IN_CLAUSE:
        match = pattern.match(text, end)
        if match is None:
            continue
        value = match[1].rstrip(".,;:?)]}*")
        if is_value(value) and (not token or is_token(value)):
            return match.start(1), match.start(1) + len(value)
    if not token and _CHANGES.search(text, max(0, start - 40), start) is not None:
        match = _TO.match(text, end)
        if match is not None and may_be_password(value := match[1].rstrip(".,;:!?)")):
            return match.start(1), match.start(1) + len(value)
    return None


SHORT_NUMBERS = frozenset(
    listed("""
pin cvv cvc csc otp cvv2 cvc2
""")
)
_ASCII_RUN = re.compile(r"[!-~]{4,4096}+")
_COMPARED = re.compile(r"[\"']([^\"'\n]{4,64})[\"'] ?[!=]==? ?\Z")
_WORD = re.compile(r"\S+")
_LINKS = frozenset(
    listed("""
is as for was are being into ist als es como est comme è come é är som er jest to jako это є е је je είναι هي هو היא הוא là
adalah ni 是 为 este són és
""")
)
_PRONOUNS = frozenset(
    listed("""
that this it das dies dat dit det der to это це esa esta eso essa esse isso questa questo ce cette tämä هذه هذا זו
""")
)
_POINTING = frozenset(listed("that's thats it's this's c'est c’est that’s it’s"))
_NO_ADJECTIVES = frozenset(
    listed("""
not no never in of from with about on at to a's nicht kein keine non nessuna pas ne nie не mit von dans avec con en sin
for if and or und oder et y e without wrong invalid falsch
""")
)
_COPULAS_FIRST = frozenset(listed("is was ist war es est era è é är er jest"))
_LONGEST_BEFORE = 100
_MOST_ADJECTIVES, _MOST_BETWEEN = 4, 4
_CJK_BEFORE = re.compile(
    r"([!-~]{4,64})[ ]?(?:是|为|為|が|は|가|이|는|은|을|를)(?:[ ]?[^\x00-\x7f]){0,10}[ ]?\Z"
)


_ASIDE = re.compile(r"([^\s\"'`<>(),;]{6,64})[\"'`]?[ ]\((?:my |the |your |our )?\Z")
"""What is before a name in parentheses: x (my password)."""


def value_before(text: str, start: int, end: int) -> Span | None:
    """Return the value in `x is the password`, `use x as password`, `with x? that's the password`."""
    first = max(0, start - _LONGEST_BEFORE)
    if text[start] > "\u2e80":
        match = _CJK_BEFORE.search(text, first, start)
        return match.span(1) if match is not None and may_be_password(match[1]) else None
    if text[start - 1 : start] not in (" ", "("):
        return None
    compared = _COMPARED.search(text, first, start)
    if compared is not None:
        return compared.span(1) if is_mixed(compared[1]) else None
    if (aside := _ASIDE.search(text, first, start)) is not None and text[end : end + 1] == ")":
        return aside.span(1) if _is_likely_password(aside[1]) else None
    line = text.rfind("\n", first, start) + 1
    words = [match.span() for match in _WORD.finditer(text, max(first, line), start)]
    if _is_about(text, end) and text.rfind(" into ", first, start) < 0:
        return None
    is_code = text[start:end].lower().endswith(_CODES)
    return _before_link(text, end, words, _may_be_code if is_code else may_be_password)


_CLAUSE_ENDS = re.compile(r"[.!?)\n]|\Z")


def _before_link(
    text: str, end: int, words: list[Span], is_value: Callable[[str], bool]
) -> Span | None:
    """Return the value before the last link of words that lead to a name."""
    for back in range(1, min(len(words), _MOST_ADJECTIVES + 2)):
        word = text[slice(*words[-back])].lower().lstrip("(")
        if word in _POINTING:
            return _nearest(text, words[:-back], _MOST_BETWEEN, is_value)
        if word in _LINKS:
            before = words[:-back]
            if len(before) > 1 and text[slice(*before[-1])].lower() in _PRONOUNS:
                return _nearest(text, before[:-1], _MOST_BETWEEN, is_value)
            return _nearest(text, before, 1, is_value)
        if word.endswith(",") and back > 1 and _CLAUSE_ENDS.match(text, end) is not None:
            return _nearest(text, words[: len(words) - back + 1], 1, is_value)
        if may_be_password(text[slice(*words[-back])]) and back < len(words):
            # "Is x still the password?"
            is_asked = text[slice(*words[-back - 1])].lower() in _COPULAS_FIRST
            return _nearest(text, words[: len(words) - back + 1], 1, is_value) if is_asked else None
        if word in _NO_ADJECTIVES or not word.replace("'", "").replace("-", "").isalpha():
            return None
    return None


def _nearest(
    text: str, words: list[Span], most: int, is_value: Callable[[str], bool]
) -> Span | None:
    """Return the last of some words that can be a password, of at most so many, signs aside."""
    for start, stop in reversed(words[-most - 1 :]):
        word = text[start:stop]
        value = word.strip("\"'`(),;:").rstrip(".?")
        if is_value(value):
            begin = start + word.find(value)
            return begin, begin + len(value)
        if word != "-":
            most -= 1
        if not most:
            break
    return None


_CODES = ("code", "pin", "otp", "codice", "código", "codigo", "kode", "kod", "код", "koodi", "kód")
_CODE = re.compile(r"(?:[A-Z]{1,3}-)?\d{4,8}")


def _may_be_code(value: str) -> bool:
    return _CODE.fullmatch(value) is not None or may_be_password(value)


def _is_about(text: str, end: int) -> bool:
    """Return whether the name is only the first of two: `the password policy`."""
    following = _FOLLOWING.match(text, end)
    return following is not None and following[1].lower() in _OF_WHAT


_FOLLOWING = re.compile(r"[ ]([a-z]{2,20})")
