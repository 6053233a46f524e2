"""Select the text that is scored: a message of the turn, or the text at a path in the turn or its case."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from evaltap.evaluator.cases.json_path import follow, read_path
from evaltap.evaluator.cases.turn import Case, Turn, absent_state
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import MissingEvidence
from evaltap.schemas.text import did_you_mean_one_of

TARGETS: Final = ("finalResponse", "userContent")
_OF_A_CALL: Final = ("name", "arguments", "result")


@dataclass(frozen=True, slots=True)
class TextAt:
    """Where a text is found: in a field of the turn, or at the end of a path that begins with a field.

    A path is followed in the turn if the turn has its first key, otherwise in the case.
    """

    field: str
    path: str = ""
    steps: Sequence[str | int] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The message without which a turn has no such text; empty if it is in another field."""
        return (self.field,) if self.field in TARGETS else ()

    def of(self, turn: Turn, case: Case) -> str | MissingEvidence:
        """Return the text, values other than texts as JSON, or why there is none."""
        if not self.steps:
            return (turn.final_text if self.field == TARGETS[0] else turn.user_text) or ""
        data = turn.data
        inside = self.field in data
        if inside and (reason := turn.lacks(self.field) or self._hidden_call(turn)):
            return MissingEvidence(reason)
        try:
            value = follow(data if inside else case, self.steps)
        except ValueError as error:
            return MissingEvidence(f"{self.path}: {error}")
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    def _hidden_call(self, turn: Turn) -> str | None:
        """Return which part of a tool call on the path is not usable as evidence."""
        if self.field != "tools":
            return None
        for place, call in enumerate(turn.tools):
            if not call or (len(self.steps) > 1 and self.steps[1] != place):
                continue
            for part in self.steps[2:3] or _OF_A_CALL:
                if state := absent_state(call, str(part)):
                    return f"{part} of tool {call.get('name') or ''} is {state}"
        return None


def text_at(given: str, key: str) -> TextAt:
    """Return where the text is that a setting names; raise MetricError for an unknown place."""
    if given.startswith("$"):
        try:
            steps = read_path(given)
        except ValueError as error:
            raise MetricError(f"{key}: {error}") from None
        if not steps or not isinstance(steps[0], str):
            raise MetricError(
                f"{key} is '{given}'; expected a key first, e.g. $.finalResponse.content"
            )
        return TextAt(steps[0], given, steps)
    target = given or TARGETS[0]
    if target not in TARGETS:
        hint = did_you_mean_one_of(target, TARGETS)
        raise MetricError(f"{key} is '{target}'; {hint}, or a path such as $.tools[0].result")
    return TextAt(target)
