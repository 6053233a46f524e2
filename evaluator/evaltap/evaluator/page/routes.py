"""The pages: where each is, which view reads it, and the role that it needs."""

from collections.abc import Callable
from typing import Final, NamedTuple

from evaltap.evaluator.page.asked import Asked, Shown
from evaltap.evaluator.page.rendering import NavigationItem
from evaltap.evaluator.page.views import (
    case,
    cases,
    compare,
    coverage,
    delivery,
    overview,
    review,
    runs,
)
from evaltap.evaluator.page.writing import CursorWriter
from evaltap.evaluator.store.queries import StoreReader

Action = Callable[[CursorWriter, Asked], str]
"""Writes what a form asks for; returns where the browser goes then."""
View = Callable[[StoreReader, Asked], Shown]

PAGE_SECONDS: Final = 2.0
SEARCH_SECONDS: Final = 10.0


class PageRoute(NamedTuple):
    """One page."""

    path: str
    view: View
    role: str = "viewer"
    seconds: float = PAGE_SECONDS
    """How long its statements may take."""


class ActionRoute(NamedTuple):
    """One form's target: it writes, and is only ever posted to."""

    path: str
    act: Action
    role: str


PAGES: Final = (
    PageRoute("/", overview.view),
    PageRoute("/cases", cases.view, seconds=SEARCH_SECONDS),
    PageRoute("/case", case.view),
    PageRoute("/runs", runs.view, seconds=SEARCH_SECONDS),
    PageRoute("/run", runs.view_one, seconds=SEARCH_SECONDS),
    PageRoute("/compare", compare.view, seconds=SEARCH_SECONDS),
    PageRoute("/coverage", coverage.view, seconds=SEARCH_SECONDS),
    PageRoute("/delivery", delivery.view, seconds=SEARCH_SECONDS),
    PageRoute("/alerts", delivery.view_alerts),
    PageRoute("/review", review.view, "reviewer"),
)

ACTIONS: Final = (
    ActionRoute("/review/next", review.start, "reviewer"),
    ActionRoute("/review/decide", review.act, "reviewer"),
    ActionRoute("/review/undo", review.take_back, "reviewer"),
    ActionRoute("/review/add", review.add, "reviewer"),
)

NAVIGATION: Final = (
    NavigationItem("/", "Overview", "o"),
    NavigationItem("/cases", "Cases", "c"),
    NavigationItem("/runs", "Runs", "r"),
    NavigationItem("/review", "Review", "u", "reviewer"),
    NavigationItem("/coverage", "Coverage", "v"),
    NavigationItem("/delivery", "Delivery", "d"),
    NavigationItem("/alerts", "Alerts", "a"),
)
