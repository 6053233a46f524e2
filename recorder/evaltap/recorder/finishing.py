"""From the assembler's case to the record: sample, withhold, redact, cut, encode."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.payload import cut, readable, shorten
from evaltap.recorder.pseudonym import derived_key, key_path, shared_key
from evaltap.recorder.redaction import PatternRedactor, Redactor, withhold_content
from evaltap.schemas.errors import InputError
from evaltap.schemas.feedback import Feedback
from evaltap.schemas.record import Reason, RecordError, WireRecord, encode_case

CaseData = dict[str, Any]

_SHRINKING = (16_384, 4_096, 1_024, 256)
"""Bytes for each field, tried in turn when a case as a whole is too large."""


class Dropped(Exception):
    """A case is not to be recorded; the reason is what is counted."""

    def __init__(self, reason: str, cause: Exception | None = None) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(reason)


class Finisher:
    """Turns cases into records; the order is fixed, so that nothing private is ever written.

    `redactor` is asked for once, at the first case, since making one may read a key from disk.
    """

    def __init__(self, config: RecorderConfig, redactor: Callable[[], Redactor | None]) -> None:
        self._config = config
        self._make_redactor = redactor
        self._redactor: Redactor | None = None
        self._made = False
        self._sampler = config.outcome_sampler()

    def finish(self, case: CaseData) -> CaseData:
        """Return the case as it may be written; raises Dropped.  The argument is not changed."""
        finished = self._described(case)
        if not self._sampler.is_idle:
            decision = self._sampler.decide(finished)
            if not decision.kept:
                raise Dropped(decision.reason)
            finished["source"] = {
                **finished.get("source", {}),
                "samplingReason": decision.reason,
                "inclusionProbability": decision.probability,
            }
        return self._private(finished)

    def _private(self, case: CaseData) -> CaseData:
        """Return the case without what must not be written; raises Dropped."""
        if not self._config.capture_content:
            case = withhold_content(case)
        if not self._made:
            self._redactor = self._make_redactor()
            self._made = True
        if self._redactor is None:
            return case
        try:
            redacted = self._redactor(case)
        except Exception as error:
            # Closed on failure: what could not be redacted is not written.
            raise Dropped("redaction_failed", error) from error
        if redacted is None:
            raise Dropped("redactor")
        return redacted[0]

    def finish_feedback(self, feedback: Feedback) -> Feedback:
        """Return the feedback as it may be written; raises Dropped.

        The comment is treated as what a user says, the correction as an answer, and who gave it as
        the user, each by its policy.
        """
        if feedback.positive is False:
            self._sampler.note_negative(feedback.eval_id)
        said = {"role": "user", "content": feedback.comment}
        right = {"role": "assistant", "content": feedback.correction}
        turn = {"invocationId": feedback.invocation_id, "userContent": said, "finalResponse": right}
        session = {"appName": feedback.app_name, "userId": feedback.given_by}
        case = {
            "evalId": feedback.eval_id,
            "evalSetId": feedback.eval_set_id,
            "sessionInput": {name: value for name, value in session.items() if value},
            "actualConversation": [
                {
                    name: one
                    for name, one in turn.items()
                    if not isinstance(one, dict) or one["content"]
                }
            ],
        }
        finished = self._private(self._described(case))
        (turn,) = finished["actualConversation"]
        session = finished.get("sessionInput") or {}
        return replace(
            feedback,
            app_name=session.get("appName") or "",
            eval_id=finished["evalId"],
            eval_set_id=finished["evalSetId"],
            comment=_words(turn, "userContent"),
            correction=_words(turn, "finalResponse"),
            given_by=session.get("userId") or "",
        )

    def encode(self, case: CaseData, *, producer_id: str, seq: int, time: datetime) -> WireRecord:
        """Return the record of a finished case, shortened where it must be; raises Dropped."""
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
                    raise Dropped(str(error.reason), error) from error
        raise Dropped("too_large")

    def _described(self, case: CaseData) -> CaseData:
        """Add what the configuration knows: application and service."""
        config = self._config
        session = dict(case.get("sessionInput") or {})
        source = dict(case.get("source") or {})
        if config.app_name and not session.get("appName"):
            session["appName"] = config.app_name
        if config.service and not source.get("service"):
            source["service"] = config.service
        described = {**case, "source": source, "sessionInput": session}
        if not source:
            del described["source"]
        return described


def _words(turn: dict[str, Any], field: str) -> str:
    content = (turn.get(field) or {}).get("content")
    return content if isinstance(content, str) and field not in turn.get("capture", {}) else ""


def shortened_case(case: CaseData, limit: int) -> CaseData:
    """Return the case with each field of its turn cut to about `limit` bytes and marked so."""
    turns = [_shortened_turn(turn, limit) for turn in case["actualConversation"]]
    return {**case, "actualConversation": turns}


def _shortened_turn(turn: dict[str, Any], limit: int) -> dict[str, Any]:
    shortened = dict(turn)
    capture = dict(turn.get("capture", {}))
    for field in ("userContent", "finalResponse"):
        message = turn.get(field)
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            content, was_cut = cut(message["content"], limit)
            if was_cut:
                shortened[field] = {**message, "content": content}
                capture[field] = "truncated"
    for field in ("intermediateResponses", "contextMessages"):
        if turn.get(field):
            shortened[field] = shorten(turn[field], limit * 4)
            if shortened[field] != turn[field]:
                capture[field] = "truncated"
    if capture:
        shortened["capture"] = capture
    if turn.get("tools"):
        shortened["tools"] = [_shortened_tool(tool, limit) for tool in turn["tools"]]
    return shortened


def _shortened_tool(tool: dict[str, Any], limit: int) -> dict[str, Any]:
    shortened = dict(tool)
    capture = dict(tool.get("capture", {}))
    for field in ("arguments", "result"):
        if field in tool:
            shortened[field] = shorten(tool[field], limit)
            if shortened[field] != tool[field]:
                capture[field] = "truncated"
    if capture:
        shortened["capture"] = capture
    return shortened


def configured_redactor(config: RecorderConfig) -> Redactor | None:
    """Return the redactor that the configuration asks for, with the key of its log.

    Raises InputError when there is no key and none can be made.
    """
    if not config.redaction or config.log is None:
        return None
    if config.redaction_key is not None:
        return PatternRedactor.configured(config, derived_key(config.redaction_key))
    try:
        return PatternRedactor.configured(config, shared_key(key_path(config.log)))
    except OSError as error:
        raise InputError(
            f"the redaction key beside {config.log} cannot be used ({error.strerror});"
            " make the folder writable or set EVALTAP_REDACTION_KEY"
        ) from error
