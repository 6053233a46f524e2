"""Read records: decode and check them.

Almost all records are read by a fast path that decodes only what rows need.  The others are decoded and
validated as a whole.  A number that does not fit its column raises ValueError; the record then becomes a dead
letter.
"""

import orjson
from msgspec import Raw

from evaltap.evaluator.cases.outline import lazy_case
from evaltap.evaluator.ingest.landing.record_fields import (
    CaseFields,
    TurnFields,
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

_TURN_KEYS = frozenset({"actualConversation", "conversation", "evalSetId"})


def readable(record: WireRecord) -> str | None:
    """Return the reason why a record cannot be landed; None if it can."""
    read = read_record(record)
    return read.reason.value if isinstance(read, RecordError) else None


def read_record(record: WireRecord) -> LandedTurn | Manifest | Feedback | RecordError:
    try:
        opened = open_envelope(record, TYPES)
        # A case with an outline is as well-formed as one that was validated.
        line = opened.value if opened.event_type == CASE_TYPE and lazy_case(opened.value) else None
        if line is not None and holds_no_surprise(line):
            fields = case_fields(line)
            if fields is not None:
                return landed_turn(_origin(opened, *fields), *fields, line)
        return _read_whole(opened, line)
    except RecordError as error:
        return error
    except FormatError as error:
        return RecordError(Reason.INVALID_CASE, str(error))
    except (TypeError, ValueError) as error:
        # JSON that can be decoded but not encoded: nested too deeply, or with numbers that are too large.
        return RecordError(Reason.INVALID_CASE, f"cannot be stored: {error}")


def _origin(opened: Envelope, case: CaseFields, turn: TurnFields) -> TurnOrigin:
    app, eval_id, source = case.session.app_name or "", case.eval_id, case.source
    recording = recording_name(source.version, source.run)
    eval_set_id = in_recording(case.eval_set_id, eval_id, recording)
    revision = 1 if source.revision is None else source.revision
    named = (app, eval_set_id, eval_id, turn.invocation_id, revision)
    return TurnOrigin(named[:3], *named[3:], digest_of(*named), *producer_of(opened))


def _read_whole(opened: Envelope, line: bytes | None) -> LandedTurn | Manifest | Feedback:
    """Decode and validate the whole record, which reports every possible error."""
    decoded = decode_opened(opened)
    if not isinstance(decoded, DecodedCase):
        return decoded
    case = decoded.case if line is not None else case_data(decoded.case)
    header = {name: value for name, value in case.items() if name not in _TURN_KEYS}
    fields = case_fields(orjson.dumps(case))
    if fields is None:
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
    return landed_turn(origin, found._replace(header=Raw(orjson.dumps(header))), turn, line)
