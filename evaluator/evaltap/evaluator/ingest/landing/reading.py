"""Read records: decode them, check them, and convert turns to rows.

Almost all records are read by a fast path that decodes only what rows need.  The others are decoded and
validated as a whole.
"""

import orjson

from evaltap.evaluator.cases.outline import LazyCase, lazy_case
from evaltap.evaluator.ingest.landing.record_fields import (
    CaseFields,
    case_fields,
    holds_no_surprise,
)
from evaltap.evaluator.ingest.landing.row_types import LandedTurn
from evaltap.evaluator.ingest.landing.turn_rows import TurnOrigin, landed_turn
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
