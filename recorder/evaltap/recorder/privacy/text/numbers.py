"""Find personal numbers in text: phones of sixty countries, payment cards, accounts, SSNs.

Only runs of digits are examined: by their format where it is conclusive (`+49 170 1234567`, `(415)
555-2671`, `06 12 34 56 78`), else by the words around them ("call me on 8123 4567").
"""

import re
from collections.abc import Iterator
from functools import cache

from evaltap.recorder.privacy.lexicon import each, patterns, rows, words
from evaltap.recorder.privacy.text.secret_names import Name, kind_of_name

_RE = patterns("numbers")

Number = tuple[str, int, int, str]
"""Kind, span, and normal form."""

_SSN_WORDS = ("ssn", "social security", "social sec")

_STEMS = words("numbers.stems")
_FOREIGN_STEMS = words("numbers.foreign_stems")
_BEFORE, _AFTER = 60, 36
_SHORTEST_RUN = 7
_NO_DIGITS = bytes(one for one in range(256) if not 48 <= one < 58)


def numbers(text: str, lower: str) -> Iterator[Number]:
    """Yield the personal numbers in a text."""
    digits = len(text.encode().translate(None, _NO_DIGITS)) if text.isascii() else len(text)
    if digits >= _SHORTEST_RUN:
        yield from _in_runs(text, lower)
    if digits > 1 and len(text) >= _SHORTEST_IBAN:
        yield from _ibans(text)


def _in_runs(text: str, lower: str) -> Iterator[Number]:
    for run in _RE.run.finditer(text):
        start, end = run.span()
        if end - start == 10 and run[0][4:8:3] == "--" and run[0][:2] in ("19", "20"):
            continue  # a date
        digits = run[0] if run[0].isdigit() else _digits(run[0])
        is_marked = text[start - 1 : start] in ("+", "(") and start > 0
        if is_marked or (len(digits) > 8 and (len(digits) < end - start or len(digits) > 13)):
            yield from _by_form(text, max(0, start - 3), min(len(text), end + 2), len(digits))
        if not _RE.dates.match(run[0]) or len(digits) > 13:
            yield from _by_words(text, lower, start, end, len(digits))


def _by_form(text: str, start: int, end: int, digits_there: int) -> Iterator[Number]:
    for form in each("numbers", "cards") if digits_there >= _SHORTEST_CARD else ():
        for match in form.finditer(text, start, end):
            digits = _digits(match[0])
            if is_card_number(digits):
                yield "card", *match.span(), digits
    for match in _RE.ssn.finditer(text, start, end):
        yield "ssn", *match.span(), _digits(match[0])
    for match in _RE.plus.finditer(text, start, end):
        digits = _digits(match[0])
        if 7 <= len(digits) <= 15:
            yield "phone", *match.span(), digits
    for form in each("numbers", "forms"):
        for match in form.finditer(text, start, end):
            if _is_phone(match[0]) and not _is_zip_code(text, *match.span()):
                yield "phone", *match.span(), _digits(match[0])


def _is_zip_code(text: str, start: int, end: int) -> bool:
    """Return whether a number is a postcode of the United States: `MA 02110-1301`."""
    return end - start == 10 and _RE.zip_code.match(text, max(0, start - 3)) is not None


def _is_phone(text: str) -> bool:
    digits = _digits(text)
    if not 8 <= len(digits) <= 13 or _RE.dates.match(text):
        return False
    pairs = re.split(r"[ .-]", text)
    if len(pairs) > 3 and all(len(pair) == 2 for pair in pairs):
        return len(pairs) == 5  # French numbers have five pairs; four or six could be anything
    return len(digits) >= 9 or (len(pairs) == 3 and " " in text)


def _by_words(text: str, lower: str, start: int, end: int, digits_there: int) -> Iterator[Number]:
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
    number = next(_RE.loose.finditer(text, max(0, start - 2), end), None)
    if number is not None and (
        _is_called_phone(before, after, number[0]) or _is_named_phone(before, number[0])
    ):
        yield "phone", *number.span(), _digits(number[0])
    if digits_there >= _SHORTEST_NAMED_CARD and (
        _RE.card_words.search(before) or _RE.card_words.search(after)
    ):
        for match in _RE.named_card.finditer(text, start, end):
            digits = _digits(match[0])
            if _has_luhn_digit(digits):
                yield "card", *match.span(), digits
    if any(word in before for word in _SSN_WORDS):
        for match in _RE.named_ssn.finditer(text, start, end):
            yield "ssn", *match.span(), _digits(match[0])


def _is_named_phone(before: str, text: str) -> bool:
    """Return whether a number is the value of a name: `mobile_no=886912353658`."""
    name = _RE.named.search(before)
    return name is not None and kind_of_name(name[1]) is Name.PHONE and phone_in(text) is not None


def _is_called_phone(before: str, after: str, text: str) -> bool:
    digits = _digits(text)
    national = digits[2:] if digits.startswith("00") else digits
    if not 7 <= len(national) <= 13 or _RE.dates.match(text) or _RE.no_phone.search(before):
        return False
    if _RE.units.match(after):
        return False
    # Ignore words of another sentence or next to another number.
    near = _last_sentence(before)
    if any(map(str.isdigit, near)):
        near = re.split(r"\d", near)[-1]
    following = re.split(r"[.!?;\n\d]", after)[0]
    return bool(_RE.cues.search(near) or _RE.verbs.search(near) or _RE.cues.search(following))


def _last_sentence(text: str) -> str:
    """Return what is behind the last end of a sentence; the full stop of `tel. ` is none."""
    for end in reversed(list(_RE.sentence_end.finditer(text))):
        if end[0] != ". " or _RE.abbreviation.search(text, 0, end.start()) is None:
            return text[end.end() :]
    return text


_SHORTEST_NAMED_CARD, _SHORTEST_CARD, _SHORTEST_IBAN = 12, 14, 15


def _ibans(text: str) -> Iterator[Number]:
    for match in _RE.iban.finditer(text):
        if (found := _iban(match)) is not None:
            yield found


def _iban(match: re.Match[str]) -> Number | None:
    """Take the country's number of characters from the match, if the check digits are valid."""
    start = match.start() - 2
    length = _IBAN_LENGTHS.get(match.string[start : start + 2].upper(), 0)
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
    return ("iban", start, end, compact) if _is_iban(compact) else None


def phone_in(value: str) -> str | None:
    """Return the digits of a phone field's value, None when it is not a phone number."""
    if not _RE.named_phone.fullmatch(value) or _RE.dates.match(value.strip()):
        return None
    digits = _digits(value)
    return digits if 6 <= len(digits) <= 20 else None


def card_in(value: str, *, named: bool) -> str | None:
    """Return the digits of a text that consists of a card number, else None.

    In a card field a valid check digit is enough.
    """
    if not _RE.numeric.fullmatch(value):
        return None
    digits = _digits(value)
    if named:
        return digits if 12 <= len(digits) <= 19 and _has_luhn_digit(digits) else None
    return digits if is_card_number(digits) else None


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


@cache
def _brands() -> tuple[tuple[str, str, frozenset[int]], ...]:
    """Return the first and last prefix of issuers' public ranges, with the lengths of their numbers."""
    return tuple(
        (first, last, frozenset(map(int, lengths.split())))
        for first, last, lengths, _ in rows("cards")
    )


def is_card_number(digits: str) -> bool:
    """Return whether the digits are a payment card number: issuer range, length, Luhn check."""
    length = len(digits)
    if not _SHORTEST_CARD <= length <= 19 or not _has_luhn_digit(digits):
        return False
    return any(
        length in lengths and low <= digits[: len(low)] <= high for low, high, lengths in _brands()
    )


def _has_luhn_digit(digits: str) -> bool:
    """Return whether the Luhn check digit is valid and the digits are not all the same."""
    total = 0
    for index, character in enumerate(reversed(digits)):
        digit = ord(character) - 48
        if index % 2:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0 and len(set(digits)) > 1


_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in words("numbers.ibans")}
"""Length of account numbers by country: the public IBAN registry, then other users of the format."""


def _is_iban(compact: str) -> bool:
    """Return whether upper-case letters and digits without spaces are a valid IBAN."""
    if len(compact) != _IBAN_LENGTHS.get(compact[:2]):
        return False
    number = int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4]))
    return number % 97 == 1
