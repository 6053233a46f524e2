"""The content of a case without its recording (telemetry and ids of a run), and its hash."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from evaltap.schemas.data import CaseData, Json

_OF_A_RUN: Final = frozenset(
    {"telemetry", "creationTimestamp", "executionTrace", "intermediateResponses"}
)
_OF_A_CALL: Final = frozenset({"startTime", "durationMs"})
_CONTENT: Final = ("contextMessages", "conversation", "conversationScenario", "rubrics", "toolMock")


def plain_turns(turns: Sequence[CaseData | None]) -> list[CaseData]:
    """Return recorded turns in the form of a set: with numbered turns and calls, without telemetry."""
    return [plain_turn(turn, str(number)) for number, turn in enumerate(turns, start=1) if turn]


def plain_turn(turn: CaseData, name: str) -> CaseData:
    """Return a turn with another id, without anything that differs between recordings of the same turn."""
    tools = [tool for tool in turn.get("tools") or () if tool]
    names = {
        tool["id"]: str(number) for number, tool in enumerate(tools, start=1) if tool.get("id")
    }
    made = {key: value for key, value in turn.items() if key not in _OF_A_RUN}
    made["invocationId"] = name
    if tools:
        made["tools"] = [
            _plain_call(tool, str(number), names) for number, tool in enumerate(tools, start=1)
        ]
    error = (turn.get("telemetry") or {}).get("error")
    status = (turn.get("telemetry") or {}).get("status")
    if status in ("error", "incomplete"):
        # Without its status, a crashed run would be a different recording.
        made["telemetry"] = {"status": status, **({"error": error} if error else {})}
    return made


def _plain_call(tool: CaseData, name: str, names: Mapping[str, str]) -> CaseData:
    made = {key: value for key, value in tool.items() if key not in _OF_A_CALL}
    made["id"] = name
    for key in ("parentId", "after"):
        if isinstance(value := made.get(key), str) and value:
            made[key] = names.get(value, value)
        elif isinstance(value, list):
            made[key] = [names.get(one, one) for one in value]
    return made


def content_of(case: CaseData) -> dict[str, Json]:
    """Return the parts that identify a case: input, expectation, rubrics, context."""
    content: dict[str, Json] = {key: case[key] for key in _CONTENT if case.get(key)}
    if state := (case.get("sessionInput") or {}).get("state"):
        content["state"] = state
    if not case.get("conversation"):
        content["input"] = [
            {
                "userContent": (turn or {}).get("userContent"),
                "contextMessages": (turn or {}).get("contextMessages") or [],
            }
            for turn in case.get("actualConversation") or ()
        ]
    return content


def content_hash(case: CaseData) -> str:
    """Return the SHA-256 of the content; provenance, recordings and ids of cases are not included."""
    return hashlib.sha256(orjson.dumps(content_of(case), option=orjson.OPT_SORT_KEYS)).hexdigest()


def user_texts(case: CaseData) -> list[str]:
    """Return the user's messages, turn by turn."""
    turns = case.get("conversation") or case.get("actualConversation") or ()
    return [message_text((turn or {}).get("userContent")) for turn in turns]


def expected_turns(case: CaseData) -> list[CaseData]:
    """Return the expected turns, or otherwise the recorded ones."""
    turns = case.get("conversation") or case.get("actualConversation") or ()
    return [turn for turn in turns if turn]


def tool_path(turn: CaseData) -> str:
    """Return the names of the tools of a turn, in order."""
    return " > ".join(tool.get("name") or "" for tool in turn.get("tools") or () if tool)


def message_text(message: object) -> str:
    """Return the text of a message; empty without a message."""
    content = message.get("content") if isinstance(message, Mapping) else None
    return content if isinstance(content, str) else ""
