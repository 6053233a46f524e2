"""The envelope of every record: CloudEvents attributes in headers, a versioned schema, a hash.

`record` (turns, manifests, feedback) and `score` (stored scores) define the content. The recorder
imports this module inside the agent's process, so it stays light.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import orjson

from evaltap.schemas.errors import InputError

MAJOR = 1
MINOR = 0
OLDEST_MAJOR = max(1, MAJOR - 1)
"""A reader accepts the current and the previous major version."""

MAX_VALUE_BYTES = 1_000_000
"""Maximum value size on the wire, in bytes; below a Kafka broker's default of 1 MiB."""

_HASHED_AT_ONCE = 2047

_SCHEMA = re.compile(r"([a-z][a-z.]{0,60})/([0-9]{1,4})\.([0-9]{1,6})")


class Reason(StrEnum):
    """Why a record could not be read; stored in the dead letter."""

    EMPTY = "empty"
    TOO_LARGE = "too_large"
    MISSING_HEADER = "missing_header"
    WRONG_TYPE = "wrong_type"
    SCHEMA_UNKNOWN = "schema_unknown"
    HASH_MISMATCH = "hash_mismatch"
    UNDECODABLE = "undecodable"
    INVALID_CASE = "invalid_case"
    INVALID_MANIFEST = "invalid_manifest"
    INVALID_FEEDBACK = "invalid_feedback"


class RecordError(InputError):
    """Raised for a record that breaks the wire contract, with the reason for its dead letter."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason = reason
        super().__init__(message)

    @property
    def parked(self) -> bool:
        """True when the record is not broken but too new: replay it after an upgrade."""
        return self.reason is Reason.SCHEMA_UNKNOWN


class WireRecord(NamedTuple):
    """One record as stored on the log, not yet decoded."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def header(self, name: str) -> str | None:
        """Return the last header of that name as text, None when absent."""
        for known, value in reversed(self.headers):
            if known == name:
                return value.decode("utf-8", "replace")
        return None

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def envelope(
    *,
    event_type: str,
    event_id: str,
    source: str,
    subject: str,
    time: datetime,
    producer_id: str,
    value: bytes,
) -> tuple[tuple[str, bytes], ...]:
    """Return the headers common to all records."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_type", event_type.encode()),
        ("ce_source", source.encode()),
        ("ce_time", rfc3339(time).encode()),
        ("ce_subject", subject.encode()),
        ("content-type", b"application/json"),
        ("schema", f"{event_type}/{MAJOR}.{MINOR}".encode()),
        ("producer_id", producer_id.encode()),
        ("content_sha256", hashlib.sha256(value).hexdigest().encode()),
    )


class Envelope(NamedTuple):
    """A record's declared type and schema, with its headers and its undecoded value."""

    event_type: str
    minor: int
    content_sha256: str
    value: bytes
    headers: Mapping[str, bytes]

    def header(self, name: str) -> str | None:
        """Return a header as text, None when absent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("utf-8", "replace")

    def required(self, name: str) -> str:
        """Return a required header; raises RecordError when it is missing."""
        return _required(self.headers, name)

    def body(self) -> object:
        """Return the value as decoded JSON; raises RecordError when it is not JSON."""
        try:
            return orjson.loads(self.value)
        except (ValueError, RecursionError) as error:
            raise RecordError(Reason.UNDECODABLE, f"the value is not JSON: {error}") from error


def open_envelope(
    record: WireRecord, types: Sequence[str], *, max_bytes: int = MAX_VALUE_BYTES
) -> "Envelope":
    """Check the envelope of a record of one of `types`.

    Raises RecordError with the reason of its dead letter.
    """
    if not (value := record.value):
        raise RecordError(Reason.EMPTY, f"the record has no value; expected {types[0]} as JSON")
    if len(value) > max_bytes:
        raise RecordError(
            Reason.TOO_LARGE, f"the value is {len(value)} bytes, the limit is {max_bytes}"
        )
    headers = dict(record.headers)
    event_type = _required(headers, "ce_type")
    if event_type not in types:
        raise RecordError(
            Reason.WRONG_TYPE, f"ce_type is {event_type!r}; expected one of {', '.join(types)}"
        )
    minor = _minor(_required(headers, "schema"), event_type)
    digest = _sha256(value)
    promised = headers.get("content_sha256")
    if promised is not None and promised != digest.encode():
        raise RecordError(
            Reason.HASH_MISMATCH, "the value does not match content_sha256: damaged in transit"
        )
    return Envelope(event_type, minor, digest, value, headers)


def _required(headers: Mapping[str, bytes], name: str) -> str:
    value = headers.get(name)
    if not value:
        hint = "; raw OTLP is read with ?format=otlp" if name == "ce_type" else ""
        raise RecordError(Reason.MISSING_HEADER, f"header {name} is missing{hint}")
    return value.decode("utf-8", "replace")


def digest_of(*parts: str | int) -> str:
    """Derive an id from these parts: equal parts, equal id."""
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]


def dump(body: object) -> bytes:
    """Return a body as JSON; raises RecordError for what JSON cannot represent."""
    try:
        return orjson.dumps(body)
    except (TypeError, RecursionError) as error:
        raise RecordError(Reason.UNDECODABLE, f"not representable as JSON: {error}") from error


def rfc3339(time: datetime) -> str:
    """Return a time in the envelope's format."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def time_of(text: str | None) -> datetime | None:
    """Return the envelope's time in UTC; None if missing or invalid, which must not lose the case."""
    try:
        time = datetime.fromisoformat(text or "")
        return time.astimezone(UTC) if time.tzinfo is not None else None
    except (ValueError, OverflowError):  # in UTC it may be before year 1 or after 9999
        return None


def _sha256(value: bytes) -> str:
    """Return a value's SHA-256 without releasing the GIL.

    `hashlib` releases it for 2 KB and more. A thread that does so for every record, for two
    microseconds, keeps waking a waiting thread that never gets the GIL.
    """
    view, digest = memoryview(value), hashlib.sha256()
    for first in range(0, len(value), _HASHED_AT_ONCE):
        digest.update(view[first : first + _HASHED_AT_ONCE])
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _minor(schema: str, event_type: str) -> int:
    found = _SCHEMA.fullmatch(schema)
    major = int(found[2]) if found else 0
    if found is None or found[1] != event_type or not OLDEST_MAJOR <= major <= MAJOR:
        raise RecordError(
            Reason.SCHEMA_UNKNOWN,
            f"schema is {schema!r:.80}; this reader knows {_known(event_type, OLDEST_MAJOR, MAJOR)}:"
            " upgrade evaltap, then replay the dead letters",
        )
    return int(found[3])


def _known(event_type: str, oldest: int, newest: int) -> str:
    """Return the versions that a reader accepts, one when both ends are equal."""
    return " to ".join(f"{event_type}/{major}.x" for major in sorted({oldest, newest}))
