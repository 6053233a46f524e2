"""A stored score on the log, for every reader of the scores topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from evaltap.schemas.wire.envelope import (
    MAX_VALUE_BYTES,
    Reason,
    RecordError,
    WireRecord,
    dump,
    envelope,
)
from evaltap.schemas.wire.record import case_id

SCORE_TYPE = "evaltap.score"
SHORT_TEXT = 2_000
"""Characters kept of a reason that must be truncated for its record to fit."""


@dataclass(frozen=True, slots=True)
class CaseRevision:
    """The ids of a case and its revision number."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int


def encode_score(
    of: CaseRevision, body: Mapping[str, Any], *, event_id: str, producer_id: str, time: datetime
) -> WireRecord:
    """Return the record of one stored score, keyed by its case; a reason that does not fit is truncated.

    Raises RecordError `too_large` when it still does not fit.
    """
    names = {
        "appName": of.app_name,
        "evalSetId": of.eval_set_id,
        "evalId": of.eval_id,
        "revision": of.revision,
    }
    value = dump({**names, **body})
    if len(value) > MAX_VALUE_BYTES:
        value = dump({**names, **body, "reason": _cut(body.get("reason") or "")})
    if len(value) > MAX_VALUE_BYTES:
        raise RecordError(
            Reason.TOO_LARGE,
            f"the {SCORE_TYPE} is {len(value)} bytes, the limit is {MAX_VALUE_BYTES}",
        )
    key = case_id(of.eval_set_id, of.eval_id)
    headers = envelope(
        event_type=SCORE_TYPE,
        event_id=event_id,
        source=f"/evaltap/{quote(of.app_name, safe='')}",
        subject=quote(key, safe=""),
        time=time,
        producer_id=producer_id,
        value=value,
    )
    return WireRecord(key.encode(), value, headers)


def _cut(text: str) -> str:
    """Return the beginning of a long text, followed by a note on how much was cut."""
    left_out = len(text) - SHORT_TEXT
    return f"{text[:SHORT_TEXT]}… ({left_out} characters cut)" if left_out > 0 else text
