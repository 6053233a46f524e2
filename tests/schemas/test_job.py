"""Jobs and results on the wire: what comes back is what was sent; anything else is a dead letter."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.job_rows import from_wire
from evaltap.schemas.envelope import Reason, RecordError, WireRecord
from evaltap.schemas.job import (
    CaseRevision,
    Job,
    JobMetric,
    Result,
    decode_job,
    decode_result,
    encode_job,
    encode_result,
    encode_score,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
OF = CaseRevision("app", "set", "case", 3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
SCORE = ("app", "set", "case", 3, 0, 1.0, "passed", "", 1)


def job(**given: Any) -> Job:
    metrics = (JobMetric(0, "d-0", {"metricName": "m"}),)
    values: dict[str, Any] = {
        "run_id": "live-1", "of": OF, "turn_revisions": (1, 2), "metrics": metrics,
        "case": {"evalId": "case"}, "known": {0: [None, ["passed", 1.0, ""]]},
    }  # fmt: skip
    return Job(**values | given)


def result(*scores: tuple[Any, ...]) -> Result:
    return Result("j", 1, "live-1", OF, "w", "0.1", {"scores": scores})


def changed(record: WireRecord, **body: Any) -> WireRecord:
    """Return a record with another body, as somebody without a hash would write it."""
    value = orjson.dumps(orjson.loads(record.value or b"") | body)
    headers = tuple(one for one in record.headers if one[0] != "content_sha256")
    return WireRecord(record.key, value, headers)


@given(st.dictionaries(st.text(), JSON))
def test_a_job_comes_back_as_it_was(case: dict[str, Any]) -> None:
    sent = job(case=case)

    assert decode_job(encode_job(sent, producer_id="p", time=NOON)) == sent


def test_every_attempt_is_the_same_job_and_a_record_of_its_own() -> None:
    first, second = job(), job(attempt=2)
    ids = {encode_job(one, producer_id="p", time=NOON).header("ce_id") for one in (first, second)}

    assert first.job_id == second.job_id
    assert len(ids) == 2


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


def test_a_job_that_no_record_holds_says_so() -> None:
    with pytest.raises(RecordError) as raised:
        encode_job(job(case={"text": "x" * 1_000_001}), producer_id="p", time=NOON)

    assert raised.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "body",
    [
        {"runId": 7},
        {"revision": -1},
        {"metrics": None},
        {"metrics": [{"index": "0"}]},
        {"case": []},
        {"turnRevisions": [1.5]},
        {"known": {"0": []}},
        {"attempt": True},
    ],
)
def test_what_is_no_job_is_a_dead_letter(body: dict[str, Any]) -> None:
    record = changed(encode_job(job(), producer_id="p", time=NOON), **body)

    with pytest.raises(RecordError) as raised:
        decode_job(record)

    assert raised.value.reason is Reason.INVALID_JOB


def test_a_result_comes_back_as_it_was() -> None:
    sent = result(SCORE)

    found = decode_result(encode_result(sent, time=NOON))

    assert (found.of, found.worker, found.rows["scores"]) == (OF, "w", [SCORE])
    assert from_wire(found, {0: "m"}).scores.rows == 1


@pytest.mark.parametrize(
    "rows",
    [
        {"scores": []},
        {"scores": [SCORE, SCORE]},
        {"scores": [("app", "set", "other", *SCORE[3:])]},
        {"scores": [(*SCORE[:3], 4, *SCORE[4:])]},
        {"scores": [(*SCORE[:5], "1.0", *SCORE[6:])]},
        {"scores": [(*SCORE[:6], "great", *SCORE[7:])]},
        {"scores": [(*SCORE[:8], 2**80)]},
        {"scores": [(*SCORE[:8], 2**31)]},
        {"scores": [(*SCORE[:8], -2)]},
        {"scores": [SCORE], "turnScores": [[1, 2]]},
        {"scores": [SCORE], "votes": [list(SCORE)]},
        {"scores": [SCORE], "calls": [[]]},
    ],
)
def test_rows_that_do_not_fit_the_job_are_refused(rows: dict[str, Any]) -> None:
    with pytest.raises(RecordError) as raised:
        from_wire(Result("j", 1, "live-1", OF, "w", "0.1", rows), {0: "m"})

    assert raised.value.reason is Reason.INVALID_RESULT
