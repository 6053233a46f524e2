"""A dead letter on a topic: the record byte for byte, and beside its own headers why it could not be read."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import orjson

from evaltap.schemas.wire.envelope import WireRecord, digest_of, rfc3339

PREFIX = "dead_letter_"
"""Of the headers that are added; what the record brought keeps its names."""
CUT_FROM = PREFIX + "cut_from"
"""The header of a letter whose value was cut: how many bytes the value had."""
CUT_BYTES = 64 << 10
"""What a cut letter keeps of its value: any topic takes it, and it shows what the record was."""


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
    """Return a record for a dead-letter topic; its place on the log gives it an id of its own."""
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
    """Return a letter with the beginning of its value only, and a header that says so.

    None for a record that is no dead letter, and for a value that is no longer than that.
    """
    value = letter.value or b""
    if letter.header(PREFIX + "id") is None or len(value) <= CUT_BYTES:
        return None
    cut_from = (CUT_FROM, str(len(value)).encode())
    return WireRecord(letter.key, value[:CUT_BYTES], (*letter.headers, cut_from))


Headers: TypeAlias = tuple[tuple[str, bytes], ...]


def headers_json(headers: Iterable[tuple[str, bytes]]) -> str:
    """Return headers as JSON: `[name, text]` each, `[name, null, base64]` for what is not UTF-8."""
    return orjson.dumps([_pair(name, value) for name, value in headers]).decode()


def read_headers(text: str | None) -> Headers:
    """Return the headers that `headers_json` wrote; no text is no header."""
    return tuple((name, _value(*given)) for name, *given in orjson.loads(text or "[]"))


def text_or_base64(value: bytes) -> tuple[str | None, str]:
    """Return bytes as text, None when they are not UTF-8, and as base64, empty when they are."""
    try:
        return value.decode(), ""
    except UnicodeDecodeError:
        return None, b64encode(value).decode()


def _pair(name: str, value: bytes) -> Sequence[str | None]:
    text, encoded = text_or_base64(value)
    return (name, text, encoded) if text is None else (name, text)


def _value(text: str | None, encoded: str = "") -> bytes:
    return b64decode(encoded) if text is None else text.encode()
