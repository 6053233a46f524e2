"""Fences around text of a trace, so that a judge can tell material from instructions.

Text of a trace was written by others, perhaps to influence the judge.  It is placed between fences with a
random word, so that nothing inside can close them.
"""

import secrets
from collections.abc import Iterable


def fresh_nonce(texts: Iterable[str], given: str | None = None) -> str:
    """Return a random word that occurs in none of the texts, or `given` if it occurs in none."""
    kept = [*texts]
    nonce = given
    while nonce is None or any(nonce in text for text in kept):
        nonce = secrets.token_hex(8)
    return nonce


def delimited(title: str, text: str, nonce: str) -> str:
    """Return the text between fences that name it."""
    return f"<<<{nonce} begin {title}>>>\n{text}\n<<<{nonce} end {title}>>>\n"
