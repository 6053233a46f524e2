"""Find where a text has names that may be those of secrets: stems, words before a sign.

Stems of secrets' names are searched as substrings; `secret_names` classifies the full name around
each. Only a bounded part of the text is read around a stem, so the cost grows linearly.
"""

import re

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.secret_names import Name, is_word_for_keyword, kind_of_name
from evaltap.recorder.privacy.text.values import Span

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


def kind_at(text: str, start: int, end: int) -> Name:
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
