"""The events of an agent's run become a turn: what tRPC-Agent-Go captures, and the calls that it loses.

A call that came in parts is kept (the parts are joined by its id), and so is the result in an event that is
marked as done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evaltap.evaluator.cases.turn import run_failure
from evaltap.experiments.mocks.recorded import arguments_of, json_or_text
from evaltap.schemas.data import CaseData
from evaltap.schemas.formats.case import Invocation

COMPLETION: Final = "runner.completion"
"""The `object` of the event that ends a run."""

Event = Mapping[str, Any]
"""As JSON: `invocationId`, `object`, `is_partial`, `done`, `error`, `choices[{message, delta}]`,
`executionTrace`; or `turn`, the whole turn as in a case.
"""


@dataclass(frozen=True, slots=True)
class CapturedTurn:
    """What was seen of a turn, also if it has failed."""

    turn: CaseData
    error: str = ""
    """Why the turn failed; empty if it did not."""


def capture_turn(events: Iterable[Event | None], user_content: Mapping[str, Any]) -> CapturedTurn:
    """Return the turn that the events tell, for the user's message."""
    capture = TurnCapture(user_content)
    for event in events:
        capture.add(event)
    return capture.end()


@dataclass(slots=True)
class TurnCapture:
    """Takes the events of a run in order; `end` returns the turn."""

    user_content: Mapping[str, Any]
    _invocation_id: str = field(default="", init=False)
    _completed: Mapping[str, Any] | None = field(default=None, init=False)
    _finals: dict[str, Mapping[str, Any]] = field(default_factory=dict, init=False)
    """The last final response by invocation id, which may be empty."""
    _tools: list[dict[str, Any]] = field(default_factory=list, init=False)
    _newest: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    """The newest call by id."""
    _parts: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    """Calls by id of which only parts have come."""
    _errors: list[str] = field(default_factory=list, init=False)
    _trace: Any = field(default=None, init=False)  # JSON of the peer's run

    _whole: Mapping[str, Any] | None = field(default=None, init=False)

    def add(self, event: Event | None) -> None:
        """Take an event; null events are skipped."""
        if event is None:
            return
        if "turn" in event:
            self._whole = event["turn"]
            return
        has_completed = bool(event.get("done")) and event.get("object") == COMPLETION
        said = event.get("invocationId") or ""
        if said and (has_completed or not self._invocation_id):
            self._invocation_id = said
        if has_completed and event.get("executionTrace") is not None:
            self._trace = event["executionTrace"]
        if (message := final_message(event)) is not None:
            if has_completed:
                self._completed = message
            else:
                self._finals[said] = message
        if error := error_text(event):
            self._errors.append(f"event: {error}")
        elif event.get("is_partial"):
            self._take_parts(event)
        elif message is None:
            self._take_calls(event)
            self._take_results(event)

    def end(self) -> CapturedTurn:
        """Return the turn."""
        if self._whole is not None:
            whole = Invocation.model_validate({**self._whole, "userContent": self.user_content})
            return CapturedTurn(whole.model_dump(by_alias=True), run_failure(self._whole) or "")
        for call in [*self._parts]:
            self._complete(call)
        final = self._completed
        if final is None:
            final = self._finals.get(self._invocation_id, self._finals.get(""))
        turn: dict[str, Any] = {
            "invocationId": self._invocation_id,
            "userContent": self.user_content,
            "finalResponse": final,
            "tools": self._tools,
            "executionTrace": self._trace,
        }
        data = Invocation.model_validate(turn).model_dump(by_alias=True)
        return CapturedTurn(data, "\n".join(self._errors))

    def _take_calls(self, event: Event) -> None:
        for choice in _choices(event):
            message = choice.get("message") or {}
            calls = message.get("tool_calls") or (choice.get("delta") or {}).get("tool_calls")
            for call in calls or ():
                function = call.get("function") or {}
                call_id = call.get("id") or ""
                self._parts.pop(call_id, None)
                self._append(call_id, function.get("name") or "", function.get("arguments"))

    def _append(self, call_id: str, name: str, arguments: object) -> None:
        tool = {"id": call_id, "name": name, "arguments": arguments_of(arguments)}
        self._tools.append(tool)
        self._newest[call_id] = tool

    def _take_parts(self, event: Event) -> None:
        """Keep the parts of calls; one that comes whole later takes their place."""
        for choice in _choices(event):
            message, delta = choice.get("message") or {}, choice.get("delta") or {}
            for part in message.get("tool_calls") or delta.get("tool_calls") or ():
                function = part.get("function") or {}
                known = self._parts.setdefault(
                    part.get("id") or next(reversed(self._parts), ""), {"name": "", "arguments": ""}
                )
                known["name"] = function.get("name") or known["name"]
                text = function.get("arguments") or ""
                has_all = text.startswith(known["arguments"])
                known["arguments"] = text if has_all else known["arguments"] + text

    def _complete(self, call_id: str) -> None:
        part = self._parts.pop(call_id)
        if call_id not in self._newest:
            self._append(call_id, part["name"], part["arguments"])

    def _take_results(self, event: Event) -> None:
        if not _is_result(event):
            return
        for choice in _choices(event):
            message = choice.get("message") or {}
            call_id = message.get("tool_id") or (choice.get("delta") or {}).get("tool_id") or ""
            if call_id in self._parts:
                self._complete(call_id)
            if call_id not in self._newest:
                self._errors.append(f"tool result for the unknown call {call_id!r}")
                return
            self._newest[call_id]["result"] = json_or_text(message.get("content") or "")


def final_message(event: Event) -> Mapping[str, Any] | None:
    """Return the message of a final response: done, not partial, no tool's call or result."""
    if "turn" in event:
        whole: Mapping[str, Any] | None = event["turn"].get("finalResponse")
        return whole
    choices = _choices(event)
    if event.get("is_partial") or not event.get("done") or not choices:
        return None
    if _has_calls(choices[0]) or _is_result(event):
        return None
    return choices[0].get("message") or {}


def error_text(event: Event) -> str:
    """Return an event's error; empty if it has none."""
    error = event.get("error")
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("type") or "unknown")
    return str(error or "")


def _choices(event: Event) -> Sequence[Mapping[str, Any]]:
    return event.get("choices") or ()


def _has_calls(choice: Mapping[str, Any]) -> bool:
    return any((choice.get(part) or {}).get("tool_calls") for part in ("message", "delta"))


def _is_result(event: Event) -> bool:
    choices = _choices(event)
    return bool(choices) and any(
        (choices[0].get(part) or {}).get("tool_id") for part in ("message", "delta")
    )
