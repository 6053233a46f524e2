"""Scores on the wire: the reason of a score that is too large is truncated."""

from datetime import UTC, datetime

import orjson
import pytest

from evaltap.schemas.wire.envelope import Reason, RecordError
from evaltap.schemas.wire.score import CaseRevision, encode_score

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
OF = CaseRevision("app", "set", "case", 3)


@pytest.mark.parametrize("letter", ["x", "ä", "\0"], ids=["plain", "two bytes", "escaped"])
def test_a_score_that_no_record_holds_has_its_reason_cut_and_says_so(letter: str) -> None:
    record = encode_score(
        OF, {"reason": letter * 1_040_000, "score": 1.0}, event_id="i", producer_id="p", time=NOON
    )

    body = orjson.loads(record.value or b"")
    assert body["reason"] == letter * 2_000 + "… (1038000 characters cut)"
    assert body["score"] == 1.0


def test_a_score_that_a_record_holds_keeps_its_reason() -> None:
    record = encode_score(OF, {"reason": "x" * 900_000}, event_id="i", producer_id="p", time=NOON)

    assert orjson.loads(record.value or b"")["reason"] == "x" * 900_000


def test_a_score_that_no_record_holds_without_its_reason_either_says_so() -> None:
    of = CaseRevision("app", "set", "x" * 1_000_001, 3)

    with pytest.raises(RecordError) as raised:
        encode_score(of, {"reason": ""}, event_id="i", producer_id="p", time=NOON)

    assert raised.value.reason is Reason.TOO_LARGE
