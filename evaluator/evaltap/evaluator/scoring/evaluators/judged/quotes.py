"""Check that a judge's quotes occur in the judged material."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.evaluator.scoring.evaluators.judged.answers import Verdict

_GAP: Final = re.compile(r"\s*(?:\.\.\.|…|\[\.\.\.\]|\[…\])\s*")
_MARKS: Final = "\"'`\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb "
_SHOWN: Final = 120


def check_quotes(verdict: Verdict, material: Sequence[str], *, required: bool) -> Verdict:
    """Mark each row by whether one of the texts contains its quote.

    The row's reason names a quote that no text contains.  If quotes are `required`, such a quote, and a
    fulfilled rubric without a quote, raise JudgeInvalid.
    """
    texts = [_plain(text) for text in material]
    rows = tuple(_checked(row, texts, required=required) for row in verdict.rubric_scores)
    return verdict._replace(rubric_scores=rows, reason="\n".join(row.reason for row in rows))


def quoted_from(quote: str, texts: Sequence[str]) -> bool:
    """Return whether a text contains a quote, regardless of case, white space and gaps marked by dots."""
    pieces = _pieces(quote)
    return bool(pieces) and any(all(piece in text for piece in pieces) for text in texts)


def places_of(quote: str, text: str) -> list[tuple[int, int]]:
    """Return the slices of a text that are the pieces of a quote; empty unless it contains all pieces."""
    plain, places = _plain_with_places(text)
    found = []
    for piece in _pieces(quote):
        at = plain.find(piece)
        if at < 0:
            return []
        found.append((places[at], places[at + len(piece) - 1] + 1))
    return found


def _pieces(quote: str) -> list[str]:
    pieces = (_plain(piece).strip(_MARKS) for piece in _GAP.split(quote))
    return [piece for piece in pieces if piece]


def _checked(row: RubricVerdict, texts: Sequence[str], *, required: bool) -> RubricVerdict:
    if not row.evidence:
        if required and row.score > 0:
            raise JudgeInvalid(f"rubric {row.id} is met without evidence; expected a quote")
        return row
    if quoted_from(row.evidence, texts):
        return replace(row, evidence_found=True)
    if required:
        raise JudgeInvalid(f"evidence of rubric {row.id} not found: {quoted(row.evidence, _SHOWN)}")
    reason = f"{row.reason} [evidence not found: {quoted(row.evidence, _SHOWN)}]"
    return replace(row, reason=reason, evidence_found=False)


def _plain_with_places(text: str) -> tuple[str, list[int]]:
    """Return a text as `_plain` does, with the original index of each character."""
    made: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        if character.isspace():
            if made and made[-1] != " ":
                made.append(" ")
                places.append(place)
            continue
        plain = unicodedata.normalize("NFKC", character).casefold()
        made += plain
        places += [place] * len(plain)
    return "".join(made), places


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
