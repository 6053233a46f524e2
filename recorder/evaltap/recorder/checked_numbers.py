"""Numbers that prove themselves: payment cards (Luhn) and bank accounts (IBAN check digits)."""


def is_card_number(digits: str) -> bool:
    """Return whether the digits are a payment card's: issuer range, its length, Luhn check."""
    two, three, four = digits[:2], digits[:3], digits[:4]
    length = len(digits)
    known = (
        (length == 16 and (digits[0] == "4" or "51" <= two <= "55" or "2221" <= four <= "2720"))
        or (length == 15 and two in ("34", "37"))
        or (length == 16 and (four == "6011" or two == "65" or "644" <= three <= "649"))
        or (length == 16 and "3528" <= four <= "3589")
        or (length == 14 and (two in ("36", "38", "39") or "300" <= three <= "305"))
        or (16 <= length <= 19 and two == "62")
    )
    return known and _luhn(digits) and len(set(digits)) > 1


def _luhn(digits: str) -> bool:
    total = 0
    for index, character in enumerate(reversed(digits)):
        digit = ord(character) - 48
        if index % 2:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0


_IBAN_LENGTHS = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20
EG29 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30
KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28
PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24
XK20
"""
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}
"""Characters of an account number by country, from the public IBAN registry."""


def is_iban(compact: str) -> bool:
    """Return whether upper-case letters and digits without blanks are an account number."""
    if len(compact) != IBAN_LENGTHS.get(compact[:2]):
        return False
    number = int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4]))
    return number % 97 == 1
