"""The rows of the tables that landing writes, and the names of turns and dead letters."""

from datetime import datetime
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.outline import LazyCase

NOT_YET = datetime.min
"""Placeholder for the time of landing until the row is written."""


# The fields of each row are the columns of its table, in their order.


class TurnRow(Struct, gc=False):
    """A row of `turns`."""

    app_name: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    turn_revision: int
    started_at: datetime | None
    status: str | None
    user_text: str | None
    final_text: str | None
    tool_count: int
    models: list[str] | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_ms: float | None
    error_type: str | None
    error_message: str | None
    trace_id: str | None
    root_span_id: str | None
    close_reason: str | None
    capture: str | None
    actual_json: str
    expected_json: str | None
    event_id: str
    producer_id: str
    seq: int
    landed_seq: int
    landed_at: datetime
    sampling_reason: str | None
    inclusion_probability: float | None
    agent_name: str | None
    version: str | None
    environment: str | None
    tags: list[str] | None
    run: str | None


class ToolCallRow(Struct, gc=False):
    """A row of `tool_calls`."""

    app_name: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    turn_revision: int
    call_index: int
    call_id: str | None
    tool_name: str | None
    agent: str | None
    parent_id: str | None
    arguments: str | None
    result: str | None
    error_type: str | None
    error_message: str | None
    started_at: datetime | None
    duration_ms: float | None


class CaseRow(Struct, gc=False):
    """A row of `cases`."""

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
    """A row of `manifests`."""

    producer_id: str
    highest_seq: int
    drops: str
    closing: bool
    stated_at: datetime
    landed_at: datetime = NOT_YET


class FeedbackRow(Struct, gc=False):
    """A row of `feedback`."""

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
    """A row of `dead_letters`."""

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


LandedRow: TypeAlias = CaseRow | ManifestRow | FeedbackRow | DeadLetterRow
"""A row that gets the time of landing when it is written."""


class LandedTurn(NamedTuple):
    """A turn as rows, which replace its case data."""

    key: CaseKey
    turn: TurnRow
    """Without the sequence number and time of landing, which the lander sets."""
    calls: list[ToolCallRow]
    case: CaseRow
    """The case as in this record alone: its revision and number of turns are those of this turn."""
    lazy: LazyCase | None

    @property
    def invocation_id(self) -> str:
        """The id of the turn."""
        return self.turn.invocation_id

    @property
    def revision(self) -> int:
        """The revision of the turn."""
        return self.turn.turn_revision


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
