"""Render data as HTML: the templates, their functions, and the frame around every page."""

import hashlib
import json
from collections.abc import Mapping
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
from evaltap.evaluator.reports.figures import percent
from evaltap.evaluator.reports.html import rendering as html
from evaltap.evaluator.reports.html.rendering import Key

KEYS: Final = (
    *html.KEYS,
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
    Key("x", "pick-row", "pick or unpick the row", "lists"),
    Key("b", "to-basket", "add the picked cases, or this case, to the basket", "lists"),
    Key("n", "next-page", "next page, or next case", "lists"),
    Key("p", "previous-page", "previous page, or previous case", "lists"),
    Key("Escape", "back", "back to the list", "case"),
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
"""Keys by scope, in this order."""

STATIC: Final = Path(__file__).parent / "static"
SCRIPTS: Final = ("htmx.min.js", "hx-csp.min.js", "live.js", "keys.js", "page.js")
THEMES: Final = ("system", "light", "dark")


class NavigationItem(NamedTuple):
    path: str
    name: str
    key: str
    """The second key after `g`."""
    role: str = "viewer"
    within: tuple[str, ...] = ()
    """Pages that belong to the entry but are not in the bar."""


@dataclass(frozen=True, slots=True)
class Frame:
    nonce: str
    theme: str
    path: str
    """The path of this page, with its parameters."""
    milliseconds: float
    statements: tuple[Statement, ...]
    navigation: tuple[NavigationItem, ...]
    marks: Mapping[str, str]
    """The counts next to entries of the bar, by path."""


def asset(name: str) -> str:
    """Return the address of a static file; it changes with the content, so it can be cached indefinitely."""
    return next(address for address, file in assets().items() if file.name == name)


@cache
def assets() -> Mapping[str, Path]:
    """Return the static files by their addresses."""
    shared = [html.STATIC / name for name in ("keys.js", "style.css")]
    own = [file for file in STATIC.iterdir() if file.suffix in (".js", ".css", ".svg")]
    return {_address(file): file for file in (*shared, *own)}


def _address(file: Path) -> str:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    return f"/static/{file.stem}.{digest}{file.suffix}"


@cache
def environment() -> Environment:
    made = html.templates("evaltap.evaluator.page", "templates")
    made.filters.update(measured=measured)
    made.globals.update(
        asset=asset, keys=KEYS, link=link, product_version=product_version(), scripts=SCRIPTS
    )
    return made


def render(shown: PageAnswer, request: PageRequest | None, frame: Frame) -> str:
    """Return the HTML of a page, or of a part of one."""
    template = environment().get_template(shown.template)
    return template.render(data=shown.data, request=request, frame=frame, title=shown.title)


@cache
def product_version() -> str:
    try:
        return version("evaltap")
    except PackageNotFoundError:  # running from the source folder, not installed
        return ""


def measured(value: float, unit: str) -> str:
    """Return a watched share or mean."""
    return shown(value, unit) if unit else percent(value)


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
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return {name: getattr(value, name) for name in getattr(value, "_fields", ())}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return {}
