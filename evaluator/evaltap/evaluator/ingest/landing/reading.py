"""Read records: decode and check them.

Almost all records are read by a fast path that decodes only what rows need.  The others are decoded and
validated as a whole.  A number that does not fit its column raises ValueError; the record then becomes a dead
letter.
"""

from typing import Any

import orjson

from evaltap.evaluator.ingest.landing.record_fields import (
    WITHOUT,
    CaseFields,
    case_fields,
    holds_no_surprise,
)
from evaltap.evaluator.ingest.landing.turns import LandedTurn, TurnOrigin, landed_turn
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


def readable(record: WireRecord) -> str | None:
    """Return the reason why a record cannot be landed; None if it can."""
    read = read_record(record)
    return read.reason.value if isinstance(read, RecordError) else None


def read_record(record: WireRecord) -> LandedTurn | Manifest | Feedback | RecordError:
    try:
        opened = open_envelope(record, TYPES)
        fields = case_fields(opened.value) if opened.event_type == CASE_TYPE else None
        line = None if fields is None else opened.value
        if fields is not None and holds_no_surprise(opened.value):
            return landed_turn(_origin(opened, *fields), *fields, line)
        return _read_whole(opened, line)
    except RecordError as error:
        return error
    except FormatError as error:
        return RecordError(Reason.INVALID_CASE, str(error))
    except (TypeError, ValueError) as error:
        # JSON that can be decoded but not encoded: nested too deeply, or with numbers that are too large.
        return RecordError(Reason.INVALID_CASE, f"cannot be stored: {error}")


def _origin(opened: Envelope, case: CaseFields, turn: Any) -> TurnOrigin:  # an outline
    app, eval_id, source = case.session.appName or "", case.eval_id, case.source
    recording = recording_name(source.version, source.run)
    eval_set_id = in_recording(case.eval_set_id, eval_id, recording)
    revision = 1 if source.revision is None else source.revision
    named = (app, eval_set_id, eval_id, turn.invocationId, revision)
    return TurnOrigin(named[:3], *named[3:], digest_of(*named), *producer_of(opened))


def _read_whole(opened: Envelope, line: bytes | None) -> LandedTurn | Manifest | Feedback:
    """Decode and validate the whole record, which reports every possible error."""
    decoded = decode_opened(opened)
    if not isinstance(decoded, DecodedCase):
        return decoded
    case = decoded.case if line is not None else case_data(decoded.case)
    header = {name: value for name, value in case.items() if name not in WITHOUT}
    if (fields := case_fields(orjson.dumps(case), strict=False)) is None:
        raise ValueError("a field has another type than its column")
    origin = TurnOrigin(
        (decoded.app_name, decoded.eval_set_id, decoded.eval_id),
        decoded.invocation_id,
        decoded.revision,
        decoded.event_id,
        decoded.producer_id,
        decoded.seq,
    )
    found, turn = fields
    return landed_turn(origin, found._replace(header=orjson.dumps(header).decode()), turn, line)
