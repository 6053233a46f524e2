"""The cases before and after a case in the list from which the reader came."""

from dataclasses import dataclass

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.page.paging import around
from evaltap.evaluator.page.request import PageRequest, link
from evaltap.evaluator.page.views.cases import chosen
from evaltap.evaluator.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Links to the list and to the adjacent cases; empty if there is none."""

    list_href: str
    text: str
    """The filter of the list."""
    previous_href: str = ""
    next_href: str = ""
    place: str = ""
    """The position in the list, such as `3 of 1,204`."""


def neighbours(reader: StoreReader, request: PageRequest, key: CaseKey) -> Neighbours:
    """Return the neighbours of a case in the list of the parameters `q` and `sort`."""
    found, _ = chosen(request)
    at = around(reader, Choice(found), key, now=request.now)
    parameters = {"q": request["q"], "sort": request["sort"]}

    def href(one: CaseKey | None) -> str:
        return link("/case", set=one[1], id=one[2], app=one[0], **parameters) if one else ""

    place = f"{at.number:,} of {at.of:,}" if at.number else ""
    return Neighbours(
        link("/cases", **parameters), request["q"], href(at.previous), href(at.next), place
    )
