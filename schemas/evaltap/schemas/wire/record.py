"""Records on the log: a turn as a CloudEvent, feedback, and the manifest that proves completeness.

The layout is the Kafka binding of CloudEvents 1.0 in binary mode: attributes in `ce_*` headers, the
eval case as JSON in the value, the case id as the key so that the turns of a session stay in order
on one partition. A row of the local log holds the same three parts.

The recorder imports this module inside the agent's process, so it stays light: slotted dataclasses
and orjson, no models. `decode_record` checks what the envelope promises (type, schema, size, hash,
one turn); the models of `evaltap.schemas` check the rest of the case.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.wire.envelope import MAX_VALUE_BYTES as MAX_VALUE_BYTES
from evaltap.schemas.wire.envelope import MINOR as MINOR
from evaltap.schemas.wire.envelope import (
    Envelope,
    digest_of,
    dump,
    envelope,
    open_envelope,
    rfc3339,
    time_of,
)
from evaltap.schemas.wire.envelope import Reason as Reason
from evaltap.schemas.wire.envelope import RecordError as RecordError
from evaltap.schemas.wire.envelope import WireRecord as WireRecord
from evaltap.schemas.wire.feedback import Feedback, feedback_from

CASES_TOPIC = "evaltap.cases"
DEAD_LETTERS_TOPIC = "evaltap.cases.dlq"
SCORES_TOPIC = "evaltap.scores"

CASE_TYPE = "evaltap.case"
MANIFEST_TYPE = "evaltap.manifest"
FEEDBACK_TYPE = "evaltap.feedback"
LARGEST_COUNT = 1 << 53
"""Beyond it JSON numbers are not exact everywhere, and their sums overflow database columns."""
TYPES = (CASE_TYPE, MANIFEST_TYPE, FEEDBACK_TYPE)


class DecodedCase(NamedTuple):
    """An eval case with one turn, and its envelope."""

    case: CaseData
    event_id: str
    """`ce_id`: the same for every delivery of the same revision of the same turn."""
    app_name: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    revision: int
    producer_id: str
    seq: int
    content_sha256: str
    minor: int = MINOR


@dataclass(frozen=True, slots=True)
class Manifest:
    """The account of one producer: how many cases it numbered and dropped.

    `highest_seq` is 0 before the first case; a reader that has `highest_seq` distinct numbers of
    `producer_id` has everything. `drops` counts, by reason, the cases that never got a number.
    """

    producer_id: str
    highest_seq: int
    time: datetime
    drops: Mapping[str, int] = field(default_factory=dict)
    closing: bool = False
    """True on the last manifest of an orderly close; without one the process died."""


def encode_case(
    case: CaseData, *, producer_id: str, seq: int, time: datetime, max_bytes: int = MAX_VALUE_BYTES
) -> WireRecord:
    """Return the record of a case with exactly one turn.

    Raises RecordError: `invalid_case` when identity is missing, `undecodable` when the case is
    not JSON (a NaN or infinity is written as null), `too_large` above `max_bytes`.
    """
    identity = _identity(case)
    value = dump(case)
    if len(value) > max_bytes:
        raise RecordError(
            Reason.TOO_LARGE,
            f"the case is {len(value)} bytes, the limit is {max_bytes}: shorten its texts",
        )
    app_name, eval_set_id, eval_id, invocation_id, _ = identity
    key = case_id(eval_set_id, eval_id)
    headers = (
        *envelope(
            event_type=CASE_TYPE,
            event_id=digest_of(*identity),
            source=f"/evaltap/{quote(app_name, safe='')}",
            subject=f"{quote(key, safe='')}/{quote(invocation_id, safe='')}",
            time=time,
            producer_id=producer_id,
            value=value,
        ),
        ("seq", b"%d" % seq),
    )
    return WireRecord(key.encode(), value, headers)


def encode_manifest(manifest: Manifest) -> WireRecord:
    """Return the record of a manifest, keyed by its producer."""
    body = {
        "producerId": manifest.producer_id,
        "highestSeq": manifest.highest_seq,
        "drops": dict(sorted(manifest.drops.items())),
        "closing": manifest.closing,
    }
    value = dump(body)
    producer_id = manifest.producer_id
    headers = envelope(
        event_type=MANIFEST_TYPE,
        event_id=digest_of(producer_id, rfc3339(manifest.time), manifest.highest_seq),
        source="/evaltap/recorder",
        subject=quote(producer_id, safe=""),
        time=manifest.time,
        producer_id=producer_id,
        value=value,
    )
    return WireRecord(producer_id.encode(), value, headers)


def encode_feedback(feedback: Feedback, *, producer_id: str) -> WireRecord:
    """Return the record of feedback, keyed by its case; it has no sequence number."""
    value = dump(feedback.data())
    key = case_id(feedback.eval_set_id, feedback.eval_id)
    headers = envelope(
        event_type=FEEDBACK_TYPE,
        event_id=digest_of(FEEDBACK_TYPE, feedback.feedback_id),
        source=f"/evaltap/{quote(feedback.app_name, safe='')}",
        subject=quote(key, safe=""),
        time=feedback.time,
        producer_id=producer_id,
        value=value,
    )
    return WireRecord(key.encode(), value, headers)


def decode_record(
    record: WireRecord, *, max_bytes: int = MAX_VALUE_BYTES
) -> DecodedCase | Manifest | Feedback:
    """Decode a record; raises RecordError with the reason for its dead letter."""
    return decode_opened(open_envelope(record, TYPES, max_bytes=max_bytes))


def decode_opened(opened: Envelope) -> DecodedCase | Manifest | Feedback:
    """Decode a record whose envelope was checked; raises RecordError like `decode_record`."""
    body = opened.body()
    if opened.event_type == MANIFEST_TYPE:
        return _manifest(opened, body)
    if opened.event_type == FEEDBACK_TYPE:
        return _feedback(opened, body)
    return _case(opened, body)


def producer_of(opened: Envelope) -> tuple[str, int]:
    """Return a case record's producer and sequence number; raises RecordError if they are missing."""
    return opened.required("producer_id"), _number(opened.required("seq"))


def case_id(eval_set_id: str, eval_id: str) -> str:
    """Return the key of a case: the eval id, prefixed by the eval set's id when that differs."""
    return eval_id if eval_set_id == eval_id else f"{eval_set_id}/{eval_id}"


def set_of(eval_set_id: str | None, eval_id: str, source: Mapping[str, object]) -> str:
    """Return the eval set of a record: a separate one for each run or version of the agent.

    So the same eval ids, recorded again with another version, are other cases.
    """
    return in_recording(
        eval_set_id, eval_id, recording_name(source.get("version"), source.get("run"))
    )


def recording_name(version: object, run: object) -> str:
    """Return the name of a recording, `<version>@<run>` or the one that is known; empty for none."""
    return "@".join(name for name in (version, run) if isinstance(name, str) and name)


def in_recording(eval_set_id: str | None, eval_id: str, recording: str) -> str:
    """Return the eval set of a recording: `<set>@<recording>`, or the recording's name alone."""
    if not recording:
        return eval_set_id or eval_id
    own = eval_set_id if eval_set_id and eval_set_id != eval_id else ""
    return f"{own}@{recording}" if own else recording


def parse_seq(text: str | None) -> int | None:
    """Return the number in a header `seq`, None unless it is from 1 to LARGEST_COUNT."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > 16:
        return None
    number = int(text)
    return number if 1 <= number <= LARGEST_COUNT else None


def _identity(case: object) -> tuple[str, str, str, str, int]:
    """Return app, eval set, eval id, invocation id, revision: the identity of a turn's revision."""
    if not isinstance(case, dict):
        raise _invalid(f"the value is a JSON {type(case).__name__}", "an object")
    eval_id = _id_in(case, "evalId")
    turns = case.get("actualConversation")
    if not isinstance(turns, list) or len(turns) != 1 or not isinstance(turns[0], dict):
        found = f"{len(turns)} turns" if isinstance(turns, list) else type(turns).__name__
        raise _invalid(f"actualConversation holds {found}", "exactly one turn")
    invocation_id = _id_in(turns[0], "invocationId")
    session, source = (case.get(key) or {} for key in ("sessionInput", "source"))
    if not isinstance(session, dict) or not isinstance(source, dict):
        raise _invalid("sessionInput or source is not an object", "JSON objects")
    app_name = session.get("appName") or ""
    eval_set_id = set_of(case.get("evalSetId"), eval_id, source)
    revision = source.get("revision", 1)
    if not isinstance(app_name, str) or not isinstance(eval_set_id, str):
        raise _invalid("appName or evalSetId is not a string", "strings")
    if type(revision) is not int or revision < 0:
        raise _invalid(f"source.revision is {revision!r:.40}", "a whole number, 0 or more")
    return app_name, eval_set_id, eval_id, invocation_id, revision


def _id_in(data: JsonObject, key: str) -> str:
    found = data.get(key)
    if not isinstance(found, str) or not found:
        raise _invalid(f"{key} is {found!r:.40}", "a non-empty string")
    return found


def _case(opened: Envelope, body: Any) -> DecodedCase:
    identity = _identity(body)
    app_name, eval_set_id, eval_id, invocation_id, revision = identity
    producer_id, seq = producer_of(opened)
    return DecodedCase(
        case=body,
        event_id=digest_of(*identity),
        app_name=app_name,
        eval_set_id=eval_set_id,
        eval_id=eval_id,
        invocation_id=invocation_id,
        revision=revision,
        producer_id=producer_id,
        seq=seq,
        content_sha256=opened.content_sha256,
        minor=opened.minor,
    )


def _manifest(opened: Envelope, body: object) -> Manifest:
    expected = "producerId, highestSeq and counted drops"
    time = time_of(opened.header("ce_time"))
    if not isinstance(body, dict) or time is None:
        raise RecordError(
            Reason.INVALID_MANIFEST, f"not an object, or ce_time is missing; expected {expected}"
        )
    producer_id, highest = body.get("producerId"), body.get("highestSeq")
    drops = body.get("drops") or {}
    counts = [highest, *drops.values()] if isinstance(drops, dict) else [None]
    if not isinstance(producer_id, str) or not all(type(n) is int and n >= 0 for n in counts):
        raise RecordError(Reason.INVALID_MANIFEST, f"a manifest without {expected}")
    if max(int(counts[0] or 0), sum(drops.values())) > LARGEST_COUNT:
        raise RecordError(
            Reason.INVALID_MANIFEST, f"highestSeq or drops are beyond {LARGEST_COUNT}"
        )
    return Manifest(producer_id, int(counts[0] or 0), time, drops, body.get("closing") is True)


def _feedback(opened: Envelope, body: object) -> Feedback:
    if not isinstance(body, dict):
        raise RecordError(Reason.INVALID_FEEDBACK, "the value is not an object; expected feedback")
    try:
        return feedback_from(body, time_of(opened.header("ce_time")))
    except ValueError as error:
        raise RecordError(Reason.INVALID_FEEDBACK, str(error)) from None


def _number(text: str) -> int:
    if (number := parse_seq(text)) is None:
        raise RecordError(
            Reason.MISSING_HEADER,
            f"header seq is {text!r:.40}; expected a number from 1 to {LARGEST_COUNT}",
        )
    return number


def _invalid(found: str, expected: str) -> RecordError:
    return RecordError(Reason.INVALID_CASE, f"{found}; expected {expected}")
