"""Stable pseudonyms: equal values get equal tokens, which reveal nothing without the key.

The key is 32 random bytes. It is stored next to the log, readable only by its owner, so that all
recorders of one log agree; or it is derived from `EVALTAP_REDACTION_KEY`, so that hosts agree.
Losing the key only breaks the link between old and new pseudonyms.
"""

import hashlib
import secrets

KEY_BYTES = 32
DIGEST_BYTES = 6
"""Bytes in a pseudonym: 4 collide among some 77,000 values of a kind, 6 among some 20 million."""


class Pseudonyms:
    """Turns values into tokens like `<email:ab12cd34ef56>` with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, kind: str, value: str) -> str:
        """Return the token for a value of this kind."""
        plain = f"{kind}\0{value}".encode("utf-8", "replace")
        digest = hashlib.blake2b(plain, key=self._key, digest_size=DIGEST_BYTES).hexdigest()
        return f"<{kind}:{digest}>"


def derived_key(secret: str) -> bytes:
    """Derive a key from a secret of any length and alphabet."""
    return hashlib.sha256(b"evaltap redaction key\0" + secret.encode()).digest()


def random_key() -> bytes:
    """Return a new key, for recorders without a file to store one."""
    return secrets.token_bytes(KEY_BYTES)
