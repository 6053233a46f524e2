"""The quotes of judges in what users and agents said."""

from collections.abc import Sequence
from typing import NamedTuple

from evaltap.evaluator.evaluators.judged.quotes import places_of


class Quote(NamedTuple):
    """What a judge quotes from a turn, and the number it has on the page."""

    number: int
    metric: str
    evidence: str


class Piece(NamedTuple):
    """A part of a text, and the quote that it is part of; a quote's first part is marked by `first`."""

    text: str
    quote: Quote | None = None
    first: bool = False


def pieces_of(text: str, quotes: Sequence[Quote] = ()) -> list[Piece]:
    """Return a text in parts: what a quote covers, and what is between; of overlapping quotes the first."""
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
