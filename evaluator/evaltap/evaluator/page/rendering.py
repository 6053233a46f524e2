"""Render data as HTML: the templates, their functions, and the frame around every page."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment

from evaltap.evaluator.page.keys import KEYS
from evaltap.evaluator.page.quotes import pieces_of
from evaltap.evaluator.page.request import PageAnswer, PageRequest, link
from evaltap.evaluator.page.statements import Statement
from evaltap.evaluator.reports.charts import STATUS_WORDS, amount, money
from evaltap.evaluator.reports.html import DIFF_STYLE, templates

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
        amount=amount, money=money, number=number, percent=percent, when=when,
        day_time=day_time, typeset=typeset,
    )  # fmt: skip
    made.globals.update(
        asset=asset, link=link, signs=SIGNS, words=WORDS, scripts=SCRIPTS, keys=KEYS,
        product_version=product_version(), pieces_of=pieces_of,
    )  # fmt: skip
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


def typeset(text: str) -> str:
    """Return figures of the command line in the page's typography: `93.8 % → 75.0 %`, with a true minus."""
    return _MINUS.sub("−", _PER_CENT.sub("\u00a0%", text)).replace("->", "→")


def when(at: datetime | None) -> str:
    """Return a time in UTC as `23 Nov 14:02:11`."""
    return "" if at is None else f"{at.day} {at:%b %H:%M:%S}"


def day_time(at: datetime | None) -> str:
    """Return a time in UTC as `23 Nov 14:02`."""
    return "" if at is None else f"{at.day} {at:%b %H:%M}"
