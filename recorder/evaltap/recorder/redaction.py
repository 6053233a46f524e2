"""Redact a case before it leaves the process: private by default, closed on failure.

Works on the recorder's own copy, last before the log, on every string of the case: values,
keys of objects, and JSON inside strings.  A sensitive piece becomes a stable pseudonym, so equal
values stay equal.  A value that cannot be redacted becomes `[REDACTED:error]`; a case that cannot
be redacted is dropped by the recorder and counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import orjson

from evaltap.recorder.checked_numbers import is_card_number
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.field_policy import WITHHELD, FieldPolicy, PolicyApplier
from evaltap.recorder.pacing import breathe
from evaltap.recorder.pseudonym import Pseudonyms
from evaltap.recorder.secret_values import Name, is_opaque, kind_of_name
from evaltap.recorder.sensitive_text import PSEUDONYM, Finding, Rule, find

FAILED = "[REDACTED:error]"

_MAX_NESTED_JSON = 6
_MAX_PASSES = 4
_LONGEST_WORD = 20
"""Letters only and shorter than this: no rule has anything to find in it."""
_LONGEST_KNOWN_NAME = 64
_MAX_KNOWN_NAMES = 4_096
_SMALLEST_NUMBER = 10**13
"""Numbers up to this are too short for a card."""
_TURN_FIELDS = ("userContent", "finalResponse", "intermediateResponses", "contextMessages")
_TOOL_FIELDS = ("arguments", "result", "error")
_POLICY_NAMES = {"arguments": "toolArguments", "result": "toolResults", "error": "errorMessages"}


@dataclass(slots=True)
class RedactionReport:
    """What was done to one case: pseudonyms by kind, and values that had to be given up."""

    replaced: Counter[str] = field(default_factory=Counter)
    failures: int = 0


class Redactor(Protocol):
    """Redacts cases; any function of a case will do."""

    def __call__(self, case: dict[str, Any], /) -> tuple[dict[str, Any], RedactionReport] | None:
        """Return the case as it may be written and what was done, or None to drop it.

        Called by the background thread, once a case, with a case of its own to change or replace.
        An exception drops the case too, and is counted as a fault.
        """


class PatternRedactor:
    """The redactor that is on by default: names, formats and checked numbers become pseudonyms.

    `policy` says what happens to each field, redaction being the default; `rules` are rules of your
    own (see `custom_rule`), for texts in all fields that are redacted.
    """

    def __init__(
        self, key: bytes, *, policy: FieldPolicy | None = None, rules: Sequence[Rule] = ()
    ) -> None:
        self._pseudonyms = Pseudonyms(key)
        self._policy = policy or FieldPolicy()
        self._apply = PolicyApplier(self._policy, self._pseudonyms)
        self._kept = self._policy.where("keep")
        self._rules = tuple(rules)
        self._clean_names: set[str] = set()

    def __call__(self, case: dict[str, Any]) -> tuple[dict[str, Any], RedactionReport]:
        """Return the redacted case and what was done; the argument is not changed."""
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

    @classmethod
    def configured(cls, config: RecorderConfig, key: bytes) -> Self:
        """Return the redactor with the policy and the rules of a configuration."""
        return cls(key, policy=config.field_policy(), rules=config.custom_rules())

    def value(self, value: Any) -> Any:
        """Return any JSON value redacted, as if it were content of a case."""
        return self._value(value, RedactionReport(), identifier=False, nested=0)

    def named_value(self, name: str, value: Any) -> tuple[Any, RedactionReport]:
        """Return a value that stands under a key redacted, and what was done."""
        report = RedactionReport()
        return self._item(name, value, report), report

    def hides(self, name: str, value: Any) -> bool:
        """Return whether the key alone says that an object or a list is replaced as a whole."""
        return bool(value) and kind_of_name(name) is Name.SECRET

    def _turn(self, turn: Any, report: RedactionReport) -> Any:
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
        self, part: dict[str, Any], fields: tuple[str, ...], report: RedactionReport
    ) -> dict[str, Any]:
        """Redact a turn or a tool call; a field that had to be given up is marked as redacted."""
        redacted: dict[str, Any] = {}
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
        """Redact the value of a key, in the light of the key."""
        breathe()
        try:
            return self._named(kind_of_name(name), value, report, nested=0)
        except Exception:
            # Whatever went wrong, the value must not leave: this is the closed end of the filter.
            report.failures += 1
            return FAILED

    def _named(self, name: Name, value: Any, report: RedactionReport, *, nested: int) -> Any:
        if name is Name.SECRET or (name is Name.TOKEN and is_opaque(value)):
            return self._secret(value, report)
        return self._value(value, report, identifier=name is Name.IDENTIFIER, nested=nested)

    def _value(self, value: Any, report: RedactionReport, *, identifier: bool, nested: int) -> Any:
        kind = type(value)
        if kind is str or isinstance(value, str):
            return self._text(value, report, identifier=identifier, nested=nested)
        if kind is dict or isinstance(value, dict):
            return self._object(value, report, nested)
        if kind is list or isinstance(value, list):
            return [self._value(one, report, identifier=identifier, nested=nested) for one in value]
        if isinstance(value, int) and not identifier and value > _SMALLEST_NUMBER:
            digits = str(value)
            if is_card_number(digits):
                return self._token("card", digits, report)
        return value

    def _object(
        self, value: dict[str, Any], report: RedactionReport, nested: int
    ) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        for name, one in value.items():
            if name not in self._clean_names:
                known = self._key(name, report)
                while known in redacted:
                    known += "'"
            else:
                known = name
            kind = kind_of_name(name)
            if kind is not Name.SECRET and not self._rules and _says_nothing(one):
                redacted[known] = one
            else:
                redacted[known] = self._named(kind, one, report, nested=nested)
        return redacted

    def _key(self, name: str, report: RedactionReport) -> str:
        """Redact the key of an object; the keys of records come again and again."""
        known = self._text(name, report, identifier=False, nested=_MAX_NESTED_JSON)
        if known == name and type(name) is str and len(name) <= _LONGEST_KNOWN_NAME:
            if len(self._clean_names) >= _MAX_KNOWN_NAMES:
                self._clean_names.clear()
            self._clean_names.add(name)
        return known

    def _secret(self, value: Any, report: RedactionReport) -> Any:
        """Replace a value whose key says that it is secret; what says nothing stays."""
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
            # See _item: an unredacted string must not pass, whatever the reason.
            report.failures += 1
            return FAILED

    def _json_text(self, text: str, report: RedactionReport, nested: int) -> str | None:
        """Return the text redacted as JSON, None when it is something else."""
        try:
            parsed = orjson.loads(text)
        except ValueError:
            return None
        redacted = self._value(parsed, report, identifier=False, nested=nested + 1)
        written = orjson.dumps(parsed).decode()
        # A repeated key hides its first value from the parser, not from a reader of the raw text.
        if redacted == parsed and written.count('"') == text.count('"'):
            return text
        return orjson.dumps(redacted).decode()

    def _plain_text(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        if "<" not in text and not self._find(text, identifier):
            return text
        # A replaced piece can leave behind a rest that looks different on its own: look again.
        for _ in range(_MAX_PASSES):
            redacted = self._one_pass(text, report, identifier=identifier)
            if redacted == text:
                break
            text = redacted
        return text

    def _one_pass(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        """Replace what is found between the pseudonyms that are already there."""
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
        return find(text, identifier=identifier, custom=self._rules)

    def _token(self, kind: str, value: str, report: RedactionReport) -> str:
        report.replaced[kind] += 1
        return self._pseudonyms.token(kind, value)


def _says_nothing(value: Any) -> bool:
    """Return whether a value is of a form in which no rule can find anything."""
    kind = type(value)
    if kind is str:
        return len(value) < _LONGEST_WORD and value.isalpha()
    if kind is int:
        return bool(value <= _SMALLEST_NUMBER)
    return value is None or kind is float or kind is bool


_JSON_STARTS = ("{", "[", '"', " ", "\n", "\t")


def withhold_content(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case without what was said: structure, names, times and numbers stay.

    For teams that may not store conversations.  What was taken out is marked as redacted, so that
    a metric which needs it says so instead of scoring an empty text.
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


def _without(part: dict[str, Any], fields: tuple[str, ...], *, messages: bool) -> dict[str, Any]:
    kept = {name: value for name, value in part.items() if name not in fields}
    taken = [name for name in fields if part.get(name) is not None]
    if messages and "userContent" in taken:
        # Readers of other tools need a user message; this one says why it is empty of content.
        kept["userContent"] = {"role": "user", "content": WITHHELD}
    if "error" in taken:
        kept["error"] = _withheld_error(part["error"])
    if taken:
        kept["capture"] = {**part.get("capture", {}), **dict.fromkeys(taken, "redacted")}
    return kept


def _withheld_error(error: Any) -> dict[str, Any]:
    kept = {"type": error["type"]} if isinstance(error, dict) and error.get("type") else {}
    return {**kept, "message": WITHHELD}
