"""One agent loop of the OpenAI Agents SDK, fed by the trace processor or the run hooks.

It reads the items of OpenAI's responses and does not depend on how they were captured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaltap.recorder.conventions.messages import context_of, last_user_text, since_user
from evaltap.recorder.observation import PAUSED, UNSEEN, Failure, RunStatus
from evaltap.recorder.run import ObservedRun
from evaltap.schemas.chat.evidence import decode
from evaltap.schemas.chat.media import MediaPart
from evaltap.schemas.chat.messages import Answer
from evaltap.schemas.chat.messages import Call as StatedCall
from evaltap.schemas.chat.shapes import read_messages


@dataclass(slots=True)
class Call:
    """A tool call requested by a model, with its raw arguments."""

    call_id: str
    name: str
    arguments: str
    key: str = ""
    """Its key in the run."""


@dataclass(slots=True)
class Loop:
    """The loop of a turn, or of an agent used as a tool in it (`parent`)."""

    run: ObservedRun
    parent: str | None = None
    pending: list[Call] = field(default_factory=list)
    """Calls whose result has not arrived."""
    failure: Failure | None = None
    """The failure reported by the last agent, used instead of the exception."""
    _unasked: list[tuple[str, object]] = field(default_factory=list)
    """Names and arguments of calls made before any model was called."""
    _has_begun: bool = False

    def record_input(self, given: Any, instructions: object = None) -> None:
        """Record a model's input: instructions, the user's message, handoff results."""
        items = [given] if isinstance(given, str) else list(given or ())
        if self.parent is None:
            self.run.context_message(instructions)
            self._record_system_messages(items)
            if not self.run.has_user_message:
                self._record_user_message(items)
            if not self._has_begun:
                self._has_begun = True
                self._record_given(items)
        # The last result counts: an earlier call may have the same id.
        for item in reversed(items) if self.pending else ():
            if isinstance(item, Mapping) and item.get("type") == "function_call_output":
                self._answered(str(item.get("call_id")), item.get("output"))
            elif isinstance(item, Mapping) and item.get("role") == "tool":
                self._answered(str(item.get("tool_call_id")), item.get("content"))

    def _record_user_message(self, items: Sequence[object]) -> None:
        """Record the last message of the user, and what precedes it as history."""
        for place in reversed(range(len(items))):
            if (found := last_user_text(read_messages([items[place]]))) is not None:
                self.run.history(items[:place], _history_message)
                self.run.user_message(found.value, found.media)
                return

    def _record_given(self, items: Sequence[object]) -> None:
        """Record the calls that a run begins with, because it goes on after an approval."""
        given = since_user(read_messages(items))
        parts = [part for message in given for part in message.parts]
        answers = {part.call_id: part.result for part in parts if isinstance(part, Answer)}
        for call in parts:
            if not isinstance(call, StatedCall) or call.call_id is None:
                continue
            self.run.resumed = True
            name = call.name or ""
            arguments = call.arguments.value if call.arguments is not None else UNSEEN
            if (name, arguments) in self._unasked:
                self._unasked.remove((name, arguments))
                continue
            key = self.run.tool_called(call.call_id, name, arguments, is_given=True)
            if (result := answers.get(call.call_id)) is not None:
                self.run.tool_returned(key, result.value)

    def made_unasked(self, name: str, raw_arguments: str | None) -> None:
        """Note a call that no model requested: if none was called yet, the run goes on after an approval."""
        if not self._has_begun:
            self.run.resumed = True
            self._unasked.append((name, arguments_of(raw_arguments or "")))

    def end(self) -> None:
        """End the turn, as the last agent said; without an answer it may wait for the result of a call."""
        has_paused = self.failure is None and self.run.is_waiting
        status: RunStatus = "ok" if self.failure is None else "error"
        self.run.end(status, self.failure, PAUSED if has_paused else "run_ended")

    def _record_system_messages(self, items: Sequence[object]) -> None:
        """Record the system messages, which precede all others."""
        for item in items:
            if not isinstance(item, Mapping) or item.get("role") not in ("system", "developer"):
                return
            for text in context_of(read_messages([item])):
                self.run.context_message(text.value)

    def record_output(self, items: Iterable[Any], agent: str | None) -> None:
        """Record a response's output items."""
        calls: list[Call] = []
        words: list[str] = []
        thoughts: list[str] = []
        for item in items:
            if item.type == "function_call":
                calls.append(Call(item.call_id, item.name, item.arguments))
            elif item.type == "message":
                words += [part.text for part in item.content if part.type == "output_text"]
            elif item.type == "reasoning":
                sections = [*(item.summary or ()), *(getattr(item, "content", None) or ())]
                thoughts += [part.text for part in sections]
        self.record_message(
            "".join(words) if words else None, calls, agent, reasoning="\n".join(thoughts) or None
        )

    def record_message(
        self,
        words: str | None,
        calls: Sequence[Call],
        agent: str | None,
        parts: Sequence[MediaPart] = (),
        reasoning: str | None = None,
    ) -> None:
        """Record a model's message and the calls it requests."""
        if self.parent is None:
            self.run.agent_message(words, agent, final=not calls, parts=parts, reasoning=reasoning)
        for call in calls:
            self.pending.append(call)
            call.key = self.run.tool_called(
                call.call_id,
                call.name,
                arguments_of(call.arguments),
                agent=agent,
                parent=self.parent,
            )

    def claim(self, name: str, raw_arguments: str | None) -> str | None:
        """Return the key of the call being executed and remove it from the pending ones.

        Matches by name and arguments, otherwise by name, in the model's order.
        """
        named = [call for call in self.pending if call.name == name]
        same = [call for call in named if call.arguments == raw_arguments]
        if (found := next(iter(same or named), None)) is None:
            return None
        self.pending.remove(found)
        return found.key

    def _answered(self, call_id: str, output: object) -> None:
        for call in [call for call in self.pending if call.call_id == call_id]:
            self.pending.remove(call)
            self.run.tool_returned(call.key, output)


def _history_message(item: object) -> tuple[str, object]:
    """Return role and text of an item of the preceding conversation."""
    for message in read_messages([item]):
        if message.text is not None:
            return message.role, message.text.value
    return "", None


def arguments_of(raw_arguments: str) -> object:
    """Return the parsed arguments; text that is not JSON is returned as the model wrote it."""
    decoded = decode(raw_arguments)
    return raw_arguments if decoded.flaw else decoded.value
