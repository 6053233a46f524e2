"""Find where a text has names that may be those of secrets: stems, words before a sign.

Stems of secrets' names are searched as substrings; `secret_names` classifies the full name around
each. Only a bounded part of the text is read around a stem, so the cost grows linearly.
"""

import re
from functools import lru_cache

from evaltap.recorder.privacy.text.names.phrase_words import HEADS, MODIFIERS, NO_SECRETS, bare
from evaltap.recorder.privacy.text.names.secret_names import Name, is_word_for_keyword, kind_of_name
from evaltap.recorder.privacy.text.normalization import folded, listed
from evaltap.recorder.privacy.text.span import Span

_STEMS = listed("""
pass secret token key cred code auth clave senha kennw wachtw eslo haslo salasan adgangsk sandi
pasahitz laluan paro lozink slaptazod jelszav siri wagwoord gasla contras sifre jeton klucz chave anahtar geheim schluessel
chiave sleutel kunci codic kod
""")  # fmt: skip
"""Stems of secrets' names in sentences, commands and markup; before a sign any name is read."""
_SHORT_STEMS = ("pw", "pin", "otp", "cvv", "cvc", "mdp")
"""Parts of many ordinary words: they count only at the start or end of one."""
_FOREIGN_STEMS = listed("""
парол лозинк секрет ключ код_доступа код-доступа гасл hasł lösen şifre jelsz clé khẩu лозинк паролат slaptažod lykilor المرور السر السري пасворд পাসওয়ার্ড 密码 密碼 密钥 密鑰 口令 验证码 驗證碼 令牌 凭证 パスワード
暗証番号 秘密鍵 合言葉 認証コード トークン 토큰 токен 비밀번호 비번 암호 비밀키 인증번호 인증코드 패스워드 키 인증키 キー 認証キー 私钥 私鑰 金鑰 पासवर्ड كلم رمز مفتاح סיסמ รหัส κωδ συνθ schlüssel
nøgle nøkkel klíč κλειδ код códig कुंजी מפתח קוד khóa 鍵 码 碼 コード 코드 シークレット フレーズ 시크릿 слово фраз kód mã belirte कोड कूट
nyckel avain klic kulcs cheie codig
""")  # fmt: skip
_ENDS_OF_PHRASES = frozenset(listed("""
key code keys codes passe token tokens phrase string answer secret secreta secrète acceso clave number
pass clef chave доступа الوصول السري mật cập riêng minh khau слово
"""))  # fmt: skip
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-$"
_LONGEST_NAME = 64
_MARKS = "\u0300-\u036f\u0610-\u065f\u0900-\u0dff\u0e00-\u0e7f"  # combining marks
_NAME_REST = re.compile(r"[\w.$" + _MARKS + r"-]{0,64}")
_AND_MODIFIER = re.compile(
    r"(?:[ ](?:d[eio]|da|del|dell[ao]|des?|du|of|for|för|für|til|voor|do|na|для|к)(?=[ ])|[ ]d[e]?(?=['’])|[ ]dell(?=['’]))?[ '’]([^\W\d_]{3,20})"
)
"""In `clave API` and `code d'accès` the word for key or code comes first."""
_SIGN = re.compile(r"[=:]")
_SIGN_OR_DASH = re.compile(r"[=:]| - ")
_LATIN = re.compile(r"[A-Za-z0-9_.$\u00c0-\u2e7f-]{0,64}")
_IDEOGRAMS = re.compile(r"[\u2e80-\uffef]{1,12}\Z")
_TAG = re.compile(r"<([^\W\d][\w.-]{1,63})[ >]")
_BACKWARDS = re.compile(r"[\"'`\])}*_~ \t]{0,12}([\w.$" + _MARKS + r"-]{2,64})")
"""A name before a sign, on the reversed text."""


def names_in(text: str, lower: str) -> list[Span]:
    """Return the spans of words that may be, or may end, the name of a secret."""
    found: dict[int, int] = {}
    signs = _SIGN if " - " not in text else _SIGN_OR_DASH
    for sign in signs.finditer(text):
        at = sign.start()
        if text[at - 1 : at].isdigit() and text[at + 1 : at + 2].isdigit():
            continue  # a time
        match = _BACKWARDS.match(text[at - 40 if at > 40 else 0 : at][::-1])
        if match is None:
            continue
        name = match[1][::-1]
        if _may_tell(name):
            start = at - match.end()
            found[start] = start + len(name)
    if "</" in text:
        for tag in _TAG.finditer(text):
            if kind_of_name(tag[1]) in _TELLING:
                found[tag.start(1)] = tag.end(1)
    stems = _STEMS if text.isascii() else _STEMS + _FOREIGN_STEMS
    for stem in [one for one in stems if one in lower]:
        _collect(text, lower, stem, found, short=False)
    for stem in _SHORT_STEMS:
        if stem in lower:
            _collect(text, lower, stem, found, short=True)
    return sorted(found.items())


_TELLING = (Name.SECRET, Name.TOKEN)


@lru_cache(maxsize=8192)
def _may_tell(name: str) -> bool:
    """Return whether a name is that of a secret, or can end one of several words."""
    # Cached, since names before signs recur.
    word = name.lower()
    return (
        kind_of_name(name) in _TELLING or word in _ENDS_OF_PHRASES or _plain(word) in _PHRASE_WORDS
    )


_PHRASE_WORDS = HEADS | MODIFIERS


def _plain(word: str) -> str:
    return word if word.isascii() else bare(folded(word))


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
            if start and "\u00c0" <= text[start - 1] < "\u2e80" and stem < "\u2e80":
                latin = _LATIN.match(before[::-1])  # `Bestätigungscode`
                start = at - latin.end() if latin else start
        else:
            backwards = _NAME_REST.match(before[::-1])
            start = at - (backwards.end() if backwards else 0)
        # In languages without spaces, a name ends with its stem.
        rest = None if stem > "\u2e80" else _NAME_REST.match(text, behind)
        end = rest.end() if rest else behind
        while end > behind and text[end - 1] in ".-$":
            end -= 1
        while start < at and text[start] in ".-$":
            start += 1
        if stem in _HEAD_STEMS:
            end = _with_modifier(text, start, end)
        found[start] = max(end, found.get(start, 0))
        at = lower.find(stem, end)


_HEAD_STEMS = frozenset(
    listed("""
clave code clé clef chave chiave klucz ключ مفتاح cheie kunci codic codig códig kod код token jeton токен رمز κωδ κλειδ קוד מפתח كلم phrase frase khóa khoá mã
""")
)
_BEFORE_TWO_WORDS = frozenset(listed("khóa khoá mã"))
_TWO_WORDS = re.compile(r"[ ][^\W\d_]{2,8}(?:[ ][^\W\d_]{2,8})?")


def _with_modifier(text: str, start: int, end: int) -> int:
    """Return the end of a name together with the modifier that follows its head."""
    if _plain(text[start:end].lower()) in HEADS:
        match = _AND_MODIFIER.match(text, end)
        if match is not None and _plain(match[1].lower()) in MODIFIERS:
            return match.end()
    elif text[start:end].lower() in _BEFORE_TWO_WORDS:
        match = _TWO_WORDS.match(text, end)
        if match is not None and kind_of_name(text[start : match.end()]) is Name.SECRET:
            return match.end()
    return end


_FOLLOWING = re.compile(r"[ ](?:d[eiau][ ]|del[ ]|des[ ])?([^\W\d_]{4,20})")


def _names_something_else(text: str, start: int, end: int) -> bool:
    """Return whether a word for key or code names no secret with the next: `clave primaria`."""
    if _plain(text[start:end].lower()) not in _AMBIGUOUS:
        return False
    following = _FOLLOWING.match(text, end)
    return following is not None and folded(following[1]).lower() in NO_SECRETS


_AMBIGUOUS = HEADS | {"parola", "sifre"}
_OTHER_PHRASE = re.compile(r"(?s).*[.,;:!?\"`()\[\]{}<>=\n_]")
_QUOTE = re.compile(r"(?<!\w)'|'(?!\w)")
_JOINS_WORDS = re.compile(r".[ ]|[^\W\d_]['’]")


def _kind_in_run(text: str, start: int, end: int) -> Name:
    """Classify a name in a language without spaces: with the characters before its stem."""
    run = _IDEOGRAMS.search(text, max(0, start - 6), end)
    return kind_of_name(run[0] if run else text[start:end])


def kind_at(text: str, start: int, end: int) -> Name:
    name = text[start:end]
    kind = kind_of_name(name)
    if name > "\u2e80" and kind is not Name.SECRET:
        kind = _kind_in_run(text, start, end)
    if kind is Name.SECRET and _names_something_else(text, start, end):
        return Name.PLAIN
    if _JOINS_WORDS.match(text, start - 2 if start > 1 else 0) is None:
        return kind
    # "security code", "mot de passe", but "palabra clave": the preceding words belong to the name.
    first = start - 40 if start > 40 else 0
    other = _OTHER_PHRASE.match(text, first, start - 1)
    tail = text[other.end() if other else first : start - 1]
    if "'" in tail:
        tail = _QUOTE.split(tail)[-1]
    before = tail.replace("-", " ").split()[-3:]
    if kind is Name.SECRET or kind is Name.TOKEN:
        is_keyword = bool(before) and is_word_for_keyword(before[-1] + name)
        return Name.PLAIN if is_keyword else kind
    return kind_of_name(" ".join((*before, name))) if before else kind
