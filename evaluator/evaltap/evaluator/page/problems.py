"""Pages that say what went wrong and what to do."""

from dataclasses import dataclass

from evaltap.evaluator.page.request import PageAnswer
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
    """What went wrong, in words for the reader."""

    status: int
    title: str
    message: str


def problem(status: int, message: str) -> PageAnswer:
    """Return the page that tells a problem."""
    found = Problem(status, _TITLES.get(status, "This cannot be shown"), message)
    return PageAnswer("problem.html.j2", found.title, found, status)


def not_for(person: Person, role: str) -> PageAnswer:
    """Return the page for somebody whose role does not suffice."""
    return problem(403, f"This requires the role {role}; {person.name} is a {person.role}.")


def problem_of(error: EvaltapError) -> PageAnswer:
    """Return the page for an error of evaltap, whose text is meant for people."""
    status = (
        504 if isinstance(error, TooSlowError) else 503 if isinstance(error, BusyError) else 400
    )
    return problem(status, str(error))
