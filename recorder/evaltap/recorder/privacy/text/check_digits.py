"""Numbers with check digits: payment cards (Luhn) and bank accounts (IBAN)."""

from functools import cache

from evaltap.recorder.privacy.lexicon import rows, words


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
    if not 14 <= length <= 19 or not has_luhn_digit(digits):
        return False
    return any(
        length in lengths and low <= digits[: len(low)] <= high for low, high, lengths in _brands()
    )


def has_luhn_digit(digits: str) -> bool:
    """Return whether the Luhn check digit is valid and the digits are not all the same."""
    total = 0
    for index, character in enumerate(reversed(digits)):
        digit = ord(character) - 48
        if index % 2:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0 and len(set(digits)) > 1


IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in words("numbers.ibans")}
"""Length of account numbers by country: the public IBAN registry, then other users of the format."""


def is_iban(compact: str) -> bool:
    """Return whether upper-case letters and digits without spaces are a valid IBAN."""
    if len(compact) != IBAN_LENGTHS.get(compact[:2]):
        return False
    number = int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4]))
    return number % 97 == 1
