"""Stand-ins for pseudonyms in what an agent is given: `<email:5345e9>` is no address that an agent can use.

A recorded text holds pseudonyms in place of personal data.  When a case is run, each becomes an invented
value of the same form, always the same one for the same pseudonym, in ranges that belong to nobody:
example.com (RFC 2606), telephone numbers for drama (Ofcom; 555-01xx in North America), a card number of a
test range.  In what is recorded they become pseudonyms again."""

import re
from collections.abc import Callable, Iterator
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
    r"(?i:user-[0-9a-f]{4,64}@example\.com)"
    r"|(?<!\d)(?:(?:\+|00)?44[ .-]*(?:\(0\)[ .-]*)?|0)7700[ .-]*900[ .-]*\d{3}(?!\d)"
    r"|(?<!\d)(?:(?:\+|00)?1[ .-]*)?\(?[2-9]\d\d\)?[ .-]*555[ .-]*01\d\d(?!\d)"
    r"|(?<!\d)4000[ -]?00\d\d(?:[ -]?\d{4}){2}(?!\d)"
    r"|(?i:GB\d\d ?EVAL)(?: ?\d{4}){3} ?\d\d(?!\d)"
)
"""An agent may write them in another way: without spaces, in capitals."""
_TRIES: Final = 1_000


def _mobile(number: int) -> str:
    return f"+44 7700 900{number % 1000:03d}"


def _fictional(number: int) -> str:
    return f"+1 {200 + number // 100 % 800} 555 01{number % 100:02d}"


def _card(number: int) -> str:
    body = f"400000{number % 10**9:09d}"
    doubled = [int(one) * (2 - place % 2) for place, one in enumerate(body)]
    return body + str(-sum(one - 9 * (one > 9) for one in doubled) % 10)


def _iban(number: int) -> str:
    account = f"{number % 10**14:014d}"
    letters = "".join(str(ord(one) - 55) for one in "EVAL")
    check = 98 - int(f"{letters}{account}161100") % 97
    return f"GB{check:02d}EVAL{account}"


_FORMS: Final[dict[str, tuple[Callable[[int], str], ...]]] = {
    "email": (),  # its digits are in it
    "phone": (_mobile, _fictional),
    "card": (_card,),
    "iban": (_iban,),
}


def _plain(invented: str) -> str:
    """Return what all ways to write an invented value have in common."""
    if "@" in invented:
        return invented.lower()
    return "".join(filter(str.isalnum, invented))[-10:]


class Inventions:
    """Invents values for pseudonyms, and knows which is whose."""

    def __init__(self) -> None:
        self._pseudonym_of: dict[str, str] = {}
        """By what all ways to write the invented value have in common."""
        self._invented: dict[str, str] = {}

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
            state=self.fill(call.state),
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
            value,
            lambda text: _INVENTED.sub(lambda found: known.get(_plain(found[0]), found[0]), text),
        )

    def _invent(self, found: re.Match[str]) -> str:
        """Return the invented value of a pseudonym, which stays where all such values are taken."""
        pseudonym, kind, digits = found[0], found[1], found[2]
        if pseudonym not in self._invented:
            self._invented[pseudonym] = pseudonym
            for value in _values(kind, digits):
                if self._pseudonym_of.setdefault(_plain(value), pseudonym) == pseudonym:
                    self._invented[pseudonym] = value
                    break
        return self._invented[pseudonym]


def _values(kind: str, digits: str) -> Iterator[str]:
    """Yield values that may stand for a pseudonym, the best first."""
    if kind == "email":
        yield f"user-{digits}@example.com"
    for form in _FORMS[kind]:
        yield from (form(int(digits, 16) + more) for more in range(_TRIES))


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
