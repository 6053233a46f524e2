"""Redaction of what leaves the store: texts may be older than a rule."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaltap.schemas.formats.case import CaseData


def case_redactor() -> "Callable[[CaseData], CaseData]":
    """Return what redacts a case as the recorder's settings of this environment say.

    With EVALTAP_REDACTION_KEY pseudonyms are those of the recorder.  Without it they are numbered within
    the case, `<email:000000000001>`: the same case gives the same bytes, and a number tells nothing.
    """
    import orjson

    from evaltap.recorder.config import RecorderConfig
    from evaltap.recorder.privacy.detectors import PSEUDONYM
    from evaltap.recorder.privacy.pseudonyms import derived_key, random_key

    secret = os.environ.get("EVALTAP_REDACTION_KEY")
    redactor = RecorderConfig().redactor(derived_key(secret) if secret else random_key())

    def redact(case: "CaseData") -> "CaseData":
        before = orjson.dumps(case).decode()
        redacted, _ = redactor(orjson.loads(before))
        redacted["evalId"] = case["evalId"]  # a name, by which the set knows the case
        text = orjson.dumps(redacted).decode()
        if secret or text == before:
            return redacted
        known = {found[0] for found in PSEUDONYM.finditer(before)}
        numbers: dict[str, str] = {}
        for found in PSEUDONYM.finditer(text):
            if found[0] not in known and found[0] not in numbers:
                kind = found[0][1:-1].partition(":")[0]
                numbers[found[0]] = f"<{kind}:{len(numbers) + 1:012x}>"
        for token, number in numbers.items():
            text = text.replace(token, number)
        numbered: CaseData = orjson.loads(text)
        return numbered

    return redact


def text_redactor() -> Callable[[str], str]:
    """Return what redacts a text as the answers of cases are redacted."""
    redact = case_redactor()

    def redacted(text: str) -> str:
        case: CaseData = {
            "evalId": "-",
            "actualConversation": [{"finalResponse": {"role": "assistant", "content": text}}],
        }
        (turn,) = redact(case)["actualConversation"]
        return str((turn.get("finalResponse") or {}).get("content") or "")

    return redacted
