"""Remove the content of a case and keep its structure, for teams that may not store conversations."""

from evaltap.recorder.privacy.policy import TOOL_FIELDS, TURN_FIELDS, WITHHELD
from evaltap.schemas.data import CaseData, JsonObject


def withhold_content(case: CaseData) -> JsonObject:
    """Return the case without its content: structure, names, times and numbers stay.

    For teams that may not store conversations. Removed fields are marked as redacted, so that a
    metric that needs them reports it instead of scoring an empty text.
    """
    stripped = {
        name: value
        for name, value in case.items()
        if name not in ("contextMessages", "conversation", "conversationScenario")
    }
    if isinstance(session := case.get("sessionInput"), dict):
        stripped["sessionInput"] = {key: one for key, one in session.items() if key != "state"}
    stripped["actualConversation"] = [
        _without(turn, TURN_FIELDS, messages=True) for turn in case.get("actualConversation", ())
    ]
    for turn in stripped["actualConversation"]:
        if "tools" in turn:
            turn["tools"] = [_without(tool, TOOL_FIELDS, messages=False) for tool in turn["tools"]]
        if error := turn.get("telemetry", {}).get("error"):
            turn["telemetry"] = {**turn["telemetry"], "error": _withheld_error(error)}
    return stripped


def _without(part: JsonObject, fields: tuple[str, ...], *, messages: bool) -> JsonObject:
    kept = {name: value for name, value in part.items() if name not in fields}
    taken = [name for name in fields if part.get(name) is not None]
    if messages and "userContent" in taken:
        # Other tools require a user message; this one explains why it has no content.
        kept["userContent"] = {"role": "user", "content": WITHHELD}
    if "error" in taken:
        kept["error"] = _withheld_error(part["error"])
    if taken:
        kept["capture"] = {**part.get("capture", {}), **dict.fromkeys(taken, "redacted")}
    return kept


def _withheld_error(error: object) -> JsonObject:
    kept = {"type": error["type"]} if isinstance(error, dict) and error.get("type") else {}
    return {**kept, "message": WITHHELD}
