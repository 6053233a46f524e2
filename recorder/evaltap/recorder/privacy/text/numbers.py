"""Find personal numbers in text: phones of sixty countries, payment cards, accounts, SSNs.

Only runs of digits are examined: by their format where it is conclusive (`+49 170 1234567`, `(415)
555-2671`, `06 12 34 56 78`), else by the words around them ("call me on 8123 4567").
"""

import re
from collections.abc import Iterator

from evaltap.recorder.privacy.text.check_digits import (
    IBAN_LENGTHS,
    has_luhn_digit,
    is_card_number,
    is_iban,
)
from evaltap.recorder.privacy.text.names.secret_names import Name, kind_of_name
from evaltap.recorder.privacy.text.normalization import listed

Number = tuple[str, int, int, str]
"""Kind, span, and normal form."""

_RUN = re.compile(r"\d(?>(?:[ .,\-/()_\t]{0,3}\d){6,})")
_GAP = r"(?:[ .\-_/\t]|[ ]{2}| [-/] )"
_CARDS = tuple(
    re.compile(rf"(?:(?<![\w.])|(?<=%B))(?:{form})(?!\w)(?!\.\d)")
    for form in (
        r"\d{14,19}",
        rf"\d{{4}}({_GAP})\d{{4}}(?:\1\d{{4}}){{2}}",
        rf"\d{{4}}({_GAP})\d{{4}}(?:\1\d{{4}}){{2}}\1\d{{1,3}}",
        rf"\d{{4}}({_GAP})\d{{6}}\1\d{{4,5}}",
        rf"\d{{4}}({_GAP})\d{{4}}\1\d{{4}}\1\d{{2,3}}",
        rf"\d{{6}}({_GAP})\d{{10,13}}|\d{{8}}({_GAP})\d{{8}}",
        r"\d(?: \d){13,18}",
    )
)
_CARD_WORDS = re.compile(
    r"card|visa|maestro|amex|\bpan\b|debit|kreditkarte|karte|carte|tarjeta|cartão|carta|kort|kaart|karta|карт|卡"
    r"|カード|카드"
)
_PLUS = re.compile(
    r"\+(?<![\w+]\+)(?![ ]\d{1,3}\.\d)[ ]?[1-9](?>(?:[ .\-/()]{0,3}\d){6,14})(?!\d|[eE][-+\d]|[*j])"
)
_FORMS = tuple(
    re.compile(
        r"(?<![\w+/=-])(?<!\d[.,])(?<!#)(?<![A-Za-z]\d )(?:" + form + r")(?![\w%])(?![.,:/-]\d)"
    )
    for form in (
        # North America, and others who group three, three and four
        r"(?:1[ .-])?(?:\([2-9]\d{2}\)[ -]?|[2-9]\d{2}[ .-])\d{3}[ .-]\d{4}",
        # a leading zero: an area code, then groups
        r"(?:\(0\d{1,5}\)|\(0[ -]?\d{1,4}\)|0\d{1,5}|00[1-9]\d{0,3})[ /-]{1,3}\d{2,8}(?:[ -]\d{1,4}){0,5}",
        r"0\d(?:\.\d\d){4}|0\d{2,3}(?:\.\d{2,4}){2,3}",
        # a leading eight: Russia and its neighbors
        r"8[ -]?\(?\d{3,5}\)?[ -]?\d{1,3}(?:[ -]\d{2}){2}|8 ?\(\d{3}\) ?\d{3}[ -]\d{4}",
        # an area code in parentheses
        r"\((?!19|20)\d{2,5}\)[ -]?\d{2,8}(?:[ -]\d{2,5}){0,3}",
        # Brazil, China, India, Spain, Poland
        r"[1-9]\d 9 ?\d{4}-\d{4}|1[3-9]\d([ -])\d{4}\1\d{4}|[6-9]\d{4}[ -]\d{5}",
        r"[6-9]\d{2} \d{2} \d{2} \d{2}|[1-9]\d \d{3} \d{2} \d{2}",
    )
)
_ALONE = r"(?<![^\W\u2e80-\ud7ff])"
"""No letter or digit in front; Chinese, Japanese and Korean have no blank there."""
_NOT_JOINED = r"(?![^\W\u2e80-\ud7ff])"
_LOOSE = re.compile(
    rf"{_ALONE}(?<!\d[.,:])\(?\+?\d(?:[ .\-/()]{{0,3}}\d){{6,14}}{_NOT_JOINED}(?!%)(?![.,:]\d)"
)
_NAMED_CARD = re.compile(rf"{_ALONE}\d(?:[ .\-/_]{{0,2}}\d){{11,18}}{_NOT_JOINED}")
_DATES = re.compile(
    r"(?:19|20)\d\d ?[-/] ?(?:19|20)\d\d(?!\d)|(?:19|20)\d\d[-./ ]\d\d?[-./ ]\d\d?(?!\d)|\d\d?([-./])\d\d?\1\d{4}\b|0\d \d\d (?:19|20)\d\d\b|(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)"
)
_SSN = re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}([- ])(?!00)\d{2}\1(?!0000)\d{4}(?![\w-])")
_NAMED_SSN = re.compile(
    r"(?<![\w-])(?!000|666|9\d\d)\d{3}[-. ]?(?!00)\d{2}[-. ]?(?!0000)\d{4}(?![\w-])"
)
_SSN_WORDS = ("ssn", "social security", "social sec")
_IBAN = re.compile(r"\d\d(?<=(?<![A-Za-z0-9])[A-Za-z]{2}\d\d)(?>(?:[ -]?[A-Za-z0-9]){11,30})")

_CUES = re.compile(
    r"phone|msisdn|contact_?n|\bwa\.me/|\bt[eé]l\b|\bfono\b|telem[oó]v|τηλ|κινητ|\b(?:tlf|s[ií]m[ia]|fone|cel|puh|tfno|fars[ií]mi|natel)\b|\bkom\.|t[āa]lrun|mobi(?:il|el|tel|ln)|festnetz|t[eé]l[eé]?[fp]|\bm(?:obile?|óvil|ovil)\b|mobil(?:nummer|telefon|nr)|celul|cellul|\bcell\b|cellphone"
    r"|\bfax\b|whats ?app|handy|\bsms\b|viber|rufnummer|\bruf|anruf|zurückruf|erreich|durchwahl|hotline|\bgsm\b|joindre"
    r"|joignable|appel|rappel|portable|ll[aá]m[aei]|m[áa]rca(?:me|r)|ligue|ligar|liga-me|contacto|contato|chiam|richiam"
    r"|recapito|zadzwo|dzwoni|kom[óo]rk|\bbel(?:len|t)? |bereik|\bring |ring(?:a|e) |puhelin|soita|звон|\bтел|моб|电话|電話|手机"
    r"|手機|号码|联系|致电|拨打|携帯|連絡|전화|휴대|연락|फ़ोन|फोन|मोबाइल|नंबर|هاتف|جوال|اتصل|טלפון|נייד|โทร|เบอร์|điện thoại|gọi|\bsđt|hubungi"
    r"|telp|\bhp\b|\bara(?:yın|yin|ma)|\bcep\b|call me|call us|call back|\bdial|reach (?:me|us|him|her|them)|text me|ring me"
    r"|(?:my|our|his|her|their|your|meine|mein|mon|mi|il mio|meu|mijn|mitt|min|mój|мой|numaram|我的) ?(?:new |neue |work )?"
    r"(?:number|nummer|numéro|número|numero|nr|номер|numer|号)|number to call|\+\+"
)
_VERBS = re.compile(
    r"\b(?:call|ring|dial|text|reach|contact|message|ping|phone)\b(?!.{0,28}\b(?:id|order|ref|ticket|case|invoice|account|tool"
    r"|function|api|row|line|error|code)\b)(?:[ ,:]{1,2}[a-z']{1,12}){0,3}[ ,:]{0,3}[(+]?\Z"
)
_STEMS = listed("""
phone fono msisdn wa.me contact tel cel mob tlf simi fone puh tfno natel festn talrun movil fax whats hand sms viber ruf reich reach kontakt hotline
gsm join appel portable llam marc lig contact contat chiam recapito zadzwo dzwoni kom bellen bereik ring
puhelin soita hubungi hp aray cep call dial text message ping my our his her their your mein mon mi meu
mijn mitt min numara number card visa maestro amex pan debit kart carte tarjeta carta kort kaart karta
ssn social ++
""")  # fmt: skip
_FOREIGN_STEMS = listed("""
tél τηλ κινητ sími síma tālrun móvil llám márca cartão kóm звон тел моб мой карт 电话 電話 手机 手機 号 联系 致电 拨打 携帯 連絡 전화 휴대 연락 फ फो मोबाइल
नंबर هات جوال اتصل טלפון נייד โทร เบอร์ điện gọi sđt 我的 卡 カード 카드 mój komórk zadzwoń joignable numéro yın
""")  # fmt: skip
_NO_PHONE = re.compile(
    r"(?:\b(?:id|order|bestell\w*|invoice|rechnung\w*|facture|ticket|case|account|konto\w*|ref\w*|sku|isbn|ean|serial|version"
    r"|build|timestamp|tracking|sendung\w*|quote|offer|contract|policy|claim|article|artikel\w*|model|port|pid|commande|pedido|zamówieni\w*|заказ\w*)"
    r"(?:[ -]?(?:number|nummer|no|nr|id|code))?\.?|#|\$|€|£|v)[ :=]{0,3}\(?\Z"
)
_UNITS = re.compile(
    r" ?(?:ms|µs|us|ns|s|sec|seconds?|min|minutes|h|hours|days?|years?|rows?|bytes?|[kmgt]i?b|kg|g|km|m|mm|cm|eur|usd|gbp|€|\$|£"
    r"|kč|zł|ft|kr|%|people|users|tokens?|items?|requests|steps|inhabitants|einwohner|habitants|times)\b"
)
_BEFORE, _AFTER = 60, 36


def numbers(text: str, lower: str) -> Iterator[Number]:
    """Yield the personal numbers in a text."""
    for run in _RUN.finditer(text):
        start, end = run.span()
        if end - start == 10 and run[0][4:8:3] == "--" and run[0][:2] in ("19", "20"):
            continue  # a date
        digits = run[0] if run[0].isdigit() else _digits(run[0])
        is_marked = text[start - 1 : start] in ("+", "(") and start > 0
        if is_marked or (len(digits) > 8 and (len(digits) < end - start or len(digits) > 13)):
            yield from _by_form(text, max(0, start - 3), min(len(text), end + 2))
        if not _DATES.match(run[0]) or len(digits) > 13:
            yield from _by_words(text, lower, start, end)
    yield from _ibans(text)


def _by_form(text: str, start: int, end: int) -> Iterator[Number]:
    for form in _CARDS:
        for match in form.finditer(text, start, end):
            digits = _digits(match[0])
            if is_card_number(digits):
                yield "card", *match.span(), digits
    for match in _SSN.finditer(text, start, end):
        yield "ssn", *match.span(), _digits(match[0])
    for match in _PLUS.finditer(text, start, end):
        digits = _digits(match[0])
        if 7 <= len(digits) <= 15:
            yield "phone", *match.span(), digits
    for form in _FORMS:
        for match in form.finditer(text, start, end):
            if _is_phone(match[0]) and not _is_zip_code(text, *match.span()):
                yield "phone", *match.span(), _digits(match[0])


_ZIP_CODE = re.compile(r"[A-Z]{2}[ ]{1,2}0\d{4}-\d{4}(?!\d)|.{0,4}0\d{4}-\d{4},?[ ]{1,2}USA")


def _is_zip_code(text: str, start: int, end: int) -> bool:
    """Return whether a number is a postcode of the United States: `MA 02110-1301`."""
    return end - start == 10 and _ZIP_CODE.match(text, max(0, start - 3)) is not None


def _is_phone(text: str) -> bool:
    digits = _digits(text)
    if not 8 <= len(digits) <= 13 or _DATES.match(text):
        return False
    pairs = re.split(r"[ .-]", text)
    if len(pairs) > 3 and all(len(pair) == 2 for pair in pairs):
        return len(pairs) == 5  # French numbers have five pairs; four or six could be anything
    return len(digits) >= 9 or (len(pairs) == 3 and " " in text)


def _by_words(text: str, lower: str, start: int, end: int) -> Iterator[Number]:
    """Yield what the words around a run of digits identify it as."""
    around = lower[max(0, start - _BEFORE) : end + _AFTER]
    stems = _STEMS if around.isascii() else _STEMS + _FOREIGN_STEMS
    for stem in stems:  # a loop: a generator costs half as much again
        if stem in around:
            break
    else:
        return
    before = lower[max(0, start - _BEFORE) : start]
    after = lower[end : end + _AFTER]
    number = next(_LOOSE.finditer(text, max(0, start - 2), end), None)
    if number is not None and (
        _is_called_phone(before, after, number[0]) or _is_named_phone(before, number[0])
    ):
        yield "phone", *number.span(), _digits(number[0])
    if _CARD_WORDS.search(before) or _CARD_WORDS.search(after):
        for match in _NAMED_CARD.finditer(text, start, end):
            digits = _digits(match[0])
            if has_luhn_digit(digits):
                yield "card", *match.span(), digits
    if any(word in before for word in _SSN_WORDS):
        for match in _NAMED_SSN.finditer(text, start, end):
            yield "ssn", *match.span(), _digits(match[0])


_NAMED = re.compile(r"([^\W\d][\w-]{1,40})[\"']?[ ]?[=:][ ]?[\"'(]{0,2}\Z")


def _is_named_phone(before: str, text: str) -> bool:
    """Return whether a number is the value of a name: `mobile_no=886912353658`."""
    name = _NAMED.search(before)
    return name is not None and kind_of_name(name[1]) is Name.PHONE and phone_in(text) is not None


def _is_called_phone(before: str, after: str, text: str) -> bool:
    digits = _digits(text)
    national = digits[2:] if digits.startswith("00") else digits
    if not 7 <= len(national) <= 13 or _DATES.match(text) or _NO_PHONE.search(before):
        return False
    if _UNITS.match(after):
        return False
    # Ignore words of another sentence or next to another number.
    near = re.split(
        r"(?<!tel)(?<!tél)(?<!fax)(?<!fon)(?<!mov)(?<!móv)(?<!gsm)(?<!mob)(?<!tlf)(?<!tlm)(?<!kom)(?<!puh)(?<!cel)(?<!tfno)(?<!τηλ)(?<!тел)(?<!моб)(?<!\bph)(?<!\bnr)(?<!\bno)\. |[!?;] |\n\n",
        before,
    )[-1]
    if any(map(str.isdigit, near)):
        near = re.split(r"\d", near)[-1]
    following = re.split(r"[.!?;\n\d]", after)[0]
    return bool(_CUES.search(near) or _VERBS.search(near) or _CUES.search(following))


def _ibans(text: str) -> Iterator[Number]:
    for match in _IBAN.finditer(text):
        found = _iban(match)
        if found is not None:
            yield found


def _iban(match: re.Match[str]) -> Number | None:
    """Take the country's number of characters from the match, if the check digits are valid."""
    start = match.start() - 2
    length = IBAN_LENGTHS.get(match.string[start : start + 2].upper(), 0)
    compact = ""
    end = start
    while end < match.end() and len(compact) < length:
        character = match.string[end]
        end += 1
        if character.isalnum():
            compact += character.upper()
    after = match.string[end : end + 1]
    if after.isascii() and after.isalnum():
        return None
    return ("iban", start, end, compact) if is_iban(compact) else None


_NAMED_PHONE = re.compile(
    r"\s*(?:tel:|whatsapp:|sip:)?[+(]?[\d\s().\-/+]{6,24}\d\s*(?:(?:x|ext\.?|w)\s?\d{1,5})?\s*"
)
_NUMERIC = re.compile(r"\d[\d .\-/_]{10,40}\d")


def phone_in(value: str) -> str | None:
    """Return the digits of a phone field's value, None when it is not a phone number."""
    if not _NAMED_PHONE.fullmatch(value) or _DATES.match(value.strip()):
        return None
    digits = _digits(value)
    return digits if 6 <= len(digits) <= 20 else None


def card_in(value: str, *, named: bool) -> str | None:
    """Return the digits of a text that consists of a card number, else None.

    In a card field a valid check digit is enough.
    """
    if not _NUMERIC.fullmatch(value):
        return None
    digits = _digits(value)
    if named:
        return digits if 12 <= len(digits) <= 19 and has_luhn_digit(digits) else None
    return digits if is_card_number(digits) else None


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
