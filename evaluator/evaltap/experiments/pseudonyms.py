"""Stand-ins for pseudonyms in what an agent is given: `<email:5345e9>` is no address that an agent can use.

A recorded text holds pseudonyms in place of personal data.  When a case is run, each becomes an invented
value of the same form, always the same one for the same pseudonym, in ranges that belong to nobody:
example.com (RFC 2606), telephone numbers for drama (Ofcom), a card number of a test range.  In what is
recorded they become pseudonyms again."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from evaltap.experiments.agents.base import Unit
from evaltap.experiments.mocks.declared import DeclaredMock
from evaltap.experiments.mocks.recorded import RecordedCall
from evaltap.recorder.privacy.redacted_values import RedactionReport
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.schemas.data import CaseData

_PSEUDONYM: Final = re.compile(r"<(email|phone|card|iban):([0-9a-f]{4,64})>")
_INVENTED: Final = re.compile(
    r"user-[0-9a-f]{4,64}@example\.com|\+44 7700 900\d{3}|400000\d{10}|GB\d\dEVAL\d{14}"
)


def _email(digits: str) -> str:
    return f"user-{digits}@example.com"


def _phone(digits: str) -> str:
    return f"+44 7700 900{int(digits, 16) % 1000:03d}"


def _card(digits: str) -> str:
    body = f"400000{int(digits, 16) % 10**9:09d}"
    doubled = [int(one) * (2 - place % 2) for place, one in enumerate(body)]
    return body + str(-sum(one - 9 * (one > 9) for one in doubled) % 10)


def _iban(digits: str) -> str:
    account = f"{int(digits, 16) % 10**14:014d}"
    letters = "".join(str(ord(one) - 55) for one in "EVAL")
    check = 98 - int(f"{letters}{account}161100") % 97
    return f"GB{check:02d}EVAL{account}"


_FORMS: Final[dict[str, Callable[[str], str]]] = {
    "email": _email,
    "phone": _phone,
    "card": _card,
    "iban": _iban,
}


class Inventions:
    """Invents values for pseudonyms, and knows which is whose."""

    def __init__(self) -> None:
        self._pseudonym_of: dict[str, str] = {}

    def filled(self, unit: Unit) -> Unit:
        """Return a unit with invented values for all pseudonyms in what the agent gets."""
        return replace(
            unit,
            turns=tuple(self.fill(list(unit.turns))),
            context=tuple(self.fill(list(unit.context))),
            state=self.fill(dict(unit.state)) if unit.state else unit.state,
            recording=tuple(tuple(map(self.filled_call, turn)) for turn in unit.recording),
            mocks=tuple(tuple(map(self._filled_mock, turn)) for turn in unit.mocks),
            expected_mocks=tuple(
                tuple(map(self._filled_mock, turn)) for turn in unit.expected_mocks
            ),
            every_turn=tuple(map(self._filled_mock, unit.every_turn)),
            expected_every_turn=tuple(map(self._filled_mock, unit.expected_every_turn)),
            scenario=self.fill(dict(unit.scenario)) if unit.scenario else None,
        )

    def filled_call(self, call: RecordedCall) -> RecordedCall:
        """Return a recorded call with invented values."""
        return replace(
            call,
            arguments=self.fill(call.arguments),
            result=self.fill(call.result),
            error=self.fill(call.error),
        )

    def _filled_mock(self, mock: DeclaredMock) -> DeclaredMock:
        return replace(mock, arguments=self.fill(mock.arguments), result=self.fill(mock.result))

    def fill(self, value: Any) -> Any:  # JSON data, here and below
        """Replace the pseudonyms in all texts of a value."""
        return _over_texts(value, lambda text: _PSEUDONYM.sub(self._invent, text))

    def restore(self, value: Any) -> Any:
        """Replace the invented values in all texts of a value by their pseudonyms."""
        known = self._pseudonym_of
        return _over_texts(
            value, lambda text: _INVENTED.sub(lambda found: known.get(found[0], found[0]), text)
        )

    def _invent(self, found: re.Match[str]) -> str:
        kind, digits = found[1], found[2]
        invented = _FORMS[kind](digits)
        while self._pseudonym_of.setdefault(invented, found[0]) != found[0]:  # taken by another
            digits = f"{int(digits, 16) + 1:x}"
            invented = _FORMS[kind](digits)
        return invented


def restoring(inventions: Inventions, redactor: Redactor | None) -> Redactor:
    """Return a redactor that first restores pseudonyms, which the other one then leaves as they are."""

    def restore(case: CaseData) -> Any:  # as the redactor
        restored = inventions.restore(case)
        return (restored, RedactionReport()) if redactor is None else redactor(restored)

    return restore


def _over_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value) if "<" in value or any(map(str.isdigit, value)) else value
    if isinstance(value, list):
        return [_over_texts(one, change) for one in value]
    if isinstance(value, dict):
        return {key: _over_texts(one, change) for key, one in value.items()}
    return value
