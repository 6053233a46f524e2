"""Redact a case before it leaves the process: private by default, fails closed.

Works on the recorder's own copy, as the last step before the log, on every string of the case:
values, object keys, and JSON inside strings. A sensitive part becomes a stable pseudonym, so equal
values stay equal. A value that cannot be redacted becomes `[REDACTED:error]`; a case that cannot be
redacted is dropped by the recorder and counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.privacy.detectors import PSEUDONYM, Finding, Rule, find
from evaltap.recorder.privacy.policy import WITHHELD, FieldPolicy, PolicyApplier
from evaltap.recorder.privacy.pseudonyms import Pseudonyms
from evaltap.recorder.privacy.structures import (
    COLUMNS,
    SIGNS,
    begins_key,
    columns_of,
    is_schema,
    kinds_in_list,
    kinds_of_rows,
    secret_parts,
    values_of_label,
)
from evaltap.recorder.privacy.text.check_digits import is_card_number
from evaltap.recorder.privacy.text.numbers import card_in, phone_in
from evaltap.recorder.privacy.text.secret_names import Name, is_postcode, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import is_token
from evaltap.schemas.data import CaseData, JsonObject

FAILED = "[REDACTED:error]"

_MAX_NESTED_JSON = 6
_MAX_PASSES = 4
_LONGEST_WORD = 20
"""Only letters and shorter than this: no rule can match."""
_LONGEST_KNOWN_NAME = 64
_MAX_KNOWN_NAMES = 4_096
_SMALLEST_NUMBER = 10**13
"""Smaller numbers are too short for a card."""
_TURN_FIELDS = (
    "userContent",
    "finalResponse",
    "intermediateResponses",
    "contextMessages",
    "state",
)
_TOOL_FIELDS = ("arguments", "result", "error")
_POLICY_NAMES = {"arguments": "toolArguments", "result": "toolResults", "error": "errorMessages"}


@dataclass(slots=True)
class RedactionReport:
    """What was done to one case: pseudonyms by kind, and values that could not be redacted."""

    replaced: Counter[str] = field(default_factory=Counter)
    failures: int = 0


class Redactor(Protocol):
    """Redacts cases; any function of a case will do."""

    def __call__(self, case: CaseData, /) -> tuple[JsonObject, RedactionReport] | None:
        """Return the case ready to write and a report, or None to drop it.

        Called by the background thread, once per case, with a private copy to modify or replace. An
        exception drops the case too, and is counted as a fault.
        """


class PatternRedactor:
    """The default redactor: secrets by name, known formats and checked numbers become pseudonyms.

    `policy` sets the action for each field, redaction by default. `rules` are custom rules (see
    `custom_rule`) for all redacted texts. `entropy` also replaces words that look random.
    """

    def __init__(
        self,
        key: bytes,
        *,
        policy: FieldPolicy | None = None,
        rules: Sequence[Rule] = (),
        entropy: bool = False,
    ) -> None:
        self._pseudonyms = Pseudonyms(key)
        self._policy = policy or FieldPolicy()
        self._apply = PolicyApplier(self._policy, self._pseudonyms)
        self._kept = self._policy.where("keep")
        self._rules = tuple(rules)
        self._entropy = entropy
        self._clean_names: dict[str, Name] = {}

    def __call__(self, case: CaseData) -> tuple[JsonObject, RedactionReport]:
        """Return the redacted case and a report; the argument is not modified."""
        report = RedactionReport()
        if not self._apply.is_idle:
            case = self._apply(case)
        redacted = {
            name: value
            if name in ("actualConversation", "conversation") or name in self._kept
            else self._item(name, value, report)
            for name, value in case.items()
        }
        session = case.get("sessionInput")
        if self._kept and isinstance(session, dict):
            kept = {
                name: session[name]
                for name in ("state", "userId")
                if name in self._kept and name in session
            }
            redacted["sessionInput"] = {**redacted["sessionInput"], **kept}
        for name in ("actualConversation", "conversation"):
            if isinstance(turns := case.get(name), list):
                redacted[name] = [self._turn(turn, report) for turn in turns]
        return redacted, report

    def value(self, value: object) -> Any:
        """Return any JSON value redacted as if it were a case's content."""
        return self._value(value, RedactionReport(), identifier=False, nested=0)

    def named_value(self, name: str, value: object) -> tuple[Any, RedactionReport]:
        """Return the value of a key redacted, and a report."""
        report = RedactionReport()
        return self._item(name, value, report), report

    def hides(self, name: str, value: object) -> bool:
        """Return whether the key alone requires replacing an object or a list as a whole."""
        return bool(value) and kind_of_name(name) is Name.SECRET and not is_schema(value)

    def _turn(self, turn: object, report: RedactionReport) -> Any:
        if not isinstance(turn, dict):
            return self._value(turn, report, identifier=False, nested=0)
        redacted = self._marked(turn, _TURN_FIELDS, report)
        if "errorMessages" in self._kept and isinstance(telemetry := turn.get("telemetry"), dict):
            error = {"error": telemetry["error"]} if "error" in telemetry else {}
            redacted["telemetry"] = {**redacted["telemetry"], **error}
        if isinstance(tools := turn.get("tools"), list):
            redacted["tools"] = [
                self._marked(tool, _TOOL_FIELDS, report)
                if isinstance(tool, dict)
                else self._value(tool, report, identifier=False, nested=0)
                for tool in tools
            ]
        return redacted

    def _marked(
        self, part: JsonObject, fields: tuple[str, ...], report: RedactionReport
    ) -> JsonObject:
        """Redact a turn or a tool call; mark a field that could not be redacted."""
        redacted: JsonObject = {}
        lost = {}
        for name, value in part.items():
            before = report.failures
            kept = name == "tools" or _POLICY_NAMES.get(name, name) in self._kept
            redacted[name] = value if kept else self._item(name, value, report)
            if report.failures > before and name in fields:
                lost[name] = "redacted"
        if lost:
            redacted["capture"] = {**redacted.get("capture", {}), **lost}
        return redacted

    def _item(self, name: str, value: Any, report: RedactionReport) -> Any:
        """Redact the value of a key, taking the key into account."""
        yield_to_agent()
        try:
            return self._named(kind_of_name(name), value, report, nested=0)
        except Exception:
            # Whatever went wrong, the value must not leave: fail closed.
            report.failures += 1
            return FAILED

    def _named(self, name: Name, value: Any, report: RedactionReport, *, nested: int) -> Any:
        if name is Name.PLAIN or name is Name.IDENTIFIER:
            return self._value(value, report, identifier=name is Name.IDENTIFIER, nested=nested)
        if name is Name.SECRET:
            if is_schema(value):
                return self._object(value, report, nested)
            return self._secret(value, report)
        if name is Name.TOKEN:
            if is_token(value):
                return self._secret(value, report)
            return self._value(value, report, identifier=False, nested=nested)
        return self._named_number(name, value, report, nested=nested)

    def _named_number(self, name: Name, value: Any, report: RedactionReport, *, nested: int) -> Any:
        """Redact the value of a phone or card key, also a list or parts of one."""
        if isinstance(value, list):
            return [self._named_number(name, one, report, nested=nested) for one in value]
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            text = str(value)
            if name is Name.PHONE:
                digits, kind = phone_in(text), "phone"
            else:
                digits, kind = card_in(text, named=True), "card"
            if digits is not None:
                return self._token(kind, digits, report)
        if isinstance(value, dict) and nested < _MAX_NESTED_JSON:
            return {
                self._key(key, report): self._named_number(name, one, report, nested=nested + 1)
                if kind_of_name(key) is Name.PLAIN and not isinstance(one, dict | list)
                else self._named(kind_of_name(key), one, report, nested=nested)
                for key, one in value.items()
            }
        return self._value(value, report, identifier=False, nested=nested)

    def _value(
        self, value: Any, report: RedactionReport, *, identifier: bool, nested: int
    ) -> object:
        kind = type(value)
        if kind is str or isinstance(value, str):
            return self._text(value, report, identifier=identifier, nested=nested)
        if kind is dict or isinstance(value, dict):
            return self._object(value, report, nested)
        if kind is list or isinstance(value, list):
            return self._list(value, report, identifier=identifier, nested=nested)
        if isinstance(value, int) and value > _SMALLEST_NUMBER:
            digits = str(value)
            if is_card_number(digits):
                return self._token("card", digits, report)
        return value

    def _object(self, value: JsonObject, report: RedactionReport, nested: int) -> JsonObject:
        redacted: JsonObject = {}
        kinds_by_key = {} if SIGNS.isdisjoint(value) else self._kinds_in_object(value)
        plain = not self._rules
        for name, one in value.items():
            kind = self._clean_names.get(name)
            if kind is None:
                known, kind = self._key(name, report), kind_of_name(name)
                if known != name and kind is not Name.SECRET:
                    kind = kind_of_name(known)  # as whoever redacts the result would read it
                while known in redacted:
                    known += "'"
            else:
                known = name
            if kinds_by_key and name in kinds_by_key:
                if isinstance(columns := kinds_by_key[name], dict):
                    redacted[known] = self._rows(one, columns, report, nested=nested)
                    continue
                kind = columns
            if (
                (kind is Name.PLAIN and plain and _is_plain(one))
                or (name == "pass" and isinstance(one, int))  # how many tests passed
                or (kind is Name.SECRET and is_postcode(name, one, value))
            ):
                redacted[known] = one
            else:
                redacted[known] = self._named(kind, one, report, nested=nested)
        return redacted

    def _kinds_in_object(self, value: JsonObject) -> dict[str, Name | dict[int, Name]]:
        """Return what an object says about its own values: by a label, by columns, as a web key."""
        label, labelled = values_of_label(value)
        kinds_by_key: dict[str, Name | dict[int, Name]] = dict.fromkeys(labelled, label)
        if not COLUMNS.isdisjoint(value):
            rows, columns = columns_of(value)
            if columns:
                kinds_by_key[rows] = columns
        if "kty" in value:
            kinds_by_key.update(dict.fromkeys(secret_parts(value), Name.SECRET))
        return kinds_by_key

    def _list(
        self, items: list[Any], report: RedactionReport, *, identifier: bool, nested: int
    ) -> list[Any]:
        """Redact a list, using its own items as context: a command, pairs, rows under a header."""
        if items and isinstance(items[0], list):
            columns, are_pairs = kinds_of_rows(items)
            if columns:
                head = self._value(items[0], report, identifier=False, nested=nested)
                return [head, *self._rows(items[1:], columns, report, nested=nested)]
            if are_pairs:
                return [self._pair(row, report, nested=nested) for row in items]
        kinds = kinds_in_list(items)
        if kinds:
            return [
                self._named(kinds.get(index, Name.PLAIN), one, report, nested=nested)
                for index, one in enumerate(items)
            ]
        redacted: list[Any] = []
        in_key = False
        for one in items:
            if isinstance(one, str) and (in_key or begins_key(one)):
                in_key = "END " not in one
                redacted.append(self._secret(one, report))
            else:
                redacted.append(self._value(one, report, identifier=identifier, nested=nested))
        return redacted

    def _pair(self, row: list[Any], report: RedactionReport, *, nested: int) -> list[Any]:
        name = self._value(row[0], report, identifier=False, nested=nested)
        return [name, self._named(kind_of_name(row[0]), row[1], report, nested=nested)]

    def _rows(
        self, rows: list[Any], columns: dict[int, Name], report: RedactionReport, *, nested: int
    ) -> list[Any]:
        return [
            [
                self._named(columns.get(index, Name.PLAIN), one, report, nested=nested)
                for index, one in enumerate(row)
            ]
            if isinstance(row, list)
            else self._value(row, report, identifier=False, nested=nested)
            for row in rows
        ]

    def _key(self, name: str, report: RedactionReport) -> str:
        """Redact an object's key; cached, since the keys of records recur."""
        known = self._text(name, report, identifier=False, nested=_MAX_NESTED_JSON)
        if known == name and type(name) is str and len(name) <= _LONGEST_KNOWN_NAME:
            if len(self._clean_names) >= _MAX_KNOWN_NAMES:
                self._clean_names.clear()
            self._clean_names[name] = kind_of_name(name)
        return known

    def _secret(self, value: Any, report: RedactionReport) -> object:
        """Replace a value whose key marks it as secret; keep empty ones and placeholders."""
        if value is None or isinstance(value, bool) or value in ("", {}, []):
            return value
        if isinstance(value, str):
            if PSEUDONYM.fullmatch(value) or value in (FAILED, WITHHELD):
                return value
            return self._token("secret", value, report)
        plain = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        return self._token("secret", plain, report)

    def _text(self, text: str, report: RedactionReport, *, identifier: bool, nested: int) -> str:
        try:
            if len(text) < _LONGEST_WORD and text.isalpha() and not self._rules:
                return text
            if text[:1] in _JSON_STARTS and nested < _MAX_NESTED_JSON and len(text) > 4:
                found = self._json_text(text, report, nested)
                if found is not None:
                    return found
            return self._plain_text(text, report, identifier=identifier)
        except Exception:
            # See _item: an unredacted string must never pass.
            report.failures += 1
            return FAILED

    def _json_text(self, text: str, report: RedactionReport, nested: int) -> str | None:
        """Return the text redacted as JSON, or None when it is not JSON."""
        try:
            parsed = orjson.loads(text)
        except ValueError:
            return None
        redacted = self._value(parsed, report, identifier=False, nested=nested + 1)
        written = orjson.dumps(parsed).decode()
        # A repeated key hides its first value from the parser, but not from a reader of the raw
        # text.
        if redacted == parsed and written.count('"') == text.count('"'):
            return text
        return orjson.dumps(redacted).decode()

    def _plain_text(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        if "<" not in text and not self._find(text, identifier):
            return text
        # Replacing a part can leave a remainder that matches on its own: repeat.
        for _ in range(_MAX_PASSES):
            redacted = self._one_pass(text, report, identifier=identifier)
            if redacted == text:
                break
            text = redacted
        return text

    def _one_pass(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        """Replace the findings between existing pseudonyms."""
        if "<" not in text:
            return self._replaced(text, report, identifier=identifier)
        parts: list[str] = []
        position = 0
        for known in PSEUDONYM.finditer(text):
            before = text[position : known.start()]
            parts += (self._replaced(before, report, identifier=identifier), known[0])
            position = known.end()
        return "".join((*parts, self._replaced(text[position:], report, identifier=identifier)))

    def _replaced(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        parts: list[str] = []
        position = 0
        for finding in self._find(text, identifier):
            token = self._token(finding.kind, finding.value, report)
            parts += (text[position : finding.start], token)
            position = finding.end
        return "".join((*parts, text[position:]))

    def _find(self, text: str, identifier: bool) -> list[Finding]:
        return find(text, identifier=identifier, custom=self._rules, entropy=self._entropy)

    def _token(self, kind: str, value: str, report: RedactionReport) -> str:
        report.replaced[kind] += 1
        return self._pseudonyms.token(kind, value)


def _is_plain(value: Any) -> bool:
    """Return whether no rule can match a value of this form."""
    kind = type(value)
    if kind is str:
        return len(value) < _LONGEST_WORD and value.isalpha()
    if kind is int:
        return bool(value <= _SMALLEST_NUMBER)
    return value is None or kind is float or kind is bool


_JSON_STARTS = ("{", "[", '"', " ", "\n", "\t")


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
        _without(turn, _TURN_FIELDS, messages=True) for turn in case.get("actualConversation", ())
    ]
    for turn in stripped["actualConversation"]:
        if "tools" in turn:
            turn["tools"] = [_without(tool, _TOOL_FIELDS, messages=False) for tool in turn["tools"]]
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
