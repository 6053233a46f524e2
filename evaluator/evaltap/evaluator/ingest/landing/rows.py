"""Convert manifests, feedback and unreadable records to rows."""

import orjson

from evaltap.evaluator.ingest.landing.row_types import DeadLetterRow, FeedbackRow, ManifestRow
from evaltap.evaluator.ingest.sources.base import SourceRecord
from evaltap.schemas.wire.dead_letter import headers_json
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import Manifest, RecordError, in_recording

LARGEST_DEAD_LETTER = 8 << 20
"""Bytes of a broken record that are stored: a few kilobytes may unpack to hundreds of megabytes."""


def manifest_row(manifest: Manifest) -> ManifestRow:
    """Return the row of a manifest."""
    return ManifestRow(
        manifest.producer_id,
        manifest.highest_seq,
        drops=orjson.dumps(dict(manifest.drops)).decode(),
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
