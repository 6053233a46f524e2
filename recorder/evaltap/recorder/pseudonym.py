"""Stable pseudonyms: the same value gets the same token, which says nothing without the key.

The key is 32 random bytes.  It lies beside the log, readable by its owner only, so that all
recorders of one log agree; or it is derived from `EVALTAP_REDACTION_KEY`, so that hosts agree.
Losing the key loses nothing but the link between old and new pseudonyms.
"""

import hashlib
import os
import secrets
from pathlib import Path

from evaltap.recorder.spool import topic_folder
from evaltap.schemas.log_location import KafkaLocation, parse_log_location

KEY_BYTES = 32
DIGEST_BYTES = 6
"""Of a pseudonym: 4 collide among some 77,000 values of a kind, 6 among some 20 million."""


class Pseudonyms:
    """Turn values into tokens like `<email:ab12cd34ef56>` with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, kind: str, value: str) -> str:
        """Return the token of a value of that kind."""
        plain = f"{kind}\0{value}".encode("utf-8", "replace")
        digest = hashlib.blake2b(plain, key=self._key, digest_size=DIGEST_BYTES).hexdigest()
        return f"<{kind}:{digest}>"


def key_path(log: str | Path) -> Path:
    """Return where the key of a log lies: beside its file, or in the folder of its topic.

    Raises OSError when that folder cannot be made.
    """
    location = parse_log_location(str(log))
    if isinstance(location, KafkaLocation):
        return topic_folder(location) / "redaction.key"
    return location.with_name(location.name + ".key")


def derived_key(secret: str) -> bytes:
    """Return the key that a secret stands for, whatever its length or alphabet."""
    return hashlib.sha256(b"evaltap redaction key\0" + secret.encode()).digest()


def random_key() -> bytes:
    """Return a new key, for recorders without a file beside which to keep one."""
    return secrets.token_bytes(KEY_BYTES)


def shared_key(path: Path) -> bytes:
    """Return the key in the file, made first when absent; OSError when that is not possible.

    Several processes may ask for the first time at once: one key wins and all return it.
    """
    try:
        return read_key(path)
    except FileNotFoundError:
        pass
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(handle, random_key())
        os.fsync(handle)
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.close(handle)
        draft.unlink()
    return read_key(path)


def read_key(path: Path) -> bytes:
    """Return the key in the file; OSError when there is none."""
    key = path.read_bytes()
    if len(key) < KEY_BYTES:
        raise OSError(f"{path} holds {len(key)} bytes, a key has {KEY_BYTES}: delete the file")
    return key[:KEY_BYTES]
