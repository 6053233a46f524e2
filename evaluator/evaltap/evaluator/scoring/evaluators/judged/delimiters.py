"""Fences around text of a trace, so that a judge can distinguish material from instructions.

Other people wrote the text of a trace, possibly to influence the judge.  It is placed between fences that
contain a random word, so that no text inside can close them.
"""

import secrets
from collections.abc import Iterable, Sequence


def fresh_nonce(texts: Iterable[str], given: str | None = None) -> str:
    """Return a random word that occurs in none of the texts, or `given` if it occurs in none."""
    kept = [*texts]
    nonce = given
    while nonce is None or any(nonce in text for text in kept):
        nonce = secrets.token_hex(8)
    return nonce


def delimited(title: str, text: str, nonce: str) -> str:
    """Return the text between fences that contain its title.

    >>> print(delimited("final answer", "It is on its way.", nonce="k3"), end="")
    <<<k3 begin final answer>>>
    It is on its way.
    <<<k3 end final answer>>>
    """
    return f"<<<{nonce} begin {title}>>>\n{text}\n<<<{nonce} end {title}>>>\n"


def fenced(task: str, sections: Sequence[tuple[str, str]], closing: str, nonce: str) -> str:
    """Return a prompt: the task, the sections (title, text) between fences, and the closing."""
    parts = (delimited(title, text, nonce) for title, text in sections)
    return "\n".join((task.format(nonce=nonce), *parts, closing))
