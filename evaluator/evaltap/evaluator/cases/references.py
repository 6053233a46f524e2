"""Expected turns that a file gives for landed cases."""

import hashlib
from pathlib import Path
from typing import Any

import orjson

from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.formats.case import CaseData


class References:
    """Expected turns for recorded cases, by eval id: a recording itself does not know them.

    A reference's expected turns are its `conversation`, or else its `actualConversation`: a recorded
    case that was found good is a reference too.  Raises FormatError for an eval id that occurs twice.
    """

    def __init__(self, path: Path) -> None:
        self._turns: dict[str, list[Any]] = {}
        for case in iter_cases(path):
            if case["evalId"] in self._turns:
                raise FormatError(
                    f"case {case['evalId']!r} stands here a second time; keep one", path=str(path)
                )
            turns = case.get("conversation") or case.get("actualConversation") or []
            self._turns[case["evalId"]] = turns
        self.digest = hashlib.sha256(orjson.dumps(self._turns)).hexdigest()[:16]

    def attach(self, case: CaseData) -> None:
        """Give a case its expected turns, where there are any for it."""
        turns = self._turns.get(case["evalId"])
        if turns:
            case["conversation"] = turns
