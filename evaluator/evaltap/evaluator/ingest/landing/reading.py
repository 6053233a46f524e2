"""Read records: decode them, check them, and convert turns to rows.

Almost all records are read by a fast path that decodes only what rows need.  The others are decoded and
validated as a whole.  A number that does not fit its column raises ValueError; the record then becomes a dead
letter.
"""

from datetime import UTC, datetime
from typing import NamedTuple

import orjson

from evaltap.evaluator.cases.costs import MARK, ModelUsage, computed_cost
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.outline import LazyCase, lazy_case
from evaltap.evaluator.ingest.landing.record_fields import (
    CaseFields,
    ErrorFields,
    TelemetryFields,
    ToolFields,
    case_fields,
    holds_no_surprise,
    json_text,
)
from evaltap.evaluator.ingest.landing.row_types import (
    NOT_YET,
    CaseRow,
    LandedTurn,
    ToolCallRow,
    TurnRow,
)
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import case_data
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

_TURN_KEYS = frozenset({"actualConversation", "conversation", "evalSetId"})


LARGEST_WHOLE = (1 << 63) - 1
LARGEST_REVISION = 100_000
"""Far beyond any real turn; the sum over a case's turns must fit its column."""


class TurnOrigin(NamedTuple):
    """Names the turn of a record, and its producer."""

    key: CaseKey
    invocation_id: str
    revision: int
    event_id: str
    producer_id: str
    seq: int


def readable(record: WireRecord) -> str | None:
    """Return the reason why a record cannot be landed; None if it can."""
    read = read_record(record)
    return read.reason.value if isinstance(read, RecordError) else None


def read_record(record: WireRecord) -> LandedTurn | Manifest | Feedback | RecordError:
    try:
        opened = open_envelope(record, TYPES)
        # A lazy case is as well-formed as one that was validated.
        lazy = lazy_case(opened.value) if opened.event_type == CASE_TYPE else None
        if lazy is not None and holds_no_surprise(opened.value):
            fields = case_fields(opened.value)
            if fields is not None:
                return landed_turn(_origin(opened, fields), fields, lazy)
        return _read_whole(opened, lazy)
    except RecordError as error:
        return error
    except FormatError as error:
        return RecordError(Reason.INVALID_CASE, str(error))
    except (TypeError, ValueError) as error:
        # JSON that can be decoded but not encoded: nested too deeply, or with numbers that are too large.
        return RecordError(Reason.INVALID_CASE, f"cannot be stored: {error}")


def _origin(opened: Envelope, fields: CaseFields) -> TurnOrigin:
    app, eval_id = fields.session.app_name or "", fields.eval_id
    recording = recording_name(fields.source.version, fields.source.run)
    eval_set_id = in_recording(fields.eval_set_id, eval_id, recording)
    revision = 1 if fields.source.revision is None else fields.source.revision
    named = (app, eval_set_id, eval_id, fields.turn.invocation_id, revision)
    producer_id, seq = producer_of(opened)
    return TurnOrigin(named[:3], *named[3:], digest_of(*named), producer_id, seq)


def _read_whole(opened: Envelope, lazy: LazyCase | None) -> LandedTurn | Manifest | Feedback:
    """Decode and validate the whole record, which reports every possible error."""
    decoded = decode_opened(opened)
    if not isinstance(decoded, DecodedCase):
        return decoded
    case = decoded.case if lazy is not None else case_data(decoded.case)
    header = {name: value for name, value in case.items() if name not in _TURN_KEYS}
    fields = case_fields(orjson.dumps(case))
    if fields is None:
        raise ValueError("a field has another type than its column")
    fields = fields._replace(header_json=orjson.dumps(header).decode())
    key = (decoded.app_name, decoded.eval_set_id, decoded.eval_id)
    origin = TurnOrigin(
        key,
        decoded.invocation_id,
        decoded.revision,
        decoded.event_id,
        decoded.producer_id,
        decoded.seq,
    )
    return landed_turn(origin, fields, lazy)


def landed_turn(origin: TurnOrigin, fields: CaseFields, lazy: LazyCase | None) -> LandedTurn:
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


def _turn_row(origin: TurnOrigin, fields: CaseFields) -> TurnRow:
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
        landed_at=NOT_YET,
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


def _tool_call_row(origin: TurnOrigin, index: int, tool: ToolFields) -> ToolCallRow:
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


def _checked(value: int, largest: int) -> int:
    """Return the number if it fits its column; raise ValueError otherwise."""
    if abs(value) > largest:
        raise ValueError(f"{value} is beyond {largest}")
    return value


def _whole(value: int | None) -> int | None:
    return None if value is None else _checked(value, LARGEST_WHOLE)


def _time(seconds: float | None) -> datetime | None:
    """Return Unix seconds as a UTC time; None for a time outside the calendar's range."""
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return None
