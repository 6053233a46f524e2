"""The templates with their functions, and the style and the keys that the page and the report share.

Templates escape their input, and characters that hide or reverse text are shown as codes.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evaltap.evaluator.reports import figures
from evaltap.evaluator.reports.html.charts import stack
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.scoring.evaluators.judged.quotes import places_of

STATIC: Final = Path(__file__).parent / "static"
SIGNS: Final = {
    "passed": "✓",
    "failed": "✕",
    "crashed": "↯",
    "error": "!",
    "not_evaluated": "–",
    "unscored": "·",
}
WORDS: Final = {
    "crashed": "crashed",
    "failed": "failed",
    "error": "error",
    "not_evaluated": "not evaluated",
    "passed": "passed",
    "unscored": "not scored",
}


class Key(NamedTuple):
    """One key, or two keys pressed in sequence."""

    keys: str
    action: str
    """The `data-action` of the element."""
    words: str
    scope: str


KEYS: Final = (
    Key("/", "search", "go to the search", "everywhere"),
    Key("?", "keys", "show the keys", "everywhere"),
    Key("j", "next-row", "next row", "lists"),
    Key("k", "previous-row", "previous row", "lists"),
    Key("Enter", "", "open the row", "lists"),
    Key("]", "next-difference", "next difference", "case"),
    Key("[", "previous-difference", "previous difference", "case"),
    Key("t", "next-turn", "next turn", "case"),
    Key("T", "previous-turn", "previous turn", "case"),
    Key("d", "fold", "show or fold equal arguments", "case"),
)
"""The keys of every reader, by scope."""


class Quote(NamedTuple):
    """A judge's quote from a turn, and its number among those of the case."""

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


@cache
def templates(package: str = "", folder: str = "page") -> Environment:
    """Return the shared templates, and those in a folder of a package, with autoescaping."""
    shared = PackageLoader("evaltap.evaluator.reports.html", "templates")
    own = [PackageLoader(package, folder)] if package else []
    made = Environment(
        loader=ChoiceLoader([*own, shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    names = ["amount", "day_time", "duration", "money", "number", "percent", "typeset", "when"]
    made.filters.update({name: getattr(figures, name) for name in names})
    made.globals.update(pieces_of=pieces_of, signs=SIGNS, stack_of=stack, words=WORDS)
    return made


def _finalize(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
