"""Normalize a text for the rules, preserving its length.

A secret in full-width letters, with narrow spaces or in an escaped string is still a secret. Each
character maps to one character, so offsets are the same in both texts.
"""

import re
import unicodedata

from evaltap.recorder.privacy.lexicon import patterns

_RE = patterns("normalization")


def _plain_characters() -> dict[int, str]:
    table = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full-width forms
    for code in (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000):
        table[code] = " "
    for code in (0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212, 0xFE63):
        table[code] = "-"
    for code in (0x201C, 0x201D, 0x201E, 0x201F, 0xAB, 0xBB, 0x300C, 0x300D, 0x300E, 0x300F):
        table[code] = '"'
    for code in (0x2018, 0x2019, 0x201A, 0x2039, 0x203A):
        table[code] = "'"
    table.update(dict.fromkeys((0x2502, 0x2503, 0x2551, 0x2506, 0x250A), "|"))
    table.update(
        dict.fromkeys((0x2500, 0x2501, 0x2550, *range(0x250C, 0x254C), *range(0x2552, 0x256D)), "-")
    )
    table.update({0x3002: ".", 0xFF61: ".", 0x3001: ",", 0xFE55: ":"})
    for zero in (0x660, 0x6F0, 0x966, 0x9E6, 0xE50):  # Arabic, Persian, Hindi, Bengali, Thai
        table.update({zero + digit: str(digit) for digit in range(10)})
    return table


_PLAIN = _plain_characters()
_SPECIAL = re.compile(f"[{''.join(map(chr, _PLAIN))}]")


def plain_spelling(text: str) -> str:
    """Return the text in plain characters, string escapes as spaces; of the same length."""
    if not text.isascii():
        text = _SPECIAL.sub(lambda match: _PLAIN[ord(match[0])], text)
    if "\x1b" in text:
        text = _RE.colour.sub(_blanks, text)
    if "&" in text and ";" in text:
        text = _RE.quote.sub(lambda match: '"'.rjust(len(match[0])), text)
    if "=C" in text:
        text = _RE.quoted_letter.sub(lambda match: _letter(match[0]) * len(match[0]), text)
    if "\\" in text:
        if "\\u0" in text:
            text = _RE.escaped_letter.sub(
                lambda match: chr(int(match[1], 16)) * len(match[0]), text
            )
        text = _RE.escape.sub(_blanks, text)
    return text


def _letter(quoted: str) -> str:
    return bytes.fromhex(quoted.replace("=", "")).decode()


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def lowered(text: str) -> str:
    """Return the text in lower case, of the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(small if len(small := one.lower()) == 1 else one for one in text)


_LETTERS = str.maketrans("łŁøØđĐıßæÆœŒ", "lLoOdDisaAoO")


def folded(text: str) -> str:
    """Return a text without accents, for comparing words; its length may differ."""
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return unicodedata.normalize("NFC", "".join(c for c in parts if not unicodedata.combining(c)))
