"""The key for a log's pseudonyms: a file next to the log, created once and shared by its processes."""

import os
import secrets
from pathlib import Path

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.privacy.pseudonyms import KEY_BYTES, derived_key, random_key
from evaltap.recorder.privacy.redactor import PatternRedactor
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.folders import topic_folder
from evaltap.schemas.log.location import KafkaLocation, parse_log_location


def configured_redactor(config: RecorderConfig) -> PatternRedactor | None:
    """Return the configured redactor, or None if redaction is off.

    The key is the configured one, otherwise the log's (created if absent). Without a log it is random.
    Raises InputError when the log's key cannot be read or created.
    """
    if not config.redaction:
        return None
    if config.redaction_key is not None:
        return config.redactor(derived_key(config.redaction_key))
    if config.log is None:
        return config.redactor(random_key())
    try:
        return config.redactor(shared_key(key_path(config.log)))
    except OSError as error:
        raise InputError(
            f"cannot read or write the redaction key next to {config.log} ({error.strerror or error}); make"
            " the folder writable or set EVALTAP_REDACTION_KEY"
        ) from error


def key_path(log: str | Path) -> Path:
    """Return the path of a log's key: next to its file, or in its topic's folder.

    Raises OSError when that folder cannot be created.
    """
    location = parse_log_location(str(log))
    if isinstance(location, KafkaLocation):
        return topic_folder(location) / "redaction.key"
    return location.with_name(location.name + ".key")


def shared_key(path: Path) -> bytes:
    """Return the key in the file, created if absent; raises OSError when that fails.

    Several processes may race to create it: one key wins and all return it.
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
    """Return the key in the file; raises OSError when there is none."""
    key = path.read_bytes()
    if len(key) < KEY_BYTES:
        raise OSError(f"{path} has {len(key)} bytes, but a key has {KEY_BYTES}; delete the file")
    return key[:KEY_BYTES]
