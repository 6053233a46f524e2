"""What redaction finds in a text, and what replaces it."""

import re
from typing import NamedTuple

PSEUDONYM = re.compile(r"<[a-z_]{2,20}:[0-9a-f]{12}>")
"""The token that replaced a value; never sensitive again."""
LOOKED_FOR = ("keys", "email", "phone", "card", "IBAN", "SSN")
NOT_LOOKED_FOR = "Names and postal addresses are not detected."


class Finding(NamedTuple):
    """A sensitive part of a text: its kind, its span, its normal form."""

    kind: str
    start: int
    end: int
    value: str


Place = tuple[int, int, str]
"""The span of a sensitive value, and its normal form."""
