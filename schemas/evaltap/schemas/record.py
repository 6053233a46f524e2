"""The record on the log: a turn as a CloudEvent, feedback, and the manifest that proves completeness.

The layout is the Kafka binding of CloudEvents 1.0 in binary mode: attributes in `ce_*` headers,
the eval case as JSON in the value, the case id as the key so that the turns of a session stay in
order on one partition.  A row of the local log holds the same three parts.

The recorder imports this module inside the agent's process, so it stays light: slotted
dataclasses and orjson, no models.  `decode_record` checks what the envelope promises (type,
schema, size, hash, one turn); the models of `evaltap.schemas` check the rest of the case.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import orjson

from evaltap.schemas.errors import InputError
from evaltap.schemas.feedback import Feedback, feedback_from

CASES_TOPIC = "evaltap.cases"
DEAD_LETTERS_TOPIC = "evaltap.cases.dlq"
SCORES_TOPIC = "evaltap.scores"

CASE_TYPE = "evaltap.case"
MANIFEST_TYPE = "evaltap.manifest"
FEEDBACK_TYPE = "evaltap.feedback"
TYPES = (CASE_TYPE, MANIFEST_TYPE, FEEDBACK_TYPE)
MAJOR = 1
MINOR = 0
OLDEST_MAJOR = max(1, MAJOR - 1)
"""A reader accepts the current and the previous major version."""

MAX_VALUE_BYTES = 1_000_000
"""Largest value on the wire, in bytes; below the 1 MiB that a Kafka broker takes by default."""

_SCHEMA = re.compile(r"([a-z][a-z.]{0,60})/([0-9]{1,4})\.([0-9]{1,6})")


class Reason(StrEnum):
    """Why a record could not be read; the value is what a dead letter carries."""

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
    """Report a record that breaks the wire contract, with the reason for its dead letter."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason = reason
        super().__init__(message)

    @property
    def parked(self) -> bool:
        """True when the record is not broken but too new: replay it after an upgrade."""
        return self.reason is Reason.SCHEMA_UNKNOWN


@dataclass(frozen=True, slots=True)
class WireRecord:
    """One record as it lies on the log: nothing is interpreted yet."""

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


@dataclass(frozen=True, slots=True)
class DecodedCase:
    """An eval case with one turn, and the envelope that brought it."""

    case: dict[str, Any]
    case_id: str
    event_id: str
    """`ce_id`: the same for every delivery of the same revision of the same turn."""
    app_name: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    revision: int
    producer_id: str
    seq: int
    time: datetime | None
    content_sha256: str
    minor: int = MINOR


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one producer says about itself: how many cases it numbered and what it dropped.

    `highest_seq` is 0 before the first case; a reader that holds `highest_seq` distinct numbers
    of `producer_id` has everything.  `drops` counts by reason the cases that never got a number.
    """

    producer_id: str
    highest_seq: int
    time: datetime
    drops: Mapping[str, int] = field(default_factory=dict)
    closing: bool = False
    """True on the last manifest of an orderly close; its absence means the process died."""


def encode_case(
    case: dict[str, Any],
    *,
    producer_id: str,
    seq: int,
    time: datetime,
    max_bytes: int = MAX_VALUE_BYTES,
) -> WireRecord:
    """Return the record of a case with exactly one turn.

    Raises RecordError: `invalid_case` when identity is missing, `undecodable` when the case is
    not JSON (a NaN or infinity is written as null), `too_large` above `max_bytes`.
    """
    identity = _identity(case)
    value = _dump(case)
    if len(value) > max_bytes:
        raise RecordError(
            Reason.TOO_LARGE,
            f"the case is {len(value)} bytes, the limit is {max_bytes}: shorten its texts",
        )
    app_name, eval_set_id, eval_id, invocation_id, _ = identity
    key = case_id(eval_set_id, eval_id)
    headers = (
        *_envelope(
            event_type=CASE_TYPE,
            event_id=_digest(*identity),
            source=f"/evaltap/{quote(app_name, safe='')}",
            subject=f"{quote(key, safe='')}/{quote(invocation_id, safe='')}",
            time=time,
            producer_id=producer_id,
        ),
        ("seq", b"%d" % seq),
        ("content_sha256", hashlib.sha256(value).hexdigest().encode()),
    )
    return WireRecord(key.encode(), value, headers)


def encode_manifest(manifest: Manifest) -> WireRecord:
    """Return the record of a manifest, keyed by its producer."""
    body = {
        "producerId": manifest.producer_id,
        "highestSeq": manifest.highest_seq,
        "drops": dict(sorted(manifest.drops.items())),
        "closing": manifest.closing,
    }
    value = _dump(body)
    producer_id = manifest.producer_id
    headers = (
        *_envelope(
            event_type=MANIFEST_TYPE,
            event_id=_digest(producer_id, _rfc3339(manifest.time), manifest.highest_seq),
            source="/evaltap/recorder",
            subject=quote(producer_id, safe=""),
            time=manifest.time,
            producer_id=producer_id,
        ),
        ("content_sha256", hashlib.sha256(value).hexdigest().encode()),
    )
    return WireRecord(producer_id.encode(), value, headers)


def encode_feedback(feedback: Feedback, *, producer_id: str) -> WireRecord:
    """Return the record of feedback, keyed by its case; it has no number of its own."""
    value = _dump(feedback.data())
    key = case_id(feedback.eval_set_id, feedback.eval_id)
    headers = (
        *_envelope(
            event_type=FEEDBACK_TYPE,
            event_id=_digest(FEEDBACK_TYPE, feedback.feedback_id),
            source=f"/evaltap/{quote(feedback.app_name, safe='')}",
            subject=quote(key, safe=""),
            time=feedback.time,
            producer_id=producer_id,
        ),
        ("content_sha256", hashlib.sha256(value).hexdigest().encode()),
    )
    return WireRecord(key.encode(), value, headers)


def decode_record(
    record: WireRecord, *, max_bytes: int = MAX_VALUE_BYTES
) -> DecodedCase | Manifest | Feedback:
    """Return what the record holds; raise RecordError with the reason of its dead letter."""
    value = record.value
    if not value:
        raise RecordError(Reason.EMPTY, "the record has no value; expected an eval case as JSON")
    if len(value) > max_bytes:
        raise RecordError(
            Reason.TOO_LARGE, f"the value is {len(value)} bytes, the limit is {max_bytes}"
        )
    event_type = _required(record, "ce_type")
    if event_type not in TYPES:
        raise RecordError(
            Reason.WRONG_TYPE, f"ce_type is {event_type!r}; expected one of {', '.join(TYPES)}"
        )
    minor = _minor(_required(record, "schema"), event_type)
    digest = hashlib.sha256(value).hexdigest()
    promised = record.header("content_sha256")
    if promised is not None and promised != digest:
        raise RecordError(
            Reason.HASH_MISMATCH, "the value does not match content_sha256: damaged on its way"
        )
    body = _load(value)
    if event_type == MANIFEST_TYPE:
        return _manifest(record, body)
    if event_type == FEEDBACK_TYPE:
        return _feedback(record, body)
    return _case(record, body, minor, digest)


def case_id(eval_set_id: str, eval_id: str) -> str:
    """Return the key of a case: the eval id, prefixed by the eval set's id when that differs."""
    return eval_id if eval_set_id == eval_id else f"{eval_set_id}/{eval_id}"


def _identity(case: Any) -> tuple[str, str, str, str, int]:
    """Return app, eval set, eval id, invocation id, revision: they name a revision of a turn."""
    if not isinstance(case, dict):
        raise _invalid(f"the value is a JSON {type(case).__name__}", "an object")
    eval_id = case.get("evalId")
    if not isinstance(eval_id, str) or not eval_id:
        raise _invalid(f"evalId is {eval_id!r:.40}", "a non-empty string")
    turns = case.get("actualConversation")
    if not isinstance(turns, list) or len(turns) != 1 or not isinstance(turns[0], dict):
        found = f"{len(turns)} turns" if isinstance(turns, list) else type(turns).__name__
        raise _invalid(f"actualConversation holds {found}", "exactly one turn")
    invocation_id = turns[0].get("invocationId")
    if not isinstance(invocation_id, str) or not invocation_id:
        raise _invalid(f"invocationId is {invocation_id!r:.40}", "a non-empty string")
    session = case.get("sessionInput") or {}
    source = case.get("source") or {}
    if not isinstance(session, dict) or not isinstance(source, dict):
        raise _invalid("sessionInput or source is no object", "JSON objects")
    app_name = session.get("appName") or ""
    eval_set_id = case.get("evalSetId") or eval_id
    revision = source.get("revision", 1)
    if not isinstance(app_name, str) or not isinstance(eval_set_id, str):
        raise _invalid("appName or evalSetId is no string", "strings")
    if not isinstance(revision, int) or isinstance(revision, bool) or revision < 0:
        raise _invalid(f"source.revision is {revision!r:.40}", "a whole number, 0 or more")
    return app_name, eval_set_id, eval_id, invocation_id, revision


def _case(record: WireRecord, body: Any, minor: int, digest: str) -> DecodedCase:
    identity = _identity(body)
    app_name, eval_set_id, eval_id, invocation_id, revision = identity
    return DecodedCase(
        case=body,
        case_id=case_id(eval_set_id, eval_id),
        event_id=_digest(*identity),
        app_name=app_name,
        eval_set_id=eval_set_id,
        eval_id=eval_id,
        invocation_id=invocation_id,
        revision=revision,
        producer_id=_required(record, "producer_id"),
        seq=_number(_required(record, "seq")),
        time=_time(record.header("ce_time")),
        content_sha256=digest,
        minor=minor,
    )


def _manifest(record: WireRecord, body: Any) -> Manifest:
    expected = "producerId, highestSeq and counted drops"
    time = _time(record.header("ce_time"))
    if not isinstance(body, dict) or time is None:
        raise RecordError(Reason.INVALID_MANIFEST, f"no object or no ce_time; expected {expected}")
    producer_id, highest = body.get("producerId"), body.get("highestSeq")
    drops = body.get("drops") or {}
    counts = [highest, *drops.values()] if isinstance(drops, dict) else [None]
    if not isinstance(producer_id, str) or not all(type(n) is int and n >= 0 for n in counts):
        raise RecordError(Reason.INVALID_MANIFEST, f"a manifest without {expected}")
    return Manifest(producer_id, int(counts[0] or 0), time, drops, body.get("closing") is True)


def _feedback(record: WireRecord, body: Any) -> Feedback:
    if not isinstance(body, dict):
        raise RecordError(Reason.INVALID_FEEDBACK, "the value is no object; expected feedback")
    try:
        return feedback_from(body, _time(record.header("ce_time")))
    except ValueError as error:
        raise RecordError(Reason.INVALID_FEEDBACK, str(error)) from None


def _envelope(
    *, event_type: str, event_id: str, source: str, subject: str, time: datetime, producer_id: str
) -> tuple[tuple[str, bytes], ...]:
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_type", event_type.encode()),
        ("ce_source", source.encode()),
        ("ce_time", _rfc3339(time).encode()),
        ("ce_subject", subject.encode()),
        ("content-type", b"application/json"),
        ("schema", f"{event_type}/{MAJOR}.{MINOR}".encode()),
        ("producer_id", producer_id.encode()),
    )


def _minor(schema: str, event_type: str) -> int:
    found = _SCHEMA.fullmatch(schema)
    major = int(found[2]) if found else 0
    if found is None or found[1] != event_type or not OLDEST_MAJOR <= major <= MAJOR:
        raise RecordError(
            Reason.SCHEMA_UNKNOWN,
            f"schema is {schema!r:.80}; this reader knows {event_type}/{OLDEST_MAJOR}.x to "
            f"{event_type}/{MAJOR}.x: upgrade evaltap, then replay the dead letters",
        )
    return int(found[3])


def _required(record: WireRecord, name: str) -> str:
    value = record.header(name)
    if not value:
        raise RecordError(Reason.MISSING_HEADER, f"header {name} is missing")
    return value


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RecordError(Reason.MISSING_HEADER, f"header seq is {text!r:.40}; expected a number")
    return int(text)


def _digest(*parts: str | int) -> str:
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]


def _dump(body: object) -> bytes:
    try:
        return orjson.dumps(body)
    except (TypeError, RecursionError) as error:
        raise RecordError(Reason.UNDECODABLE, f"not representable as JSON: {error}") from error


def _load(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordError(Reason.UNDECODABLE, f"the value is no JSON: {error}") from error


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(text: str | None) -> datetime | None:
    """Return the envelope's time; a missing or odd one is unknown, no reason to lose the case."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _invalid(found: str, expected: str) -> RecordError:
    return RecordError(Reason.INVALID_CASE, f"{found}; expected {expected}")
