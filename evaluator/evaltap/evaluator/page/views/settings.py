"""Who is logged in, and a link for a colleague."""

from dataclasses import dataclass
from datetime import UTC, datetime

from evaltap.evaluator.page.security.access import INVITATION_SECONDS, Access, Person


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A session as an admin sees it."""

    session_id: str
    name: str
    role: str
    opened_at: datetime
    seen_at: datetime
    own: bool


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """What the page shows."""

    sessions: tuple[LoggedIn, ...]
    link: str
    """A new link, shown once."""
    invited: str
    problem: str


def read(
    access: Access, own: str, *, link: str = "", invited: str = "", problem: str = ""
) -> SettingsPage:
    """Return the sessions; `own` is the reader's own."""
    return SettingsPage(
        tuple(
            LoggedIn(
                one.session_id, one.person.name, one.person.role, _at(one.opened_at), _at(one.seen_at),
                one.session_id == own,
            )
            for one in access.sessions()
        ),
        link, invited, problem,
    )  # fmt: skip


def invite(access: Access, address: str, name: str, role: str) -> str:
    """Return a link for a colleague; raises InputError for a name or role that makes no sense."""
    code = access.invite(Person(name.strip(), role), INVITATION_SECONDS)
    return f"{address}/login#{code}"


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
