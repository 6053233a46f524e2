"""Feedback of a user or reviewer on a turn, given during it or later."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evaltap.schemas.data import JsonObject


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on a turn, or on the whole session when neither turn nor trace is given.

    `positive` is thumbs up or down, None when neither; `score` is on the scale defined by its
    `name`; `correction` is what the answer should have been.
    """

    feedback_id: str
    eval_set_id: str
    eval_id: str
    time: datetime
    app_name: str = ""
    invocation_id: str = ""
    trace_id: str = ""
    name: str = ""
    positive: bool | None = None
    score: float | None = None
    comment: str = ""
    correction: str = ""
    given_by: str = ""
    recording: str = ""
    """The run or version of the agent, as its recorder knows it."""

    def data(self) -> JsonObject:
        """Return it as JSON data, with the file formats' names, without empty fields."""
        written = {
            "feedbackId": self.feedback_id,
            "evalSetId": self.eval_set_id,
            "evalId": self.eval_id,
            "appName": self.app_name,
            "invocationId": self.invocation_id,
            "traceId": self.trace_id,
            "name": self.name,
            "positive": self.positive,
            "score": self.score,
            "comment": self.comment,
            "correction": self.correction,
            "givenBy": self.given_by,
            "recording": self.recording,
        }
        return {key: value for key, value in written.items() if value not in (None, "")}


_TEXTS = {
    "appName": "app_name",
    "invocationId": "invocation_id",
    "traceId": "trace_id",
    "name": "name",
    "comment": "comment",
    "correction": "correction",
    "givenBy": "given_by",
    "recording": "recording",
}


def feedback_from(data: Mapping[str, Any], time: datetime | None) -> Feedback:
    """Return feedback from its JSON data; raises ValueError with the mistake."""
    texts = {key: data.get(key, "") for key in ("feedbackId", "evalId", "evalSetId", *_TEXTS)}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{key} is {value!r:.40}; expected a string")
    for key in ("feedbackId", "evalId"):
        if not texts[key]:
            raise ValueError(f"{key} is missing; expected a non-empty string")
    positive, score = data.get("positive"), data.get("score")
    if positive is not None and not isinstance(positive, bool):
        raise ValueError(f"positive is {positive!r:.40}; expected true or false")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise ValueError(f"score is {score!r:.40}; expected a number")
    return Feedback(
        texts["feedbackId"],
        texts["evalSetId"] or texts["evalId"],
        texts["evalId"],
        time or datetime.now(UTC),
        positive=positive,
        score=score,
        **{name: texts[key] for key, name in _TEXTS.items()},
    )
