"""The rows of the tables that landing writes, and the names of turns and dead letters."""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

NOT_YET = datetime.min
"""Placeholder for the time of landing until the row is written."""


# The fields of each row are the columns of its table, in their order.


class CaseRow(Struct, gc=False):
    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int
    eval_mode: str | None
    user_id: str | None
    turn_count: int
    service: str | None
    framework: str | None
    convention: str | None
    recorder_version: str | None
    inclusion_probability: float | None
    case_json: str
    landed_at: datetime = NOT_YET


class ManifestRow(Struct, gc=False):
    producer_id: str
    highest_seq: int
    drops: str
    closing: bool
    stated_at: datetime
    landed_at: datetime = NOT_YET


class FeedbackRow(Struct, gc=False):
    app_name: str
    eval_set_id: str
    eval_id: str
    invocation_id: str | None
    trace_id: str | None
    feedback_id: str
    name: str
    positive: bool | None
    score: float | None
    comment: str | None
    correction: str | None
    given_by: str | None
    producer_id: str
    given_at: datetime
    landed_at: datetime = NOT_YET


class DeadLetterRow(Struct, gc=False):
    topic: str
    partition_number: int
    record_offset: int
    reason: str
    detail: str
    parked: bool
    record_key: bytes | None
    record_headers: str | None
    record_value: bytes | None
    landed_at: datetime = NOT_YET

    @property
    def position(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the record."""
        return self.topic, self.partition_number, self.record_offset


class DeadLetterId(NamedTuple):
    """Identifies a dead letter: an offset is not enough, since a recreated topic reuses offsets.

    The value is not part of the id: it may be large, and finding it would also read its neighbours.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    landed_at: datetime
