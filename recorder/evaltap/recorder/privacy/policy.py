"""The action for each field of content: `keep | hash | redact | drop`.

`redact`  personal data and secrets in the value become pseudonyms; the default
`hash`    the whole value becomes a pseudonym: equal values stay equal, but are unreadable
`drop`    the value is not recorded, and `capture` says so
`keep`    the value is recorded as it is

Arguments, results and state are hashed value by value, so that their keys remain comparable.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal, Self, cast

import orjson

from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.pseudonyms import Pseudonyms
from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.text import did_you_mean_one_of

Action = Literal["keep", "hash", "redact", "drop"]
ACTIONS: tuple[Action, ...] = ("keep", "hash", "redact", "drop")

WITHHELD = "[REDACTED:content]"
TURN_FIELDS = ("userContent", "finalResponse", "intermediateResponses", "contextMessages", "state")
TOOL_FIELDS = ("arguments", "result", "error", "stateDelta")
"""The fields of a turn and of a tool call that hold content."""
_OF_A_CALL = (("arguments", "toolArguments"), ("result", "toolResults"), ("stateDelta", "state"))
"""Fields of a tool call with the name of their policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPolicy:
    """One action per field; written as `userContent=hash,toolResults=drop`, or `metadata`.

    Field names are those of the file format; `FieldPolicy.parse` reads the written form.

    >>> policy = FieldPolicy.parse("userContent=hash,toolResults=drop")
    >>> policy.user_content, policy.tool_results, policy.final_response
    ('hash', 'drop', 'redact')
    """

    user_content: Action = "redact"
    final_response: Action = "redact"
    intermediate_responses: Action = "redact"
    context_messages: Action = "redact"
    tool_arguments: Action = "redact"
    tool_results: Action = "redact"
    error_messages: Action = "redact"
    state: Action = "redact"
    user_id: Action = "redact"

    def __post_init__(self) -> None:
        """Reject unknown actions."""
        for item in fields(self):
            action = getattr(self, item.name)
            if action not in ACTIONS:
                raise ConfigurationError(
                    f"redaction policy: {_camel(item.name)} is {action!r}; "
                    f"{did_you_mean_one_of(action, ACTIONS)}"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `field=action,...`; a leading `metadata` keeps only names, structure and hashes.

        Raises ConfigurationError, naming the part that cannot be read.
        """
        named: dict[str, Action] = {}
        base = cls()
        known = {_camel(item.name): item.name for item in fields(cls)}
        for index, part in enumerate(filter(None, (part.strip() for part in text.split(",")))):
            name, separator, action = (piece.strip() for piece in part.partition("="))
            if index == 0 and not separator and name == "metadata":
                base = cls(**_METADATA)
            elif not separator or name not in known:
                raise ConfigurationError(
                    f"redaction policy: {part!r} is invalid; expected 'metadata' or field=action with a"
                    f" field of {', '.join(known)}"
                )
            else:
                named[known[name]] = cast(Action, action)
        return replace(base, **named)

    def where(self, *actions: Action) -> frozenset[str]:
        """Return the fields, named as in the file format, that have any of the actions."""
        return frozenset(
            _camel(item.name) for item in fields(self) if getattr(self, item.name) in actions
        )


_METADATA: dict[str, Action] = {
    "user_content": "drop",
    "final_response": "drop",
    "intermediate_responses": "drop",
    "context_messages": "drop",
    "tool_arguments": "hash",
    "tool_results": "drop",
    "error_messages": "drop",
    "state": "drop",
    "user_id": "hash",
}


class PolicyApplier:
    """Applies a policy's `hash` and `drop` actions; other fields stay as they are."""

    def __init__(self, policy: FieldPolicy, pseudonyms: Pseudonyms) -> None:
        self._hashed = policy.where("hash")
        self._dropped = policy.where("drop")
        self._pseudonyms = pseudonyms
        self.is_idle = not self._hashed and not self._dropped

    def __call__(self, case: CaseData) -> JsonObject:
        """Return the case with both conversations processed; the argument is not modified."""
        treated = self._messages(case, ("contextMessages",))
        # `capture` belongs to a turn; only these messages can be missing in a case.
        treated.pop("capture", None)
        if isinstance(session := case.get("sessionInput"), dict):
            treated["sessionInput"] = self._session(session)
        for name in ("actualConversation", "conversation"):
            if isinstance(turns := case.get(name), list):
                treated[name] = [self._turn(turn) for turn in turns]
        return treated

    def _session(self, session: JsonObject) -> JsonObject:
        treated = dict(session)
        for name, kind in (("state", ""), ("userId", "user")):
            if session.get(name) in (None, "", {}):
                continue
            if name in self._dropped:
                del treated[name]
            elif name in self._hashed:
                treated[name] = self._hash(session[name], kind or "hash")
        return treated

    def _turn(self, turn: object) -> object:
        if not isinstance(turn, dict):
            return turn
        treated = self._messages(
            turn, ("userContent", "finalResponse", "intermediateResponses", "contextMessages")
        )
        if turn.get("state") not in (None, {}):
            if "state" in self._dropped:
                del treated["state"]
                _marked(treated, ["state"])
            elif "state" in self._hashed:
                treated["state"] = self._hash(turn["state"], "hash")
        if isinstance(tools := turn.get("tools"), list):
            treated["tools"] = [self._tool(tool) for tool in tools]
        telemetry = turn.get("telemetry")
        if isinstance(telemetry, dict) and telemetry.get("error"):
            treated["telemetry"] = {**telemetry, "error": self._error(telemetry["error"])}
        return treated

    def _tool(self, tool: object) -> object:
        if not isinstance(tool, dict):
            return tool
        treated, taken = dict(tool), []
        for name, field in _OF_A_CALL:
            if tool.get(name) is None:
                continue
            if field in self._dropped:
                del treated[name]
                taken.append(name)
            elif field in self._hashed:
                treated[name] = self._hash(tool[name], "hash")
        if tool.get("error"):
            treated["error"] = self._error(tool["error"])
            if "errorMessages" in self._dropped:
                taken.append("error")
        return _marked(treated, taken)

    def _messages(self, part: JsonObject, names: tuple[str, ...]) -> JsonObject:
        treated, taken = dict(part), []
        for name in names:
            if (value := part.get(name)) is None:
                continue
            if name in self._hashed:
                treated[name] = self._hashed_message(value)
            elif name in self._dropped:
                del treated[name]
                taken.append(name)
        if "userContent" in taken:
            # Other tools require a user message; this one explains why it has no content.
            treated["userContent"] = {"role": "user", "content": WITHHELD}
        return _marked(treated, taken)

    def _hashed_message(self, value: object) -> object:
        if isinstance(value, list):
            return [self._hashed_message(one) for one in value]
        if isinstance(value, dict):
            return {name: self._hashed_field(name, one) for name, one in value.items()}
        return self._hash(value, "hash")

    def _hashed_field(self, name: str, value: object) -> object:
        if name == "content_parts":
            return self._hashed_message(value)
        return value if name in _STRUCTURE else self._hash(value, "hash")

    def _error(self, error: object) -> object:
        message = error.get("message") if isinstance(error, dict) else error
        kept = {"type": error["type"]} if isinstance(error, dict) and error.get("type") else {}
        if "errorMessages" in self._dropped:
            return {**kept, "message": WITHHELD}
        if "errorMessages" in self._hashed and message:
            return {**kept, "message": self._hash(message, "hash")}
        return error

    def _hash(self, value: object, kind: str) -> object:
        """Return the value with each text and number replaced by a pseudonym."""
        if isinstance(value, dict):
            return {name: self._hash(one, kind) for name, one in value.items()}
        if isinstance(value, list):
            return [self._hash(one, kind) for one in value]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and PSEUDONYM.fullmatch(value):
            return value
        if isinstance(value, float) and value.is_integer():
            # 5 and 5.0 are the same number to every criterion.
            value = int(value)
        plain = (
            value if isinstance(value, str) else f"\0{orjson.dumps(value, default=str).decode()}"
        )
        return self._pseudonyms.token(kind, plain)


_STRUCTURE = ("role", "type", "mime_type", "size_bytes")
"""Message fields that are not content."""


def _marked(part: JsonObject, taken: list[str]) -> JsonObject:
    if taken:
        part["capture"] = {**part.get("capture", {}), **dict.fromkeys(taken, "redacted")}
    return part


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


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
