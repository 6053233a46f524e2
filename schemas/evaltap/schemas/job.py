"""Work on the log: a job asks a worker for scores, a result answers it, a score tells everybody.

A *job* is one revision of a case under the metrics that it lacks: whatever a worker needs stands in
it, besides the keys of judges.  A *result* holds the rows that scoring it made, as they are stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from evaltap.schemas.envelope import (
    MAX_VALUE_BYTES,
    Reason,
    RecordError,
    WireRecord,
    digest_of,
    dump,
    envelope,
    open_envelope,
)
from evaltap.schemas.record import case_id

JOB_TYPE = "evaltap.job"
RESULT_TYPE = "evaltap.result"
SCORE_TYPE = "evaltap.score"
JOBS_SUFFIX = ".jobs"
RESULTS_SUFFIX = ".results"
"""What the names of topics beside that of the cases end with."""
ROW_KINDS = ("scores", "turnScores", "votes", "calls")
"""The tables that a result has rows for."""
SHORT_TEXT = 2_000
"""Characters that are left of a text which has to be cut for its record to fit."""


@dataclass(frozen=True, slots=True)
class CaseRevision:
    """The names of a case and the number of its revision."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What names the case, whatever its revision."""
        return self.app_name, self.eval_set_id, self.eval_id


@dataclass(frozen=True, slots=True)
class JobMetric:
    """A metric that a job asks for: its number in the run, its digest, and itself without keys."""

    index: int
    digest: str
    metric: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One case revision, and the metrics to score it with."""

    run_id: str
    of: CaseRevision
    turn_revisions: tuple[int, ...]
    metrics: tuple[JobMetric, ...]
    case: Mapping[str, Any]
    """The assembled case, with the references that belong to it."""
    references: str = ""
    """Digest of the references, which is a part of the digests of the metrics."""
    known: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    """By a metric's number: (status, score, reason) of each turn that was scored before, else None."""
    attempt: int = 1

    @property
    def job_id(self) -> str:
        """The same for every attempt."""
        digests = sorted(metric.digest for metric in self.metrics)
        return digest_of(JOB_TYPE, self.run_id, *self.of.key, self.of.revision, *digests)


@dataclass(frozen=True, slots=True)
class Result:
    """What a worker made of a job; with a `refusal` there are no rows, and it says why."""

    job_id: str
    attempt: int
    run_id: str
    of: CaseRevision
    worker: str
    evaltap_version: str
    rows: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    refusal: str = ""


def encode_job(job: Job, *, producer_id: str, time: datetime) -> WireRecord:
    """Return the record of a job, keyed by its case; RecordError `too_large` when it does not fit."""
    body = {
        "jobId": job.job_id,
        "attempt": job.attempt,
        "runId": job.run_id,
        **_named(job.of),
        "turnRevisions": job.turn_revisions,
        "metrics": [
            {"index": one.index, "digest": one.digest, "metric": one.metric} for one in job.metrics
        ],
        "references": job.references,
        "known": [[number, list(turns)] for number, turns in job.known.items()],
        "case": job.case,
    }
    event_id = digest_of(JOB_TYPE, job.job_id, job.attempt)
    return _record(JOB_TYPE, event_id, job.of, body, producer_id, time)


def encode_result(result: Result, *, time: datetime) -> WireRecord:
    """Return the record of a result, keyed by its case; RecordError `too_large` when it does not fit."""
    body = {
        "jobId": result.job_id,
        "attempt": result.attempt,
        "runId": result.run_id,
        **_named(result.of),
        "worker": result.worker,
        "evaltapVersion": result.evaltap_version,
        "refusal": result.refusal,
        **result.rows,
    }
    # An answer given twice to one attempt is the same answer, whoever gave it.
    event_id = digest_of(RESULT_TYPE, result.job_id, result.attempt, result.refusal)
    return _record(RESULT_TYPE, event_id, result.of, body, result.worker, time)


def encode_score(
    of: CaseRevision, body: Mapping[str, Any], *, event_id: str, producer_id: str, time: datetime
) -> WireRecord:
    """Return the record of one stored score, keyed by its case; where it does not fit, its reason is cut.

    RecordError `too_large` when it does not fit even so.
    """
    whole = {**_named(of), **body}
    try:
        return _record(SCORE_TYPE, event_id, of, whole, producer_id, time)
    except RecordError as error:
        if error.reason is not Reason.TOO_LARGE:
            raise
        short = {**whole, "reason": cut_text(body.get("reason") or "")}
        return _record(SCORE_TYPE, event_id, of, short, producer_id, time)


def cut_text(text: str) -> str:
    """Return the beginning of a long text, and behind it how much was cut."""
    left_out = len(text) - SHORT_TEXT
    return f"{text[:SHORT_TEXT]}… ({left_out} characters cut)" if left_out > 0 else text


def decode_job(record: WireRecord) -> Job:
    """Return the job of a record; raise RecordError with the reason of its dead letter."""
    body = _body(record, JOB_TYPE, Reason.INVALID_JOB)
    try:
        return Job(
            run_id=_text(body["runId"]),
            of=_case_revision(body),
            turn_revisions=tuple(_whole(number) for number in body["turnRevisions"]),
            metrics=tuple(
                JobMetric(_whole(one["index"]), _text(one["digest"]), _object(one["metric"]))
                for one in body["metrics"]
            ),
            case=_object(body["case"]),
            references=_text(body["references"]),
            known={_whole(number): list(turns) for number, turns in body["known"]},
            attempt=_whole(body["attempt"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(Reason.INVALID_JOB, f"no job: {_told(error)}") from None


def decode_result(record: WireRecord) -> Result:
    """Return the result of a record; raise RecordError with the reason of its dead letter."""
    body = _body(record, RESULT_TYPE, Reason.INVALID_RESULT)
    try:
        return Result(
            job_id=_text(body["jobId"]),
            attempt=_whole(body["attempt"]),
            run_id=_text(body["runId"]),
            of=_case_revision(body),
            worker=_text(body["worker"]),
            evaltap_version=_text(body["evaltapVersion"]),
            rows={kind: [tuple(row) for row in body.get(kind) or ()] for kind in ROW_KINDS},
            refusal=_text(body["refusal"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(Reason.INVALID_RESULT, f"no result: {_told(error)}") from None


def _record(
    event_type: str,
    event_id: str,
    of: CaseRevision,
    body: Mapping[str, Any],
    producer_id: str,
    time: datetime,
) -> WireRecord:
    value = dump(body)
    if len(value) > MAX_VALUE_BYTES:
        raise RecordError(
            Reason.TOO_LARGE,
            f"the {event_type} is {len(value)} bytes, the limit is {MAX_VALUE_BYTES}",
        )
    key = case_id(of.eval_set_id, of.eval_id)
    headers = envelope(
        event_type=event_type,
        event_id=event_id,
        source=f"/evaltap/{quote(of.app_name, safe='')}",
        subject=quote(key, safe=""),
        time=time,
        producer_id=producer_id,
        value=value,
    )
    return WireRecord(key.encode(), value, headers)


def _named(of: CaseRevision) -> dict[str, Any]:
    return {
        "appName": of.app_name,
        "evalSetId": of.eval_set_id,
        "evalId": of.eval_id,
        "revision": of.revision,
    }


def _case_revision(body: Mapping[str, Any]) -> CaseRevision:
    app_name, eval_set_id, eval_id = (
        _text(body[name]) for name in ("appName", "evalSetId", "evalId")
    )
    return CaseRevision(app_name, eval_set_id, eval_id, _whole(body["revision"]))


def _body(record: WireRecord, event_type: str, reason: Reason) -> dict[str, Any]:
    body = open_envelope(record, (event_type,)).body
    if not isinstance(body, dict):
        raise RecordError(reason, f"the value is a JSON {type(body).__name__}; expected an object")
    return body


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"found {value!r:.40}; expected a string")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"found {value!r:.40}; expected a whole number, 0 or more")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"found {value!r:.40}; expected an object")
    return value


def _told(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
