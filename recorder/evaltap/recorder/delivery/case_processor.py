"""From the assembler's case to the record: sample, withhold, redact, truncate, encode."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.copying import cut, readable, shorten
from evaltap.recorder.delivery.case_ids import CaseIds
from evaltap.recorder.faults import DropCaseError
from evaltap.recorder.privacy.policy import withhold_content
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import Reason, RecordError, WireRecord, encode_case, recording_name

_SHRINKING = (16_384, 4_096, 1_024, 256)
"""Field limits in bytes, tried in turn when a case as a whole is too large."""


class CaseProcessor:
    """Turns cases into records; the order of steps is fixed, so nothing private is ever written.

    `redactor` is called once, for the first case, because creating one may read a key from disk.
    """

    def __init__(
        self,
        config: RecorderConfig,
        redactor: Callable[[], Redactor | None],
        ids: CaseIds | None = None,
    ) -> None:
        self._config = config
        self._ids = ids or CaseIds(None, None)
        self._make_redactor = redactor
        self._redactor: Redactor | None = None
        self._redactor_made = False
        self._sampler = config.outcome_sampler()
        self._stated = _stated(config)

    def process(self, case: CaseData) -> CaseData:
        """Return the case ready to write; raises DropCaseError. Does not modify the argument."""
        processed = self.described(case)
        if not self._sampler.is_idle and not is_trial(processed):
            decision = self._sampler.decide(processed)
            if not decision.kept:
                raise DropCaseError(decision.reason)
            processed["source"] = {
                **processed.get("source", {}),
                "samplingReason": decision.reason,
                "inclusionProbability": decision.probability,
            }
        return self.private(processed)

    def private(self, case: CaseData) -> CaseData:
        """Return the case without anything that must not be written; raises DropCaseError."""
        if not self._config.capture_content:
            case = withhold_content(case)
        if (redactor := self._redactor_of()) is None:
            return case
        try:
            redacted = redactor(case)
            private = None if redacted is None else redacted[0]
        except BaseException as error:  # see Worker.run
            # Fail closed: never write what could not be redacted.
            raise DropCaseError("redaction_failed", error) from error
        if private is None:
            raise DropCaseError("redactor")
        return private

    def _redactor_of(self) -> Redactor | None:
        if not self._redactor_made:
            self._redactor = self._make_redactor()
            self._redactor_made = True
        return self._redactor

    def process_feedback(self, feedback: Feedback) -> Feedback:
        """Return the feedback ready to write; raises DropCaseError.

        The comment follows the policy for user content, the correction that for answers, and
        `given_by` that for users. Ids are treated like those of the turn, so that both still join.
        """
        described = self.described(_case_of(feedback), recalled=True)
        if feedback.positive is False:
            self._sampler.note_negative(described["evalId"])
        processed = self.private(described)
        (turn,) = processed["actualConversation"]
        session, ids = processed.get("sessionInput") or {}, turn.get("telemetry")
        if ids is None:
            raise DropCaseError("redactor")
        recording = recording_name(self._stated.get("version"), self._stated.get("run"))
        return replace(
            feedback,
            recording=recording,
            feedback_id=ids["feedbackId"],
            trace_id=ids["traceId"],
            name=ids["name"],
            invocation_id=turn["invocationId"],
            app_name=session.get("appName") or "",
            eval_id=processed["evalId"],
            eval_set_id=processed["evalSetId"],
            comment=_text(turn, "userContent"),
            correction=_text(turn, "finalResponse"),
            given_by=session.get("userId") or "",
        )

    def case_of(self, feedback: Feedback) -> str:
        """Return the id of the case that feedback is about; raises DropCaseError."""
        return str(self.described(_case_of(feedback), recalled=True)["evalId"])

    def process_unreadable(self, record: WireRecord, detail: str) -> tuple[WireRecord, str]:
        """Return an unreadable message and the reason, both safe to keep.

        Text is redacted as content. Binary data, and content that may not be kept verbatim, is
        replaced by its length and digest: enough to find it at its source.
        """
        if self._redactor_of() is None and self._config.capture_content:
            return record, detail
        headers = tuple((name, self._safe_bytes(value) or b"") for name, value in record.headers)
        kept = WireRecord(self._safe_bytes(record.key), self._safe_bytes(record.value), headers)
        return kept, (self._safe_bytes(detail.encode()) or b"").decode()

    def _safe_bytes(self, value: bytes | None) -> bytes | None:
        if not value:
            return value
        note = f"[REDACTED:content] {len(value)} bytes, sha256 {sha256(value).hexdigest()}".encode()
        if not self._config.capture_content or self._config.redaction_policy:
            return note
        try:
            redacted = self.private({"content": value.decode()})
        except (UnicodeDecodeError, DropCaseError):
            return note
        return str(redacted["content"]).encode()

    def encode(self, case: CaseData, *, producer_id: str, seq: int, time: datetime) -> WireRecord:
        """Return the record of a processed case, truncated if necessary; raises DropCaseError."""
        for limit in (0, *_SHRINKING):
            candidate = shortened_case(case, limit) if limit else case
            try:
                return encode_case(
                    candidate,
                    producer_id=producer_id,
                    seq=seq,
                    time=time,
                    max_bytes=self._config.case_max_bytes,
                )
            except RecordError as error:
                if error.reason is Reason.UNDECODABLE:
                    case = readable(case)
                elif error.reason is not Reason.TOO_LARGE:
                    raise DropCaseError(str(error.reason), error) from error
        raise DropCaseError("too_large")

    def described(self, case: CaseData, *, recalled: bool = False) -> CaseData:
        """Add what the configuration specifies: application, service, recorded version, and ids.

        `recalled`: the ids of the session's latest turn, for feedback.  Raises DropCaseError.
        """
        config = self._config
        session = dict(case.get("sessionInput") or {})
        source = dict(case.get("source") or {})
        if config.app_name and not session.get("appName"):
            session["appName"] = config.app_name
        if config.service and not source.get("service"):
            source["service"] = config.service
        tags = dict.fromkeys([*source.get("tags", ()), *self._stated.get("tags", ())])
        source.update({**self._stated, **({"run": source["run"]} if source.get("run") else {})})
        if tags:
            source["tags"] = [*tags]
        described = {**case, "source": source, "sessionInput": session}
        if not source:
            del described["source"]
        return self._ids.named(described, recalled=recalled)


def is_trial(case: CaseData) -> bool:
    """Return whether an experiment ran this turn; no sampling drops it."""
    return "trial" in (case.get("source") or {})


def _stated(config: RecorderConfig) -> JsonObject:
    """Return the `source` fields that the settings override in every turn."""
    tags = [tag for part in config.tags.split(",") if (tag := part.strip())]
    stated = {
        "agentName": config.agent_name,
        "version": config.version,
        "environment": config.environment,
        "tags": tags,
        "run": config.run,
    }
    return {name: value for name, value in stated.items() if value}


def _case_of(feedback: Feedback) -> CaseData:
    """Return feedback in the form of a case, so that the policy for cases applies to it."""
    comment = {"role": "user", "content": feedback.comment}
    correction = {"role": "assistant", "content": feedback.correction}
    turn = {
        "invocationId": feedback.invocation_id,
        "userContent": comment,
        "finalResponse": correction,
        "telemetry": {
            "traceId": feedback.trace_id,
            "feedbackId": feedback.feedback_id,
            "name": feedback.name,
        },
    }
    session = {"appName": feedback.app_name, "userId": feedback.given_by}
    return {
        "evalId": feedback.eval_id,
        "evalSetId": feedback.eval_set_id,
        "sessionInput": {name: value for name, value in session.items() if value},
        "actualConversation": [
            {
                name: one
                for name, one in turn.items()
                if not isinstance(one, dict) or one.get("content") != ""
            }
        ],
    }


def _text(turn: JsonObject, field: str) -> str:
    content = (turn.get(field) or {}).get("content")
    return content if isinstance(content, str) and field not in turn.get("capture", {}) else ""


def shortened_case(case: CaseData, limit: int) -> CaseData:
    """Return the case with each field of its turn cut to about `limit` bytes and marked as truncated."""
    turns = [_shortened_turn(turn, limit) for turn in case["actualConversation"]]
    return {**case, "actualConversation": turns}


def _shortened_turn(turn: JsonObject, limit: int) -> JsonObject:
    shorter: JsonObject = {}
    for field in ("userContent", "finalResponse"):
        message = turn.get(field)
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            shorter[field] = {**message, "content": cut(message["content"], limit)[0]}
            if isinstance(thoughts := message.get("reasoning_content"), str):
                shorter[field]["reasoning_content"] = cut(thoughts, limit)[0]
            if parts := message.get("content_parts"):
                shorter[field]["content_parts"] = shorten(parts, limit * 4)
    for field in ("intermediateResponses", "contextMessages", "state"):
        if turn.get(field):
            shorter[field] = shorten(turn[field], limit * 4)
    shortened = _marked(turn, shorter)
    if turn.get("tools"):
        shortened["tools"] = [_shortened_tool(tool, limit) for tool in turn["tools"]]
    return shortened


def _shortened_tool(tool: JsonObject, limit: int) -> JsonObject:
    fields = ("arguments", "result")
    return _marked(tool, {name: shorten(tool[name], limit) for name in fields if name in tool})


def _marked(whole: JsonObject, shorter: JsonObject) -> JsonObject:
    """Return the shortened object with the changed fields marked as truncated."""
    cut_fields = {name: "truncated" for name, value in shorter.items() if value != whole[name]}
    if not cut_fields:
        return dict(whole)
    return {**whole, **shorter, "capture": {**whole.get("capture", {}), **cut_fields}}
