"""Sessions and people, and links for inviting colleagues."""

from dataclasses import dataclass
from datetime import UTC, datetime

from evaltap.evaluator.page import changes
from evaltap.evaluator.page.changes import Change, CursorWriter
from evaltap.evaluator.page.request import PageAnswer, PageRequest
from evaltap.evaluator.page.security.access import INVITATION_SECONDS, Access, Person
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A session as shown to an admin."""

    session_id: str
    name: str
    role: str
    opened_at: datetime
    seen_at: datetime
    own: bool


@dataclass(frozen=True, slots=True)
class SettingsPage:
    sessions: tuple[LoggedIn, ...]
    people: tuple[Person, ...]
    """People on the list: an invitation adds a person, and a proxy may name them."""
    link: str = ""
    """A new link, shown once."""
    invited: str = ""
    problem: str = ""


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Return the sessions and people."""
    return _shown(SettingsPage(_sessions(request), _people(request)))


def invite(writer: CursorWriter, request: PageRequest) -> PageAnswer:
    """Return the settings with a link for a colleague."""
    name, role = request["name"], request["role"]
    try:
        code = _access(request).invite(Person(name, role), INVITATION_SECONDS)
    except InputError as error:
        return _shown(SettingsPage(_sessions(request), _people(request), problem=str(error)), 400)
    _access(request).enrol(Person(name, role))
    changes.write(writer, request.person, [Change("invite", target=name, detail={"role": role})])
    return _shown(
        SettingsPage(_sessions(request), _people(request), f"{request.address}/login#{code}", name)
    )


def end(writer: CursorWriter, request: PageRequest) -> str:
    """End a person's session."""
    named = [one.name for one in _sessions(request) if one.session_id == request["session"]]
    _access(request).end(request["session"])
    changes.write(writer, request.person, [Change("end_session", target=name) for name in named])
    return "/settings"


def remove(writer: CursorWriter, request: PageRequest) -> str:
    """Remove a person from the list, with their sessions and links."""
    if request["name"] in _access(request).people():
        _access(request).remove(request["name"])
        changes.write(writer, request.person, [Change("remove_person", target=request["name"])])
    return "/settings"


def _shown(page: SettingsPage, status: int = 200) -> PageAnswer:
    return PageAnswer("settings.html.j2", "Settings", page, status)


def _access(request: PageRequest) -> Access:
    assert request.access is not None  # the application provides it
    return request.access


def _sessions(request: PageRequest) -> tuple[LoggedIn, ...]:
    return tuple(
        LoggedIn(
            one.session_id,
            one.person.name,
            one.person.role,
            _at(one.opened_at),
            _at(one.seen_at),
            one.session_id == request.session_id,
        )
        for one in _access(request).sessions()
    )


def _people(request: PageRequest) -> tuple[Person, ...]:
    return tuple(Person(name, role) for name, role in sorted(_access(request).people().items()))


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
