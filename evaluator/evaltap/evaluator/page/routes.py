"""The routes: the path of each page, its view, and its required role."""

from collections.abc import Callable
from typing import Final, NamedTuple

from evaltap.evaluator.page.changes import CursorWriter
from evaltap.evaluator.page.rendering import NavigationItem
from evaltap.evaluator.page.request import Download, PageAnswer, PageRequest
from evaltap.evaluator.page.views import (
    basket,
    case,
    cases,
    changes,
    compare,
    coverage,
    delivery,
    expected,
    experiments,
    judges,
    overview,
    review,
    runs,
    settings,
)
from evaltap.evaluator.store.queries import StoreReader

Action = Callable[[CursorWriter, PageRequest], str | PageAnswer | Download]
"""Writes what a form requests; returns a redirect target, a page, or a file."""
View = Callable[[StoreReader, PageRequest], PageAnswer]

PAGE_SECONDS: Final = 5.0
SEARCH_SECONDS: Final = 10.0


class PageRoute(NamedTuple):
    path: str
    view: View
    role: str = "viewer"
    seconds: float = PAGE_SECONDS
    """The time limit of its statements, in seconds."""
    shared: bool = False
    """Whether the page is the same for all readers, and may be some seconds old."""


class ActionRoute(NamedTuple):
    """The target of one form: it writes, and only accepts POST."""

    path: str
    act: Action
    role: str
    seconds: float = PAGE_SECONDS


def _page(title: str, read: Callable[[StoreReader, PageRequest], object]) -> View:
    """Return the view of a page whose template is named like its title."""
    template = f"{title.lower()}.html.j2"
    return lambda reader, request: PageAnswer(template, title, read(reader, request))


PAGES: Final = (
    PageRoute("/", overview.view, shared=True),
    PageRoute("/cases", _page("Cases", cases.read), seconds=SEARCH_SECONDS),
    PageRoute("/case", case.view),
    PageRoute("/runs", _page("Runs", runs.read), seconds=SEARCH_SECONDS),
    PageRoute("/run", runs.view_one, seconds=SEARCH_SECONDS),
    PageRoute("/experiments", _page("Experiments", experiments.read), seconds=SEARCH_SECONDS),
    PageRoute("/experiment", experiments.view_one, seconds=SEARCH_SECONDS),
    PageRoute("/compare", _page("Compare", compare.read), seconds=SEARCH_SECONDS),
    PageRoute("/coverage", _page("Coverage", coverage.read), seconds=SEARCH_SECONDS),
    PageRoute("/delivery", delivery.view, seconds=SEARCH_SECONDS),
    PageRoute("/why", delivery.view, seconds=SEARCH_SECONDS),
    PageRoute("/alerts", delivery.view_alerts),
    PageRoute("/judges", judges.view, seconds=SEARCH_SECONDS),
    PageRoute("/review", _page("Review", review.read), "reviewer"),
    PageRoute("/expected", expected.view, "reviewer"),
    PageRoute("/basket", _page("Basket", basket.read), "reviewer", seconds=SEARCH_SECONDS),
    PageRoute("/changes", changes.view, "reviewer"),
    PageRoute("/settings", settings.view, "admin"),
)

ACTIONS: Final = (
    ActionRoute("/review/next", review.start, "reviewer"),
    ActionRoute("/review/decide", review.act, "reviewer"),
    ActionRoute("/review/undo", review.take_back, "reviewer"),
    ActionRoute("/review/add", review.add, "reviewer", SEARCH_SECONDS),
    ActionRoute("/expected/use", expected.use, "reviewer"),
    ActionRoute("/expected/undo", expected.take_back, "reviewer"),
    ActionRoute("/basket/pick", basket.pick, "reviewer", SEARCH_SECONDS),
    ActionRoute("/basket/drop", basket.drop, "reviewer"),
    ActionRoute("/basket/export", basket.export, "reviewer", SEARCH_SECONDS),
    ActionRoute("/basket/add-to-set", basket.add_to_set, "reviewer", SEARCH_SECONDS),
    ActionRoute("/changes/undo", changes.undo, "reviewer"),
    ActionRoute("/settings/invite", settings.invite, "admin"),
    ActionRoute("/settings/end", settings.end, "admin"),
    ActionRoute("/settings/remove", settings.remove, "admin"),
)

NAVIGATION: Final = (
    NavigationItem("/", "Overview", "o"),
    NavigationItem("/cases", "Cases", "c", within=("/case", "/expected")),
    NavigationItem("/runs", "Runs", "r", within=("/run", "/compare")),
    NavigationItem("/experiments", "Experiments", "e", within=("/experiment",)),
    NavigationItem("/review", "Review", "u", "reviewer"),
    NavigationItem("/basket", "Basket", "b", "reviewer"),
    NavigationItem("/coverage", "Coverage", "v"),
    NavigationItem("/judges", "Judges", "j"),
    NavigationItem("/delivery", "Delivery", "d", within=("/why",)),
    NavigationItem("/alerts", "Alerts", "a"),
)
