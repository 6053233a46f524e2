"""Redaction of texts that leave the store: they may have been recorded before a rule existed.

The recorder's settings are imported where a redactor is made, because they compile all patterns.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.pseudonyms import derived_key, random_key
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.recorder.privacy.redactor import PatternRedactor


def case_redactor() -> Callable[[CaseData], CaseData]:
    """Return a function that redacts a case by the recorder's settings of this environment.

    With EVALTAP_REDACTION_KEY it produces the recorder's pseudonyms. Without it they are numbered within
    the case, `<email:000000000001>`: the same case gives the same bytes, and a number reveals nothing.
    """
    secret = os.environ.get("EVALTAP_REDACTION_KEY")
    redactor = _redactor()

    def redact(case: CaseData) -> CaseData:
        before = orjson.dumps(case).decode()
        redacted, _ = redactor(orjson.loads(before))
        redacted["evalId"] = case["evalId"]  # the set identifies the case by this id
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


def redaction_key(log: str | None) -> bytes:
    """Return the key of a log; without a log, that of the environment, or a new key.

    Raises InputError if the log's key cannot be read.
    """
    if log is not None:
        from evaltap.recorder.delivery.redaction_key import key_path, read_key  # compiles them too

        path = key_path(log if "://" in log else Path(log))
        try:
            return read_key(path)
        except OSError as error:
            raise InputError(
                f"{path}: cannot read the key of the log {log} ({error.strerror or error}); a recorder"
                " creates it when it first writes to the log with redaction and without"
                " EVALTAP_REDACTION_KEY"
            ) from None
    secret = os.environ.get("EVALTAP_REDACTION_KEY")
    return derived_key(secret) if secret else random_key()


def report_redactor() -> Callable[[str], str]:
    """Return a function that redacts the texts of a report; raise InputError for unusable settings."""
    redactor = _redactor()
    return lambda text: str(redactor.value(text))


def _redactor() -> "PatternRedactor":
    from evaltap.recorder.config import RecorderConfig  # compiles all patterns

    return RecorderConfig().redactor(redaction_key(None))


def told(redacted: bool) -> str:
    """Return what the line about a written report adds if its texts are redacted."""
    return " with redacted texts (--no-redact keeps them as they are)" if redacted else ""


def text_redactor() -> Callable[[str], str]:
    """Return a function that redacts a text like an answer of a case."""
    redact = case_redactor()

    def redacted(text: str) -> str:
        case: CaseData = {
            "evalId": "-",
            "actualConversation": [{"finalResponse": {"role": "assistant", "content": text}}],
        }
        (turn,) = redact(case)["actualConversation"]
        return str((turn.get("finalResponse") or {}).get("content") or "")

    return redacted
