"""Judges' quotes in the texts of users and agents."""

from collections.abc import Sequence
from typing import NamedTuple

from evaltap.evaluator.scoring.evaluators.judged.quotes import places_of


class Quote(NamedTuple):
    """A judge's quote from a turn, and its number on the page."""

    number: int
    metric: str
    evidence: str


class Piece(NamedTuple):
    """A part of a text, and the quote that covers it; `first` marks the first part of a quote."""

    text: str
    quote: Quote | None = None
    first: bool = False


def pieces_of(text: str, quotes: Sequence[Quote] = ()) -> list[Piece]:
    """Return a text in parts, quoted or not; of overlapping quotes, the first one wins."""
    spans = sorted(
        (start, end, number == 0, quote)
        for quote in quotes
        for number, (start, end) in enumerate(places_of(quote.evidence, text))
    )
    pieces, done = list[Piece](), 0
    for start, end, first, quote in spans:
        if start < done:
            continue
        pieces += [Piece(text[done:start]), Piece(text[start:end], quote, first)]
        done = end
    return [piece for piece in [*pieces, Piece(text[done:])] if piece.text]
