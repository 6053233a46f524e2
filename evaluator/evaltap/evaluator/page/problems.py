"""Pages that explain a problem and its solution."""

from dataclasses import dataclass, replace

from evaltap.evaluator.page.request import PageAnswer, PageRequest, link
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.store.errors import BusyError, TooSlowError
from evaltap.schemas.errors import EvaltapError

_TITLES = {
    403: "No permission",
    404: "Not found",
    400: "This cannot be shown",
    503: "Busy",
    504: "This took too long",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, described for the reader."""

    status: int
    title: str
    message: str
    narrower: tuple[tuple[str, str], ...] = ()
    """Names and links of spans that can be read in time."""


def problem(status: int, message: str) -> PageAnswer:
    """Return the page that describes a problem."""
    found = Problem(status, _TITLES.get(status, "This cannot be shown"), message)
    return PageAnswer("problem.html.j2", found.title, found, status)


def forbidden(person: Person, role: str) -> PageAnswer:
    """Return the page for a person whose role does not suffice."""
    return problem(403, f"This requires the role {role}; {person.name} is a {person.role}.")


def problem_of(
    error: EvaltapError, path: str = "", request: PageRequest | None = None
) -> PageAnswer:
    """Return the page for an error of evaltap, whose text is meant for users.

    If a list of all times took too long, the page links to the same list for shorter spans.
    """
    if isinstance(error, TooSlowError):
        shown = problem(504, str(error))
        narrower = _narrower(request["q"]) if path == "/cases" and request else ()
        return replace(shown, data=replace(shown.data, narrower=narrower))
    return problem(503 if isinstance(error, BusyError) else 400, str(error))


def _narrower(q: str) -> tuple[tuple[str, str], ...]:
    if any(name in q for name in ("since:", "from:", "to:")):
        return ()
    return tuple(
        (f"last {words}", link("/cases", q=f"{q} since:{span}".strip()))
        for words, span in (("24 hours", "24h"), ("7 days", "7d"), ("30 days", "30d"))
    )
