"""Expected turns that a file gives for recorded cases."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import orjson

from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.formats.model import Json

Join: TypeAlias = Literal["eval_id", "user_text", "auto"]
"""How a case finds its reference: by eval id, by what the user said, or by the first that fits."""
JOINS: tuple[Join, ...] = get_args(Join)
Found: TypeAlias = Literal["eval_id", "user_text", "ambiguous", "none"]
"""By what a case found its reference; ambiguous: several fit, so it has none."""


@dataclass(slots=True)
class JoinCount:
    """How many cases looked for a reference, and what they found."""

    cases: int = 0
    joined: int = 0
    by_text: int = 0
    """Cases that were joined by what the user said: no reference has their id."""
    ambiguous: int = 0
    """Cases whose user said what the users of several references say."""

    def add(self, found: Found) -> None:
        """Count a case by what `References.attach` returned."""
        self.cases += 1
        self.joined += found in ("eval_id", "user_text")
        self.by_text += found == "user_text"
        self.ambiguous += found == "ambiguous"

    def __str__(self) -> str:
        text = f"{self.joined:,} of {self.cases:,} cases joined"
        text += f" ({self.by_text:,} by user text)" if self.by_text else ""
        return f"{text}, {self.ambiguous:,} ambiguous" if self.ambiguous else text


class References:
    """Expected turns for recorded cases: a recording itself does not know them.

    A reference's expected turns are its `conversation`, or else its `actualConversation`: a recorded
    case that was found good is a reference too.  By user text, a case and a reference belong together
    when the user's first message is the same; of several references those with as many turns, and then
    those with the same messages.  Case and white space do not count.  Raises FormatError for an eval id
    that occurs twice.
    """

    def __init__(self, path: Path, join: Join = "auto") -> None:
        self._join = join
        self._turns: dict[str, list[CaseData]] = {}
        for case in iter_cases(path):
            if case["evalId"] in self._turns:
                raise FormatError(
                    f"case {case['evalId']!r} occurs a second time; keep one", path=str(path)
                )
            turns = case.get("conversation") or case.get("actualConversation") or []
            self._turns[case["evalId"]] = turns
        self._by_text = _by_first_text(self._turns.values())
        held = orjson.dumps([join, self._turns])
        self.digest = hashlib.sha256(held).hexdigest()[:16]

    def attach(self, case: CaseData) -> Found:
        """Give a case its expected turns; return by what they were found."""
        if self._join != "user_text" and (turns := self._turns.get(case["evalId"])):
            case["conversation"] = turns
            return "eval_id"
        found = self._alike(case) if self._join != "eval_id" else ()
        if len(found) > 1:
            return "ambiguous"
        if not found:
            return "none"
        case["conversation"] = found[0]
        return "user_text"

    def _alike(self, case: CaseData) -> Sequence[list[CaseData]]:
        """Return the references whose user says what the case's user said."""
        actual = case.get("actualConversation") or []
        said = _user_texts(actual)
        found = self._by_text.get(said[0], []) if said and said[0] else []
        for narrower in (
            [turns for turns in found if len(turns) == len(actual)],
            [turns for turns in found if _user_texts(turns) == said],
        ):
            if len(found) > 1 and narrower:
                found = narrower
        return found


def _by_first_text(references: Iterable[list[CaseData]]) -> dict[str, list[list[CaseData]]]:
    found: dict[str, list[list[CaseData]]] = {}
    for turns in references:
        said = _user_texts(turns)
        if said and said[0]:
            found.setdefault(said[0], []).append(turns)
    return found


def _user_texts(turns: Sequence[Mapping[str, Json]]) -> list[str]:
    return [_user_text(turn) for turn in turns]


def _user_text(turn: Mapping[str, Json]) -> str:
    message = turn.get("userContent")
    content = message.get("content") if isinstance(message, Mapping) else None
    return " ".join(content.split()).casefold() if isinstance(content, str) else ""
