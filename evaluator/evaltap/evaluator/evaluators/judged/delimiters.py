"""Fences around text of a trace, so that a judge can tell material from instructions.

What comes from a trace is data that somebody else wrote, perhaps to sway the judge.  It stands
between fences that carry a random word, so that nothing inside can close them.
"""

import secrets
from collections.abc import Iterable


def fresh_nonce(texts: Iterable[str], given: str | None = None) -> str:
    """Return a random word that occurs in none of the texts; `given` is taken when it does not."""
    kept = [*texts]
    nonce = given
    while nonce is None or any(nonce in text for text in kept):
        nonce = secrets.token_hex(8)
    return nonce


def delimited(title: str, text: str, nonce: str) -> str:
    """Return the text between fences that name it."""
    return f"<<<{nonce} begin {title}>>>\n{text}\n<<<{nonce} end {title}>>>\n"
