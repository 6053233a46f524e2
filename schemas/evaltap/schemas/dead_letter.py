"""A dead letter on a topic: the record byte for byte, and beside its own headers why it could not be read."""

from collections.abc import Mapping
from datetime import datetime

from evaltap.schemas.envelope import WireRecord, digest_of, rfc3339

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
    """Return a record for a dead-letter topic; the place it lay at gives it an id of its own."""
    told: Mapping[str, str] = {
        "id": digest_of(topic, partition, offset),
        "reason": reason,
        "detail": detail,
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "producer_id": producer_id,
        "time": rfc3339(time),
    }
    added = tuple((PREFIX + name, text.encode()) for name, text in told.items())
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
