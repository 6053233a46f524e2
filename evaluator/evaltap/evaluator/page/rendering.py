"""Render data as HTML: the templates, their functions, and the frame around every page."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from jinja2 import Environment

from evaltap.evaluator.monitoring.measures import shown
from evaltap.evaluator.page.request import PageAnswer, PageRequest, link
from evaltap.evaluator.page.statements import Statement
from evaltap.evaluator.reports.charts import STATUS_WORDS, amount, money
from evaltap.evaluator.reports.html import DIFF_STYLE, templates
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
    Key("g o", "go-overview", "go to the overview", "everywhere"),
    Key("g c", "go-cases", "go to the cases", "everywhere"),
    Key("g r", "go-runs", "go to the runs", "everywhere"),
    Key("g e", "go-experiments", "go to the experiments", "everywhere"),
    Key("g u", "go-review", "go to the review", "everywhere"),
    Key("g b", "go-basket", "go to the basket", "everywhere"),
    Key("g v", "go-coverage", "go to the coverage", "everywhere"),
    Key("g j", "go-judges", "go to the judges", "everywhere"),
    Key("g d", "go-delivery", "go to the delivery", "everywhere"),
    Key("g a", "go-alerts", "go to the alerts", "everywhere"),
    Key(".", "pause", "pause or resume", "everywhere"),
    Key("y", "copy-link", "copy the link to this page", "everywhere"),
    Key("j", "next-row", "next row", "lists"),
    Key("k", "previous-row", "previous row", "lists"),
    Key("Enter", "", "open the row", "lists"),
    Key("x", "pick-row", "pick or unpick the row", "lists"),
    Key("b", "to-basket", "add the picked cases, or this case, to the basket", "lists"),
    Key("n", "next-page", "next page, or next case", "lists"),
    Key("p", "previous-page", "previous page, or previous case", "lists"),
    Key("Escape", "back", "back to the list", "case"),
    Key("]", "next-difference", "next difference", "case"),
    Key("[", "previous-difference", "previous difference", "case"),
    Key("t", "next-turn", "next turn", "case"),
    Key("T", "previous-turn", "previous turn", "case"),
    Key("d", "fold", "show or fold equal arguments", "case"),
    Key("r", "to-review", "queue the picked cases, or this case, for review", "case"),
    Key("=", "use-as-expected", "use as expected", "case"),
    Key("s", "start-review", "start the first queue that has turns for you", "review"),
    Key("1", "approve", "approve", "review"),
    Key("2", "reject", "reject", "review"),
    Key("3", "skip", "skip", "review"),
    Key("a", "approve", "approve", "review"),
    Key("x", "reject", "reject", "review"),
    Key("l", "labels", "write labels", "review"),
    Key("e", "edit-tools", "edit the tools", "review"),
    Key("w", "edit-answer", "edit the answer", "review"),
    Key("c", "comment", "write a comment", "review"),
    Key("s", "skip", "skip", "review"),
    Key("u", "undo", "undo the last decision", "review"),
)
"""PageAnswer by scope, in this order."""


STATIC: Final = Path(__file__).parent / "static"
SCRIPTS: Final = ("htmx.min.js", "hx-csp.min.js", "live.js", "page.js")
THEMES: Final = ("system", "light", "dark")
_PER_CENT: Final = re.compile(r"(?<=\d)%")
_MINUS: Final = re.compile(r"(?<![\w.:-])-(?=\d)")
SIGNS: Final = {
    "passed": "✓",
    "failed": "✕",
    "crashed": "↯",
    "error": "!",
    "not_evaluated": "–",
    "unscored": "·",
}
WORDS: Final = {**STATUS_WORDS, "unscored": "not scored"}


class NavigationItem(NamedTuple):
    """One entry of the navigation bar."""

    path: str
    name: str
    key: str
    """The second key after `g`."""
    role: str = "viewer"
    within: tuple[str, ...] = ()
    """Pages that belong to the entry but are not in the bar."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame around a page."""

    nonce: str
    theme: str
    path: str
    """The path of this page, with its parameters."""
    milliseconds: float
    statements: tuple[Statement, ...]
    navigation: tuple[NavigationItem, ...]
    marks: Mapping[str, str]
    """The counts next to entries of the bar, by path."""


@cache
def asset(name: str) -> str:
    """Return the address of a static file; it changes with the content, so it can be cached indefinitely."""
    digest = hashlib.sha256(_file(name).read_bytes()).hexdigest()[:12]
    stem, _, ending = name.rpartition(".")
    return f"/static/{stem}.{digest}.{ending}"


@cache
def assets() -> Mapping[str, Path]:
    """Return the static files by their addresses."""
    endings = (".js", ".css", ".svg")
    files = [DIFF_STYLE, *(file for file in STATIC.iterdir() if file.suffix in endings)]
    return {asset(file.name): file for file in files}


def _file(name: str) -> Path:
    return DIFF_STYLE if name == DIFF_STYLE.name else STATIC / name


@cache
def environment() -> Environment:
    """Return the template environment with its functions."""
    made = templates("evaltap.evaluator.page", "templates")
    made.filters.update(
        amount=amount,
        money=money,
        number=number,
        percent=percent,
        measured=measured,
        when=when,
        day_time=day_time,
        typeset=typeset,
    )
    made.globals.update(
        asset=asset,
        link=link,
        signs=SIGNS,
        words=WORDS,
        scripts=SCRIPTS,
        keys=KEYS,
        product_version=product_version(),
        pieces_of=pieces_of,
    )
    return made


def render(shown: PageAnswer, request: PageRequest | None, frame: Frame) -> str:
    """Return the HTML of a page, or of a part of one."""
    template = environment().get_template(shown.template)
    context: dict[str, object] = {
        "data": shown.data,
        "request": request,
        "frame": frame,
        "title": shown.title,
    }
    return template.render(context)


@cache
def product_version() -> str:
    """Return the version of evaltap."""
    try:
        return version("evaltap")
    except PackageNotFoundError:  # running from the source folder, not installed
        return ""


def number(value: float | None) -> str:
    """Return a score with at most three decimals."""
    return "–" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in per cent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def measured(value: float, unit: str) -> str:
    """Return a watched share or mean."""
    return shown(value, unit) if unit else percent(value)


def typeset(text: str) -> str:
    """Return figures of the command line in the page's typography: `93.8 % → 75.0 %`, with a true minus."""
    return _MINUS.sub("−", _PER_CENT.sub("\u00a0%", text)).replace("->", "→")


def when(at: datetime | None) -> str:
    """Return a time in UTC as `23 Nov 14:02:11`."""
    return "" if at is None else f"{at.day} {at:%b %H:%M:%S}"


def day_time(at: datetime | None) -> str:
    """Return a time in UTC as `23 Nov 14:02`."""
    return "" if at is None else f"{at.day} {at:%b %H:%M}"


def as_json(data: object) -> bytes:
    """Return data as JSON; invalid Unicode is written as escapes."""
    try:
        return orjson.dumps(data, default=_plain, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(_unpacked(data), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return _parts(value) or list(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def _unpacked(value: object) -> object:
    """Return data as dictionaries and lists, because `json` drops the names of named tuples."""
    if parts := _parts(value):
        return {str(name): _unpacked(one) for name, one in parts.items()}
    if isinstance(value, list | tuple):
        return [_unpacked(one) for one in value]
    return value


def _parts(value: Any) -> Mapping[Any, Any]:
    """Return the named parts of a value; empty if it has none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return {name: getattr(value, name) for name in getattr(value, "_fields", ())}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return {}
