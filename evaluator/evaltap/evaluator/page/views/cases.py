"""The list of cases: a filter as chips, a page of rows, and suggestions if nothing matches."""

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from evaltap.evaluator.analysis.filters.choice import Choice, chosen_query, told_of_left_out
from evaltap.evaluator.analysis.filters.language import (
    FIELDS,
    MOST_TERMS,
    NO_FILTER,
    SORTS,
    Filter,
    parse_filter,
)
from evaltap.evaluator.analysis.filters.listing import OPENING_LENGTH, ListedCase, list_page
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.masking import without_words
from evaltap.evaluator.page.request import PageRequest, case_link, key_text, link
from evaltap.evaluator.reports.wording import readable
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

PER_PAGE: Final = 50
MOST_COUNTED: Final = 10_000
_WORD: Final = re.compile(r'\s*(?P<word>-?(?:[A-Za-z_]+:)?(?:"[^"]*"?|[^\s"])+)')


@dataclass(frozen=True, slots=True)
class Chip:
    """One term of the filter, and the list without it."""

    text: str
    without: str
    """The filter that remains when the chip is removed."""
    href: str
    matched: int | None = None
    """The number of matching cases without the chip; computed if nothing matches."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    case: ListedCase
    href: str
    key: str
    """The value of a form field."""
    picked: bool
    """Whether the case is in the reader's basket."""
    reason: str
    """The first reason why it did not pass, on one line."""


@dataclass(frozen=True, slots=True)
class CasesPage:
    query: str
    problems: tuple[str, ...]
    """The parts of the filter that are invalid; the other parts apply."""
    chips: tuple[Chip, ...]
    sort: str
    sorts: tuple[tuple[str, str], ...]
    """Each order with its link."""
    rows: tuple[CaseRow, ...]
    matched: int
    """The number of matching cases."""
    next_href: str
    previous_href: str
    landed: bool
    """Whether any case has landed at all."""
    fields: tuple[tuple[str, str], ...]
    left_out: str
    """A sentence on turns of runs on cases, which the list leaves out unless the filter names them."""


def read(reader: StoreReader, request: PageRequest) -> CasesPage:
    """Return the page of cases for the parameters `q`, `sort` and `after`."""
    written = request["q"]
    found, problems = chosen(request)
    choice = Choice(found, traffic=True)
    page = list_page(
        reader, choice, PER_PAGE, after=request["after"], before=request["before"], now=request.now
    )
    picked = changes.picked(reader, request.person)
    rows = [_row(case, picked, request) for case in page.cases]
    chips = _chips(written)
    if not rows and chips:
        chips = [_counted(reader, chip, request) for chip in chips]

    def at(**place: str) -> str:
        return link("/cases", q=written, sort=request["sort"], **place)

    return CasesPage(
        query=written,
        problems=tuple(problems),
        chips=tuple(chips),
        sort=found.sort,
        sorts=tuple((name, link("/cases", q=written, sort=name)) for name in SORTS),
        rows=tuple(rows),
        matched=page.matched,
        next_href=at(after=page.next) if page.next else "",
        previous_href=at(before=page.previous) if page.previous else "",
        landed=bool(rows) or bool(reader.rows("SELECT 1 FROM cases LIMIT 1")),
        fields=tuple(FIELDS.items()),
        left_out=told_of_left_out(reader, choice),
    )


def chosen(request: PageRequest) -> tuple[Filter, list[str]]:
    """Return the filter of a list by its parameters `q` and `sort`, and problems of its invalid parts."""
    found, problems = allowed(request["q"], request)
    if request["sort"] in SORTS:
        found = replace(found, sort=request["sort"])
    return found, problems


def allowed(written: str, request: PageRequest) -> tuple[Filter, list[str]]:
    """Return the valid parts of a filter that the reader may use, and problems of the others."""
    found, problems = understood(written)
    if not request.masked:
        return found, problems
    found, refused = without_words(found)
    return found, [*problems, *refused]


def understood(written: str) -> tuple[Filter, list[str]]:
    """Return the valid parts of a filter, and problems of the others."""
    if not written:
        return NO_FILTER, []
    try:
        return parse_filter(written), []
    except InputError:
        pass
    problems, kept = [], []
    for word in words_of(written):
        try:
            parse_filter(word)
        except InputError as error:
            problems.append(str(error).partition(": ")[2] or str(error))
        else:
            kept.append(word)
    try:
        return parse_filter(" ".join(kept)), problems
    except InputError as error:
        return NO_FILTER, [*problems, str(error)]


def all_of(request: PageRequest) -> Filter:
    """Return the filter of the parameter `q`; raise InputError if any part of it is invalid."""
    found, problems = understood(request["q"])
    if problems:
        raise InputError(problems[0])
    return found


def words_of(written: str) -> list[str]:
    """Return the terms of a filter as they were written, no more than a filter may have and one."""
    return [found["word"] for found in islice(_WORD.finditer(written), MOST_TERMS + 1)]


def _chips(written: str) -> list[Chip]:
    words = words_of(written)
    made = []
    for place, word in enumerate(words):
        rest = " ".join([*words[:place], *words[place + 1 :]])
        text = f"not {word[1:]}" if word.startswith("-") and len(word) > 1 else word
        made.append(
            Chip(text.replace(":", " ", 1) if ":" in text else text, rest, link("/cases", q=rest))
        )
    return made


def _counted(reader: StoreReader, chip: Chip, request: PageRequest) -> Chip:
    """Return a chip with the number of matching cases without it."""
    found, problems = allowed(chip.without, request)
    if problems:
        return chip
    query = chosen_query(
        reader, Choice(found, traffic=True), columns="1", limit=MOST_COUNTED, now=request.now
    )
    counted = f"SELECT count(*) FROM ({query.statement})"
    return replace(chip, matched=reader.rows(counted, query.parameters)[0][0])


def _row(case: ListedCase, picked: Container[CaseKey], request: PageRequest) -> CaseRow:
    key = case.app, case.eval_set_id, case.eval_id
    href = case_link(key, q=request["q"], sort=request["sort"])
    reason = one_line(readable(case.reason), OPENING_LENGTH)
    return CaseRow(case, href, key_text(key), key in picked, reason)
