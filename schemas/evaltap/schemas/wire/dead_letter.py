"""A dead letter on a topic: the record byte for byte, plus headers with the reason it was unreadable."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import orjson

from evaltap.schemas.wire.envelope import WireRecord, digest_of, rfc3339

PREFIX = "dead_letter_"
"""Prefix of the added headers; the record's own headers keep their names."""
CUT_FROM = PREFIX + "cut_from"
"""The header of a dead letter whose value was truncated: the original size in bytes."""
CUT_BYTES = 64 << 10
"""Size of a truncated value: small enough for any topic, large enough to identify the record."""


def encode_dead_letter(
    record: WireRecord,
    *,
    reason: str,
    detail: str,
    topic: str,
    partition: int,
    offset: int,
    producer_id: str,
    time: datetime,
) -> WireRecord:
    """Return a record for a dead-letter topic; its id is derived from its position on the log."""
    fields: Mapping[str, str] = {
        "id": digest_of(topic, partition, offset),
        "reason": reason,
        "detail": detail,
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "producer_id": producer_id,
        "time": rfc3339(time),
    }
    added = tuple((PREFIX + name, text.encode()) for name, text in fields.items())
    return WireRecord(record.key, record.value, record.headers + added)


def cut_letter(letter: WireRecord) -> WireRecord | None:
    """Return a dead letter with only the beginning of its value, and a header that says so.

    None for a record that is not a dead letter, and for a value within the limit.
    """
    value = letter.value or b""
    if letter.header(PREFIX + "id") is None or len(value) <= CUT_BYTES:
        return None
    cut_from = (CUT_FROM, str(len(value)).encode())
    return WireRecord(letter.key, value[:CUT_BYTES], (*letter.headers, cut_from))


Headers: TypeAlias = tuple[tuple[str, bytes], ...]


def headers_json(headers: Iterable[tuple[str, bytes]]) -> str:
    """Return headers as JSON: `[name, text]` each, `[name, null, base64]` if not UTF-8."""
    return orjson.dumps([_pair(name, value) for name, value in headers]).decode()


def read_headers(text: str | None) -> Headers:
    """Return the headers that `headers_json` wrote; no text means no headers."""
    return tuple((name, _value(*given)) for name, *given in orjson.loads(text or "[]"))


def text_or_base64(value: bytes) -> tuple[str | None, str]:
    """Return bytes as text, None when not UTF-8, and as base64, empty when UTF-8."""
    try:
        return value.decode(), ""
    except UnicodeDecodeError:
        return None, b64encode(value).decode()


def _pair(name: str, value: bytes) -> Sequence[str | None]:
    text, encoded = text_or_base64(value)
    return (name, text, encoded) if text is None else (name, text)


def _value(text: str | None, encoded: str = "") -> bytes:
    return b64decode(encoded) if text is None else text.encode()
