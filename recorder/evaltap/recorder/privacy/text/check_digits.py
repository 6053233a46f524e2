"""Numbers with check digits: payment cards (Luhn) and bank accounts (IBAN)."""

_BRANDS = (
    # first and last prefix, lengths; from the brands' public ranges
    ("4", "4", (16, 19)),  # Visa; 13-digit numbers are obsolete
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("6011", "6011", (16, 17, 18, 19)),  # Discover
    ("644", "659", (16, 17, 18, 19)),
    ("3528", "3589", (16, 17, 18, 19)),  # JCB
    ("300", "305", (14, 16)),  # Diners Club
    ("3095", "3095", (14, 16)),
    ("36", "36", (14, 16)),
    ("38", "39", (14, 16)),
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("81", "82", (16,)),  # UnionPay, RuPay
    ("60", "60", (16,)),  # RuPay
    ("508", "508", (16,)),
    ("2200", "2205", (16, 17, 18, 19)),  # Mir, Borica
    ("50", "50", (16, 17, 18, 19)),  # Maestro, Verve
    ("56", "58", (16, 17, 18, 19)),
    ("6304", "6304", (16, 17, 18, 19)),
    ("6759", "6759", (16, 17, 18, 19)),
    ("6761", "6763", (16, 17, 18, 19)),
    ("6799", "6799", (16, 17, 18, 19)),
    ("636", "639", (16,)),  # InterPayment, Elo and others
    ("8600", "8600", (16,)),  # Uzcard
    ("9704", "9704", (16, 19)),  # Napas
    ("9792", "9792", (16,)),  # Troy
    ("9860", "9860", (16,)),  # Humo
)


def is_card_number(digits: str) -> bool:
    """Return whether the digits are a payment card number: issuer range, length, Luhn check."""
    length = len(digits)
    if not 14 <= length <= 19 or not has_luhn_digit(digits):
        return False
    return any(
        length in lengths and low <= digits[: len(low)] <= high for low, high, lengths in _BRANDS
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


_IBAN_LENGTHS = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20
EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30
KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23
PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26
UA29 VA22 VG24 XK20 YE30
AO25 BF28 BJ28 CF27 CG27 CI28 CM27 CV25 DZ26 GA27 GQ27 GW25 IR26 KM27 MA28 MG27 ML28 MZ25 NE28 SN28 TD27
TG28
"""
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}
"""Length of account numbers by country: the public IBAN registry, then other users of the format."""


def is_iban(compact: str) -> bool:
    """Return whether upper-case letters and digits without spaces are a valid IBAN."""
    if len(compact) != IBAN_LENGTHS.get(compact[:2]):
        return False
    number = int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4]))
    return number % 97 == 1
