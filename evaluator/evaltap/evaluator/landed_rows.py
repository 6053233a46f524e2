"""What a record brings, as rows of the tables: plain tuples in the order of the columns.

A value that its column cannot hold is a ValueError: the record is then a dead letter.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from evaltap.evaluator.letter_headers import headers_json
from evaltap.evaluator.outlined_case import OutlinedCase
from evaltap.evaluator.pending import CaseKey
from evaltap.evaluator.sources.base import SourceRecord
from evaltap.evaluator.store import Row
from evaltap.schemas.case import CaseData
from evaltap.schemas.feedback import Feedback
from evaltap.schemas.record import DecodedCase, Manifest, RecordError

LARGEST_WHOLE = (1 << 63) - 1
LARGEST_LETTER = 8 << 20
"""Bytes of a broken record that are kept; some kilobytes on the wire may unpack to hundreds of megabytes."""
LARGEST_REVISION = 100_000
"""No turn grows so often; the sum over a case's turns must fit its column."""


_TURN_KEYS = frozenset({"actualConversation", "conversation", "evalSetId"})


class LandedTurn(NamedTuple):
    """A turn that came, as rows; its case data need not be kept."""

    key: CaseKey
    invocation_id: str
    revision: int
    producer_id: str
    seq: int
    started_at: datetime | None
    turn: Row
    """Without the columns of landing, which stand before the last two."""
    calls: list[Row]
    case: Row
    """What a row of its case says, from the mode to the inclusion probability, without turn count."""
    header: str
    """The eval case without its turns."""
    outlined: OutlinedCase | None

    def row(self, landed_seq: int, landed_at: datetime) -> Row:
        """Return the row of the table `turns`."""
        # Columns that came later stand behind the time of landing.
        return (*self.turn[:-2], landed_seq, landed_at, *self.turn[-2:])


def landed_turn(decoded: DecodedCase, outlined: OutlinedCase | None) -> LandedTurn:
    """Return the turn of a record.

    Raises TypeError or ValueError for what can be read as JSON and not be stored: nested too deep,
    numbers too large.
    """
    case = decoded.case
    key = (decoded.app_name, decoded.eval_set_id, decoded.eval_id)
    turn = case["actualConversation"][0]
    started_at = _time(turn.get("creationTimestamp"))
    return LandedTurn(
        key,
        decoded.invocation_id,
        decoded.revision,
        decoded.producer_id,
        decoded.seq,
        started_at,
        _turn_row(key, decoded, turn, started_at),
        list(_tool_call_rows(key, decoded, turn)),
        _case_fields(case),
        _json({name: value for name, value in case.items() if name not in _TURN_KEYS}),
        outlined,
    )


def case_row(key: CaseKey, revision: int, turn_count: int, fields: Row, header: str) -> Row:
    """Return the row of a case, without the time of landing; `fields` as a `LandedTurn` has them."""
    mode, user_id, *source = fields
    return (*key, revision, mode, user_id, turn_count, *source, header)


def _case_fields(case: CaseData) -> Row:
    source = case.get("source") or {}
    return (
        case.get("evalMode"),
        (case.get("sessionInput") or {}).get("userId"),
        source.get("service"),
        source.get("framework"),
        source.get("convention"),
        source.get("recorderVersion"),
        source.get("inclusionProbability"),
    )


def _turn_row(
    key: CaseKey, decoded: DecodedCase, turn: Mapping[str, Any], started_at: datetime | None
) -> Row:
    case = decoded.case
    expected = next(iter(case.get("conversation") or ()), None)
    telemetry = turn.get("telemetry") or {}
    error = telemetry.get("error") or {}
    capture = turn.get("capture")
    source = case.get("source") or {}
    return (
        *key,
        decoded.invocation_id,
        _whole(decoded.revision, LARGEST_REVISION),
        started_at,
        telemetry.get("status"),
        _text(turn.get("userContent")),
        _text(turn.get("finalResponse")),
        len(turn.get("tools") or ()),
        telemetry.get("models"),
        _whole(telemetry.get("inputTokens")),
        _whole(telemetry.get("outputTokens")),
        telemetry.get("costUsd"),
        telemetry.get("latencyMs"),
        error.get("type"),
        error.get("message"),
        telemetry.get("traceId"),
        telemetry.get("rootSpanId"),
        source.get("closeReason"),
        _json(capture) if capture else None,
        _json(turn),
        None if expected is None else _json(expected),
        decoded.event_id,
        decoded.producer_id,
        decoded.seq,
        source.get("samplingReason"),
        source.get("inclusionProbability"),
    )


def _tool_call_rows(key: CaseKey, decoded: DecodedCase, turn: Mapping[str, Any]) -> Iterable[Row]:
    for index, tool in enumerate(turn.get("tools") or ()):
        if tool is None:
            continue
        error = tool.get("error") or {}
        yield (
            *key,
            decoded.invocation_id,
            decoded.revision,
            index,
            tool.get("id"),
            tool.get("name"),
            tool.get("agent"),
            tool.get("parentId"),
            _json_or_null(tool.get("arguments")),
            _json_or_null(tool.get("result")),
            error.get("type"),
            error.get("message"),
            _time(tool.get("startTime")),
            tool.get("durationMs"),
        )


def manifest_row(manifest: Manifest) -> Row:
    return (
        manifest.producer_id,
        manifest.highest_seq,
        _json(dict(manifest.drops)),
        manifest.closing,
        manifest.time.replace(tzinfo=None),
    )


def feedback_row(feedback: Feedback, source: SourceRecord) -> Row:
    return (
        feedback.app_name,
        feedback.eval_set_id,
        feedback.eval_id,
        feedback.invocation_id or None,
        feedback.trace_id or None,
        feedback.feedback_id,
        feedback.name,
        feedback.positive,
        feedback.score,
        feedback.comment or None,
        feedback.correction or None,
        feedback.given_by or None,
        source.record.header("producer_id") or "",
        feedback.time.replace(tzinfo=None),
    )


def dead_letter_row(source: SourceRecord, error: RecordError) -> Row:
    """Return the row of a record that cannot be read, without the time of landing."""
    value, detail = source.record.value, str(error)
    if value is not None and len(value) > LARGEST_LETTER:
        detail += f"; its first {LARGEST_LETTER} bytes are kept, the whole lies on the log"
        value = value[:LARGEST_LETTER]
    return (
        *source.partition,
        source.offset,
        error.reason.value,
        detail,
        error.parked,
        source.record.key,
        headers_json(source.record.headers),
        value,
    )


def _whole(value: int | None, largest: int = LARGEST_WHOLE) -> int | None:
    """Return a whole number that its column can hold; ValueError for another."""
    if value is not None and abs(value) > largest:
        raise ValueError(f"{value} is beyond {largest}")
    return value


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _json_or_null(value: Any) -> str | None:
    return None if value is None else _json(value)


def _text(message: Mapping[str, Any] | None) -> str | None:
    """Return a message's text; a message without the key was seen and is empty."""
    return None if message is None else message.get("content", "")


def _time(seconds: float | None) -> datetime | None:
    """Return Unix seconds as UTC; a time that no calendar holds is unknown."""
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return None
