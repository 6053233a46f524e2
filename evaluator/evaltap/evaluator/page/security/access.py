"""Access to the page: one-time codes, sessions and roles, stored in the user's state folder.

Codes and sessions are files named by the SHA-256 of their secret, which is never stored.  A code is redeemed
by deleting its file, so it opens a single session.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.private import private_file

ROLES: Final = ("viewer", "reviewer", "admin")
"""The roles, each including the previous one: reading; reviewing and exporting; inviting."""
TOKEN_FILE_VARIABLE: Final = "EVALTAP_UI_TOKEN_FILE"
FIRST_LINK_SECONDS: Final = 600.0
INVITATION_SECONDS: Final = 72 * 3600.0
IDLE_SECONDS: Final = 12 * 3600.0
SESSION_SECONDS: Final = 7 * 24 * 3600.0
_TOUCH_SECONDS: Final = 60.0
_SHORTEST_TOKEN: Final = 32


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: str

    def may(self, role: str) -> bool:
        """Return whether this person has a role, or one that includes it."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is logged in."""

    session_id: str
    """Identifies the session in the settings; it does not grant access."""
    person: Person
    opened_at: float
    seen_at: float


def state_folder(store: Path) -> Path:
    """Return the folder in which the page of a DuckDB file stores access data, in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = hashlib.sha256(str(store.resolve()).encode()).hexdigest()[:16]
    return Path(state) / "evaltap" / "ui" / name


class Access:
    """The codes and sessions of one page."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._codes, self._sessions = folder / "codes", folder / "sessions"
        self._folder = folder
        self._people = folder / "people.json"
        self._now = now
        for one in (folder, self._codes, self._sessions):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)

    def own_name(self) -> str:
        """Return the page's name below `localhost`: the same at every start."""
        file = self._folder / "name.json"
        found = _read(file)
        if found is None:
            found = {"name": f"evaltap-{secrets.token_hex(4)}"}
            _write(file, found)
        return f"{found['name']}.localhost"

    def invite(self, person: Person, seconds: float = FIRST_LINK_SECONDS) -> str:
        """Return a code that logs a person in once, within some seconds."""
        if person.role not in ROLES:
            raise InputError(f"unknown role {person.role!r}; expected one of {', '.join(ROLES)}")
        if not person.name.strip() or len(person.name) > 100:
            raise InputError("no name to invite; give --name NAME, 1 to 100 characters")
        self._forget_old()
        code = secrets.token_urlsafe(24)
        _write(self._codes / _digest(code), {**asdict(person), "until": self._now() + seconds})
        return code

    def people(self) -> dict[str, str]:
        """Return the names with permanent access, and their roles."""
        found = _read(self._people) or {}
        return {name: role for name, role in found.items() if role in ROLES}

    def person(self, name: str) -> Person | None:
        """Return a person on the list, as named by a proxy."""
        role = self.people().get(name)
        return Person(name, role) if role else None

    def enrol(self, person: Person) -> None:
        """Add a person to the list, or change the role."""
        _write(self._people, {**self.people(), person.name: person.role})

    def remove(self, name: str) -> None:
        """Remove a person from the list, and end their sessions and codes."""
        _write(self._people, {one: role for one, role in self.people().items() if one != name})
        for file in (*_files(self._codes), *_files(self._sessions)):
            if (found := _read(file)) is not None and found["name"] == name:
                file.unlink(missing_ok=True)

    def redeem(self, code: str) -> Person | None:
        """Redeem a code; return its person, or None for a wrong, used or expired code."""
        if (person := self._by_token_file(code)) is not None:
            return person
        file = self._codes / _digest(code.strip())
        if (found := _read(file)) is None:
            return None
        try:
            file.unlink()
        except FileNotFoundError:  # another request was faster
            return None
        return Person(found["name"], found["role"]) if self._now() < found["until"] else None

    def _by_token_file(self, code: str) -> Person | None:
        if not (path := os.environ.get(TOKEN_FILE_VARIABLE)):
            return None
        try:
            token = Path(path).read_text("utf-8").strip()
        except (OSError, ValueError):
            return None
        if len(token) < _SHORTEST_TOKEN:
            return None
        equal = hmac.compare_digest(token.encode(), code.strip().encode("utf-8", "replace"))
        return Person("token", "admin") if equal else None

    def log_in(self, person: Person) -> str:
        """Return the secret of a new session, for a cookie."""
        secret = secrets.token_urlsafe(32)
        file = self._sessions / _digest(secret)
        _write(file, {**asdict(person), "opened": self._now()})
        os.utime(file, (self._now(), self._now()))
        return secret

    def session(self, secret: str) -> Session | None:
        """Return the session of a cookie and record its use; None if it has ended."""
        file = self._sessions / _digest(secret)
        session = _session(file)
        if session is None or self._is_over(session):
            return None
        if self._now() - session.seen_at >= _TOUCH_SECONDS:
            session = replace(session, seen_at=self._now())
            try:
                os.utime(file, (session.seen_at, session.seen_at))
            except FileNotFoundError:  # ended meanwhile: it must not come back
                return None
        return session

    def sessions(self) -> list[Session]:
        """Return the open sessions, the last used first."""
        found = map(_session, _files(self._sessions))
        open_ones = [one for one in found if one is not None and not self._is_over(one)]
        return sorted(open_ones, key=lambda one: -one.seen_at)

    def end(self, session_id: str) -> None:
        for file in _files(self._sessions):
            if file.name.startswith(session_id) and len(session_id) >= 12:
                file.unlink(missing_ok=True)

    def _is_over(self, session: Session) -> bool:
        now = self._now()
        idle, age = now - session.seen_at, now - session.opened_at
        return idle > IDLE_SECONDS or age > SESSION_SECONDS

    def _forget_old(self) -> None:
        for file in _files(self._codes):
            if (found := _read(file)) is not None and found["until"] <= self._now():
                file.unlink(missing_ok=True)
        for file in _files(self._sessions):
            if (session := _session(file)) is not None and self._is_over(session):
                file.unlink(missing_ok=True)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _session(file: Path) -> Session | None:
    """Return the session in a file, None if it has ended; the file's time is that of its last use."""
    if (found := _read(file)) is None:
        return None
    try:
        seen_at = file.stat().st_mtime
    except OSError:
        return None
    return Session(file.name[:16], Person(found["name"], found["role"]), found["opened"], seen_at)


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if not file.name.startswith("."))


def _read(file: Path) -> JsonObject | None:
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text("utf-8"))
        return found if isinstance(found, dict) else None
    return None


def _write(file: Path, data: Mapping[str, object]) -> None:
    with private_file(file) as written:
        written.write(json.dumps(data).encode())
