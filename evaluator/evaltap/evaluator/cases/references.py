"""Join recorded cases with expected turns from a file of references."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self, TypeAlias

import orjson

from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import FormatError

Join: TypeAlias = Literal["eval_id", "user_text", "auto"]
"""How a case finds its reference: by eval id, by the user's message, or by either (`auto`)."""
Found: TypeAlias = Literal["eval_id", "user_text", "ambiguous", "none"]
"""How a case found its reference; `ambiguous`: several match, so it has none."""


@dataclass(slots=True)
class JoinCount:
    """Counts of cases and of how they found their references."""

    cases: int = 0
    joined: int = 0
    by_text: int = 0
    """Cases that were joined by the user's message because no reference has their id."""
    ambiguous: int = 0
    """Cases whose user's message occurs in several references."""
    other_length: int = 0
    """Joined cases with more or fewer turns than their reference."""

    def add(self, found: Found, case: CaseData) -> None:
        """Count a case with the result of `References.attach`."""
        self.cases += 1
        if found in ("eval_id", "user_text"):
            turns = case.get("actualConversation") or []
            self.other_length += len(turns) not in (0, len(case["conversation"]))
        self.joined += found in ("eval_id", "user_text")
        self.by_text += found == "user_text"
        self.ambiguous += found == "ambiguous"

    def __str__(self) -> str:
        text = f"{self.joined:,} of {self.cases:,} cases joined"
        text += f" ({self.by_text:,} by user text)" if self.by_text else ""
        text += f", {self.ambiguous:,} ambiguous" if self.ambiguous else ""
        if self.other_length:
            text += (
                f"; {self.other_length:,} with more or fewer turns than the reference, of which the"
            )
            text += " common ones are compared"
        return text


class References:
    """Expected turns for recorded cases, which do not have their own.

    A reference's expected turns are its `conversation`, or its `actualConversation` if it has none: a good
    recorded case can serve as a reference.  By user text, a case matches references with the same user
    messages in all turns: an answer to another question says nothing about this one.  Letter case and white
    space are ignored.  `of` raises FormatError if an eval id occurs twice.
    """

    def __init__(
        self,
        turns: Mapping[str, list[CaseData]],
        join: Join = "auto",
        said: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Take expected turns by eval id; `said` gives the hashes of `said_in` if messages are not stored."""
        self.join: Join = join
        self.turns = turns
        self.said = said or {eval_id: said_in(one) for eval_id, one in turns.items()}
        self._by_text: dict[tuple[str, ...], list[str]] = {}
        for eval_id, words in self.said.items():
            if words and words[0]:
                self._by_text.setdefault(tuple(words), []).append(eval_id)

    @classmethod
    def of(cls, cases: Iterable[CaseData], join: Join = "auto", *, path: str = "") -> Self:
        """Return the references in cases, those of the file `path`."""
        found: dict[str, list[CaseData]] = {}
        for case in cases:
            if case["evalId"] in found:
                raise FormatError(
                    f"case {case['evalId']!r} occurs a second time; keep one", path=path
                )
            turns = case.get("conversation") or case.get("actualConversation") or []
            found[case["evalId"]] = turns
        return cls(found, join)

    @cached_property
    def digest(self) -> str:
        """A hash of the references and of the join."""
        held = orjson.dumps([self.join, self.turns])
        return hashlib.sha256(held).hexdigest()[:16]

    def attach(self, case: CaseData) -> Found:
        """Add expected turns to a case; return how they were found."""
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
        """Return the references with the same user messages as the case."""
        return self._by_text.get(said_in(case.get("actualConversation") or []), ())


def said_in(turns: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """Return a hash of the user's message in each turn, empty if there is none.

    Letter case and white space are ignored.
    """
    return tuple(_hash(_user_text(turn)) for turn in turns)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] if text else ""


def _user_text(turn: Mapping[str, Json]) -> str:
    message = turn.get("userContent")
    content = message.get("content") if isinstance(message, Mapping) else None
    return " ".join(content.split()).casefold() if isinstance(content, str) else ""
