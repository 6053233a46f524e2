"""Spans of the GenAI conventions, for tests of traces."""

import json
from typing import Any

OPERATION = "gen_ai.operation.name"


AGENT = {OPERATION: "invoke_agent", "gen_ai.agent.name": "support", "gen_ai.conversation.id": "s1"}


def told(*messages: dict[str, Any]) -> str:
    return json.dumps(messages)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


def chat(given: str, output: str | None) -> dict[str, Any]:
    made = {OPERATION: "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": given}
    return made if output is None else {**made, "gen_ai.output.messages": output}


def executed(name: str, **attributes: Any) -> dict[str, Any]:
    return {OPERATION: "execute_tool", "gen_ai.tool.name": name, **attributes}
