"""Redact a case before it leaves the process: private by default, fails closed.

Works on the recorder's own copy, as the last step before the log, on every string of the case. A
value that cannot be redacted becomes `[REDACTED:error]`; a case that cannot be redacted is dropped by
the recorder and counted.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from evaltap.recorder.privacy.policy import TOOL_FIELDS, TURN_FIELDS, FieldPolicy, PolicyApplier
from evaltap.recorder.privacy.pseudonyms import Pseudonyms
from evaltap.recorder.privacy.redacted_values import RedactionReport, ValueRedactor
from evaltap.recorder.privacy.rule_matching import Rule
from evaltap.recorder.privacy.structures import is_schema
from evaltap.recorder.privacy.text.secret_names import Name, kind_of_name
from evaltap.schemas.data import CaseData, JsonObject

_POLICY_NAMES = {
    "arguments": "toolArguments",
    "result": "toolResults",
    "error": "errorMessages",
    "stateDelta": "state",
}


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

    >>> from evaltap.recorder import custom_rule
    >>> redactor = PatternRedactor(b"k" * 32, rules=[custom_rule("customer", r"C-[0-9]{6}")])
    >>> redactor.value("I am C-123456, mail me at ann@example.com")
    'I am <customer:8cd307fc9f68>, mail me at <email:101963c76a65>'
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
        kept_here = (name for name, field in _POLICY_NAMES.items() if field in self._kept)
        self._kept_fields = {"tools", *self._kept, *kept_here}
        self._values = ValueRedactor(self._pseudonyms, rules=rules, entropy=entropy)

    def __call__(self, case: CaseData) -> tuple[JsonObject, RedactionReport]:
        """Return the redacted case and a report; the argument is not modified."""
        report = RedactionReport()
        if not self._apply.is_idle:
            case = self._apply(case)
        redacted = {
            name: value
            if name in ("actualConversation", "conversation") or name in self._kept
            else self._values.item(name, value, report)
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
        return self._values.value(value, RedactionReport(), identifier=False, nested=0)

    def named_value(self, name: str, value: object) -> tuple[Any, RedactionReport]:
        """Return the value of a key redacted, and a report."""
        report = RedactionReport()
        return self._values.item(name, value, report), report

    def hides(self, name: str, value: object) -> bool:
        """Return whether the key alone requires replacing an object or a list as a whole."""
        return bool(value) and kind_of_name(name) is Name.SECRET and not is_schema(value)

    def _turn(self, turn: object, report: RedactionReport) -> Any:
        if not isinstance(turn, dict):
            return self._values.value(turn, report, identifier=False, nested=0)
        redacted = self._marked(turn, TURN_FIELDS, report)
        if "errorMessages" in self._kept and isinstance(telemetry := turn.get("telemetry"), dict):
            error = {"error": telemetry["error"]} if "error" in telemetry else {}
            redacted["telemetry"] = {**redacted["telemetry"], **error}
        if isinstance(tools := turn.get("tools"), list):
            redacted["tools"] = [
                self._marked(tool, TOOL_FIELDS, report)
                if isinstance(tool, dict)
                else self._values.value(tool, report, identifier=False, nested=0)
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
            if name in self._kept_fields:
                redacted[name] = value
                continue
            before = report.failures
            redacted[name] = self._values.item(name, value, report)
            if report.failures > before and name in fields:
                lost[name] = "redacted"
        if lost:
            redacted["capture"] = {**redacted.get("capture", {}), **lost}
        return redacted
