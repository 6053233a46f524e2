"""The scripted agents of the rows."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from evaltap.experiments.service import AgentCall
from evaltap.recorder.answering import RUN, TOOL_ANSWERS
from live_rows.comparing import Row


class ScriptedAgent:
    """Does what a script says, and notes its calls."""

    def __init__(self, script: Row, prefix: str = "inv") -> None:
        self.calls: list[AgentCall] = []
        self._script, self._prefix = script, prefix
        self._seen: Counter[str] = Counter()

    def __call__(self, call: AgentCall) -> list[Row]:
        self.calls.append(call)
        number = len(self.calls)
        behaviours = (self._script.get("turns") or {}).get(call.text)
        if behaviours:
            behaviour = behaviours[min(self._seen[call.text], len(behaviours) - 1)]
        else:
            behaviour = self._script.get("default", {"reply": f"echo: {call.text}"})
        self._seen[call.text] += 1
        if behaviour.get("runError"):
            raise RuntimeError(behaviour["runError"])
        return [*_events(behaviour, f"{self._prefix}-{number}")]


def _events(behaviour: Row, invocation_id: str) -> Iterator[Row]:
    def event(message: Row, **more: Any) -> Row:
        return {"invocationId": invocation_id, "choices": [{"message": message}], **more}

    for tool in behaviour.get("tools") or ():
        arguments = tool.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        call = {"id": tool["id"], "function": {"name": tool["name"], "arguments": text}}
        yield event({"role": "assistant", "tool_calls": [call]})
        answers = TOOL_ANSWERS.get()
        result = RUN if answers is None else answers.answer(tool["name"], text)
        given = tool.get("result") if result is RUN else result
        yield event(
            {"role": "tool", "tool_id": tool["id"], "content": json.dumps(given)},
            object="tool.response",
        )
    if behaviour.get("error"):
        yield {
            "invocationId": invocation_id,
            "object": "error",
            "done": True,
            "error": behaviour["error"],
        }
    if behaviour.get("reply") is not None:
        yield event({"role": "assistant", "content": behaviour["reply"]}, done=True)
    yield {"invocationId": invocation_id, "object": "runner.completion", "done": True}


class ScriptedUser:
    """The model of a simulated user: one reply for each call."""

    def __init__(self, replies: list[Any]) -> None:
        self.calls: list[AgentCall] = []
        self._replies = replies

    def __call__(self, call: AgentCall) -> Any:
        self.calls.append(call)
        number = len(self.calls) - 1
        reply = self._replies[number] if number < len(self._replies) else ""
        if isinstance(reply, dict):
            if reply.get("runError"):
                raise RuntimeError(reply["runError"])
            return reply["events"]
        return reply
