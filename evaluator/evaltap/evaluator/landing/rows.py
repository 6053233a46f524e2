"""Convert a record to rows of the tables.

A value that does not fit its column raises ValueError; the record then becomes a dead letter.
"""

from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

import orjson
from msgspec import Struct

from evaltap.evaluator.cases.costs import MARK, ModelUsage, computed_cost
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.outline import LazyCase, lazy_case
from evaltap.evaluator.landing.record_fields import (
    CaseFields,
    ErrorFields,
    TelemetryFields,
    ToolFields,
    case_fields,
    holds_no_surprise,
    json_text,
)
from evaltap.evaluator.sources.base import SourceRecord
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import case_data
from evaltap.schemas.formats.model import Json
from evaltap.schemas.wire.dead_letter import headers_json
from evaltap.schemas.wire.envelope import Envelope, digest_of, open_envelope
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import (
    CASE_TYPE,
    TYPES,
    DecodedCase,
    Manifest,
    Reason,
    RecordError,
    WireRecord,
    decode_opened,
    in_recording,
    producer_of,
    recording_name,
)

LARGEST_WHOLE = (1 << 63) - 1
LARGEST_DEAD_LETTER = 8 << 20
"""Bytes of a broken record that are stored: a few kilobytes may unpack to hundreds of megabytes."""
LARGEST_REVISION = 100_000
"""Far beyond any real turn; the sum over a case's turns must fit its column."""


_TURN_KEYS = frozenset({"actualConversation", "conversation", "evalSetId"})


_NOT_YET = datetime.min
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
    landed_at: datetime = _NOT_YET


class ManifestRow(Struct, gc=False):
    """A row of `manifests`."""

    producer_id: str
    highest_seq: int
    drops: str
    closing: bool
    stated_at: datetime
    landed_at: datetime = _NOT_YET


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
    landed_at: datetime = _NOT_YET


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
    landed_at: datetime = _NOT_YET

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


class _Origin(NamedTuple):
    """Names the turn of a record, and its producer."""

    key: CaseKey
    invocation_id: str
    revision: int
    event_id: str
    producer_id: str
    seq: int


def _landed_turn(origin: _Origin, fields: CaseFields, lazy: LazyCase | None) -> LandedTurn:
    """Return the turn of a record; raise ValueError for a number that does not fit its column."""
    return LandedTurn(
        origin.key,
        _turn_row(origin, fields),
        [
            _tool_call_row(origin, index, tool)
            for index, tool in enumerate(fields.turn.tools or ())
            if tool is not None
        ],
        _case_row(origin.key, fields),
        lazy,
    )


def _case_row(key: CaseKey, fields: CaseFields) -> CaseRow:
    source = fields.source
    return CaseRow(
        *key,
        revision=1,
        eval_mode=fields.eval_mode,
        user_id=fields.session.user_id,
        turn_count=1,
        service=source.service,
        framework=source.framework,
        convention=source.convention,
        recorder_version=source.recorder_version,
        inclusion_probability=source.inclusion_probability,
        case_json=fields.header_json,
    )


def _turn_row(origin: _Origin, fields: CaseFields) -> TurnRow:
    turn, source = fields.turn, fields.source
    telemetry = turn.telemetry or _NO_TELEMETRY
    error = telemetry.error or _NO_ERROR
    cost, capture = _cost_and_capture(telemetry, json_text(turn.capture))
    return TurnRow(
        *origin.key,
        invocation_id=origin.invocation_id,
        turn_revision=_checked(origin.revision, LARGEST_REVISION),
        started_at=_time(turn.creation_timestamp),
        status=telemetry.status,
        user_text=turn.user_content.content if turn.user_content else None,
        final_text=turn.final_response.content if turn.final_response else None,
        tool_count=len(turn.tools or ()),
        models=telemetry.models,
        input_tokens=_whole(telemetry.input_tokens),
        output_tokens=_whole(telemetry.output_tokens),
        cost_usd=cost,
        latency_ms=telemetry.latency_ms,
        error_type=error.type,
        error_message=error.message,
        trace_id=telemetry.trace_id,
        root_span_id=telemetry.root_span_id,
        close_reason=source.close_reason,
        capture=capture,
        actual_json=fields.actual_json,
        expected_json=fields.expected_json,
        event_id=origin.event_id,
        producer_id=origin.producer_id,
        seq=origin.seq,
        landed_seq=0,
        landed_at=_NOT_YET,
        sampling_reason=source.sampling_reason,
        inclusion_probability=source.inclusion_probability,
        agent_name=source.agent_name or next(iter(telemetry.agents or ()), None),
        version=source.version,
        environment=source.environment,
        tags=source.tags,
        run=source.run,
    )


def _cost_and_capture(
    telemetry: TelemetryFields, capture: str | None
) -> tuple[float | None, str | None]:
    """Return the cost of a turn and its `capture`, which marks a cost that was computed from prices."""
    capture = None if capture == "{}" else capture
    if telemetry.cost_usd is not None or not telemetry.models:
        return telemetry.cost_usd, capture
    usage = [
        ModelUsage(
            one.model,
            one.input_tokens,
            one.output_tokens,
            one.cached_tokens,
            one.cache_write_tokens,
        )
        for one in telemetry.usage or ()
    ]
    cost = computed_cost(usage, telemetry.models, telemetry.input_tokens, telemetry.output_tokens)
    if cost is None:
        return None, capture
    return cost, f"{{{MARK}}}" if capture is None else f"{capture.rstrip()[:-1]},{MARK}}}"


_NO_TELEMETRY = TelemetryFields()
_NO_ERROR = ErrorFields()


def _tool_call_row(origin: _Origin, index: int, tool: ToolFields) -> ToolCallRow:
    error = tool.error or _NO_ERROR
    return ToolCallRow(
        *origin.key,
        invocation_id=origin.invocation_id,
        turn_revision=origin.revision,
        call_index=index,
        call_id=tool.id,
        tool_name=tool.name,
        agent=tool.agent,
        parent_id=tool.parent_id,
        arguments=json_text(tool.arguments),
        result=json_text(tool.result),
        error_type=error.type,
        error_message=error.message,
        started_at=_time(tool.start_time),
        duration_ms=tool.duration_ms,
    )


def manifest_row(manifest: Manifest) -> ManifestRow:
    """Return the row of a manifest."""
    return ManifestRow(
        manifest.producer_id,
        manifest.highest_seq,
        drops=_json(dict(manifest.drops)),
        closing=manifest.closing,
        stated_at=manifest.time.replace(tzinfo=None),
    )


def feedback_row(feedback: Feedback, source: SourceRecord) -> FeedbackRow:
    """Return the row of a feedback."""
    return FeedbackRow(
        feedback.app_name,
        in_recording(feedback.eval_set_id, feedback.eval_id, feedback.recording),
        feedback.eval_id,
        invocation_id=feedback.invocation_id or None,
        trace_id=feedback.trace_id or None,
        feedback_id=feedback.feedback_id,
        name=feedback.name,
        positive=feedback.positive,
        score=feedback.score,
        comment=feedback.comment or None,
        correction=feedback.correction or None,
        given_by=feedback.given_by or None,
        producer_id=source.record.header("producer_id") or "",
        given_at=feedback.time.replace(tzinfo=None),
    )


def dead_letter_row(source: SourceRecord, error: RecordError) -> DeadLetterRow:
    """Return the row of a record that cannot be read."""
    value, detail = source.record.value, str(error)
    if value is not None and len(value) > LARGEST_DEAD_LETTER:
        detail += f"; its first {LARGEST_DEAD_LETTER} bytes are kept; the log has all of it"
        value = value[:LARGEST_DEAD_LETTER]
    return DeadLetterRow(
        *source.partition,
        source.offset,
        reason=error.reason.value,
        detail=detail,
        parked=error.parked,
        record_key=source.record.key,
        record_headers=headers_json(source.record.headers),
        record_value=value,
    )


def _checked(value: int, largest: int) -> int:
    """Return the number if it fits its column; raise ValueError otherwise."""
    if abs(value) > largest:
        raise ValueError(f"{value} is beyond {largest}")
    return value


def _whole(value: int | None) -> int | None:
    return None if value is None else _checked(value, LARGEST_WHOLE)


def _json(value: Json) -> str:
    return orjson.dumps(value).decode()


def _time(seconds: float | None) -> datetime | None:
    """Return Unix seconds as a UTC time; None for a time outside the calendar's range."""
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return None


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


def readable(record: WireRecord) -> str | None:
    """Return the reason why a record cannot be landed; None if it can."""
    read = _read(record)
    return read.reason.value if isinstance(read, RecordError) else None


def _read(record: WireRecord) -> LandedTurn | Manifest | Feedback | RecordError:
    try:
        opened = open_envelope(record, TYPES)
        # A lazy case is as well-formed as one that was validated.
        lazy = lazy_case(opened.value) if opened.event_type == CASE_TYPE else None
        if lazy is not None and holds_no_surprise(opened.value):
            fields = case_fields(opened.value)
            if fields is not None:
                return _landed_turn(_origin(record, fields), fields, lazy)
        return _read_whole(record, opened, lazy)
    except RecordError as error:
        return error
    except FormatError as error:
        return RecordError(Reason.INVALID_CASE, str(error))
    except (TypeError, ValueError) as error:
        # JSON that can be decoded but not encoded: nested too deeply, or with numbers that are too large.
        return RecordError(Reason.INVALID_CASE, f"cannot be stored: {error}")


def _origin(record: WireRecord, fields: CaseFields) -> _Origin:
    app, eval_id = fields.session.app_name or "", fields.eval_id
    recording = recording_name(fields.source.version, fields.source.run)
    eval_set_id = in_recording(fields.eval_set_id, eval_id, recording)
    revision = 1 if fields.source.revision is None else fields.source.revision
    named = (app, eval_set_id, eval_id, fields.turn.invocation_id, revision)
    producer_id, seq = producer_of(record)
    return _Origin(named[:3], *named[3:], digest_of(*named), producer_id, seq)


def _read_whole(
    record: WireRecord, opened: Envelope, lazy: LazyCase | None
) -> LandedTurn | Manifest | Feedback:
    """Decode and validate the whole record, which reports every possible error."""
    decoded = decode_opened(record, opened)
    if not isinstance(decoded, DecodedCase):
        return decoded
    case = decoded.case if lazy is not None else case_data(decoded.case)
    header = {name: value for name, value in case.items() if name not in _TURN_KEYS}
    fields = case_fields(orjson.dumps(case))
    if fields is None:
        raise ValueError("a field has another type than its column")
    fields = fields._replace(header_json=_json(header))
    key = (decoded.app_name, decoded.eval_set_id, decoded.eval_id)
    origin = _Origin(
        key, decoded.invocation_id, decoded.revision, decoded.event_id, decoded.producer_id,
        decoded.seq,
    )  # fmt: skip
    return _landed_turn(origin, fields, lazy)
