"""Expected turns for recorded cases, from a file of references."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self, TypeAlias

import orjson

from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.formats.model import Json

Join: TypeAlias = Literal["eval_id", "user_text", "auto"]
"""How a case finds its reference: by eval id, by what the user said, or by the first that fits."""
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
    those with the same messages.  Case and white space do not count.  `read` raises FormatError for an eval
    id that occurs twice.
    """

    def __init__(
        self,
        turns: Mapping[str, list[CaseData]],
        join: Join = "auto",
        said: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Take expected turns by eval id; `said` is `said_in` of turns whose words are not kept."""
        self.join: Join = join
        self.turns = turns
        self.said = said or {eval_id: said_in(one) for eval_id, one in turns.items()}
        self._by_text: dict[str, list[str]] = {}
        for eval_id, words in self.said.items():
            if words and words[0]:
                self._by_text.setdefault(words[0], []).append(eval_id)

    @classmethod
    def read(cls, path: Path, join: Join = "auto") -> Self:
        """Read the references of a file."""
        found: dict[str, list[CaseData]] = {}
        for case in iter_cases(path):
            if case["evalId"] in found:
                raise FormatError(
                    f"case {case['evalId']!r} occurs a second time; keep one", path=str(path)
                )
            turns = case.get("conversation") or case.get("actualConversation") or []
            found[case["evalId"]] = turns
        return cls(found, join)

    @cached_property
    def digest(self) -> str:
        """A hash of the references and of how cases are joined to them."""
        held = orjson.dumps([self.join, self.turns])
        return hashlib.sha256(held).hexdigest()[:16]

    def attach(self, case: CaseData) -> Found:
        """Give a case its expected turns; return by what they were found."""
        if self.join != "user_text" and (turns := self.turns.get(case["evalId"])):
            case["conversation"] = turns
            return "eval_id"
        found = self._alike(case) if self.join != "eval_id" else ()
        if len(found) > 1:
            return "ambiguous"
        if not found:
            return "none"
        case["conversation"] = self.turns[found[0]]
        return "user_text"

    def _alike(self, case: CaseData) -> Sequence[str]:
        """Return the references whose user says what the case's user said."""
        said = said_in(case.get("actualConversation") or [])
        found = self._by_text.get(said[0], []) if said and said[0] else []
        for narrower in (
            [one for one in found if len(self.said[one]) == len(said)],
            [one for one in found if self.said[one] == said],
        ):
            if len(found) > 1 and narrower:
                found = narrower
        return found


def said_in(turns: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """Return a hash of what the user says in each turn; empty for nothing.

    Case and white space do not count.
    """
    return tuple(_hash(_user_text(turn)) for turn in turns)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] if text else ""


def _user_text(turn: Mapping[str, Json]) -> str:
    message = turn.get("userContent")
    content = message.get("content") if isinstance(message, Mapping) else None
    return " ".join(content.split()).casefold() if isinstance(content, str) else ""
