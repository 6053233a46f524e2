"""Requests and answers of pages: plain data, so that views need no server."""

import shlex
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from evaltap.evaluator.analysis.filters.language import quoted
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.page.security.access import Access, Person
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.store.errors import BusyError, TooSlowError
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import EvaltapError

_MOST_KEPT: Final = 64
_LONG: Final = 0.1
"""The seconds that an answer takes at least for which nobody waits twice."""
LATE_SECONDS: Final = 1.0
"""With the five seconds of `SharedAnswers` less than the six after which a page asks once more (live.js)."""
PAST_SECONDS: Final = 60.0
"""How long, in seconds, data of a past span stays valid."""

T = TypeVar("T")


def of_the_past() -> "SharedAnswers[Any]":
    """Return a cache for answers about past spans, which hardly change."""
    return SharedAnswers(times_as_long=1_000_000, most_seconds=PAST_SECONDS)


@dataclass(slots=True)
class _Kept(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: T | None = None
    until: float = 0.0
    late: float = 0.0
    """How long after `until` the answer is given while the next is read."""


class SharedAnswers(Generic[T]):
    """Caches each answer for a multiple of the time it took to read, up to some seconds.

    However many browsers show a page, reading it takes a twentieth of a processor, and the page of a small
    file is up to date immediately.  Of an answer that takes long to read, the last one is given for
    `late_seconds` more, while a thread reads the next: so hardly anyone waits for it.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        times_as_long: float = 20,
        most_seconds: float = 5.0,
        late_seconds: float = 0.0,
    ) -> None:
        self._clock = clock
        self._times_as_long = times_as_long
        self._most_seconds = most_seconds
        self._late_seconds = late_seconds
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept[T]] = {}

    def get(
        self, key: Hashable, read: Callable[[], T], *, is_good: Callable[[T], bool] = lambda _: True
    ) -> T:
        """Return the cached answer for a key, or read it; answers that are not good are not cached."""
        with self._lock:
            kept = self._kept.pop(key, None) or _Kept[T]()
            self._kept[key] = kept  # moves the key to the end, which is the newest
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        last = kept.answer
        if last is not None and 0 <= self._clock() - kept.until < kept.late:
            if kept.lock.acquire(blocking=False):
                threading.Thread(
                    target=self._read_and_release, args=(kept, read, is_good), daemon=True
                ).start()
            return last
        with kept.lock:  # concurrent requests wait for the same answer
            return self._read(kept, read, is_good)

    def _read_and_release(
        self, kept: _Kept[T], read: Callable[[], T], is_good: Callable[[T], bool]
    ) -> None:
        try:
            self._read(kept, read, is_good)
        finally:
            kept.lock.release()

    def _read(self, kept: _Kept[T], read: Callable[[], T], is_good: Callable[[T], bool]) -> T:
        began = self._clock()
        if kept.answer is not None and began < kept.until:
            return kept.answer
        answer = read()
        if is_good(answer):
            took = self._clock() - began
            kept.answer = answer
            kept.until = began + took + min(self._times_as_long * took, self._most_seconds)
            kept.late = self._late_seconds if took > _LONG else 0.0
        return answer


def now_utc() -> datetime:
    """Return the current aware time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the turns that land while the page is open: the log, and code to record to it."""

    log: str = ""
    record_with: tuple[str, ...] = ()


NO_SOURCE: Final = Source()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request for a page: its parameters, the person, and the time."""

    parameters: Mapping[str, str]
    person: Person
    store_path: Path
    live: bool = False
    """Whether turns are being landed while the page is open."""
    source: Source = NO_SOURCE
    references: References | None = None
    """Expected turns that did not land with their cases."""
    now: datetime = field(default_factory=now_utc)
    sets: tuple[Path, ...] = ()
    """Eval sets with which traffic is compared."""
    redact: Callable[[CaseData], CaseData] = lambda case: case
    """Redacts cases before they are exported."""
    access: Access | None = None
    """The people who may use the page, for the settings."""
    address: str = ""
    session_id: str = ""
    masks: bool = False
    """Whether contents are hidden from viewers."""
    past: SharedAnswers[Any] = field(default_factory=of_the_past)
    """Cached data of past spans."""
    trace_url: TraceUrl | None = None
    """The address of turns' traces."""

    def __getitem__(self, name: str) -> str:
        return self.exact(name).strip()

    def exact(self, name: str) -> str:
        """Return a parameter as it was sent: ids and names may begin or end with a space."""
        return self.parameters.get(name, "")

    def count(self, name: str) -> int:
        """Return a parameter as a count; 0 if it is invalid."""
        text = self[name]
        return int(text) if text.isdecimal() and len(text) < 10 else 0

    @property
    def store_name(self) -> str:
        """The name of the store in the commands that a page shows."""
        return shlex.quote(self.store_path.name)

    @property
    def masked(self) -> bool:
        """Whether contents are hidden from the reader."""
        return self.masks and not self.person.may("reviewer")

    @property
    def key(self) -> CaseKey:
        return self.exact("app"), self.exact("set"), self.exact("id")

    @property
    def keys(self) -> list[CaseKey]:
        """The cases in a form's fields `case`, `case-1`, `case-2`, …"""
        named = sorted(name for name in self.parameters if name.partition("-")[0] == "case")
        return [key for name in named if (key := key_of(self.parameters[name]))[2]]

    @property
    def path(self) -> str:
        """The path to which a form redirects: `next`, within the page."""
        return local_path(self["next"])


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The result of a view: data for its template, which is also the JSON of the page."""

    template: str
    title: str
    data: Any
    status: int = 200


@dataclass(frozen=True, slots=True)
class Tab:
    """A part of a list that can be shown alone."""

    name: str
    count: int
    href: str


@dataclass(frozen=True, slots=True)
class Download:
    name: str
    content: bytes
    media_type: str = "application/octet-stream"


def key_text(key: CaseKey) -> str:
    """Return a case as the value of a form field; hidden characters of ids are escaped."""
    return urlencode({"app": key[0], "set": key[1], "id": key[2]})


def key_of(text: str) -> CaseKey:
    found = dict(parse_qsl(text, keep_blank_values=True))
    return found.get("app", ""), found.get("set", ""), found.get("id", "")


def local_path(written: str) -> str:
    """Return the path if it is within this page; otherwise `/`."""
    parts = urlsplit(written)
    strange = parts.scheme or parts.netloc or "\\" in written or not written.isprintable()
    if strange or not written.startswith("/") or written.startswith("//"):
        return "/"
    return written


def case_link(key: CaseKey, path: str = "/case", **parameters: str | int | None) -> str:
    """Return the address of a case's page, or of another page about it."""
    return link(path, set=key[1], id=key[2], app=key[0], **parameters)


def list_of(eval_id: str) -> str:
    """Return the link to the list that only contains one id; empty for an id that filters cannot contain."""
    return "" if '"' in eval_id else link("/cases", q=f"id:{quoted(eval_id)}")


def link(path: str, **parameters: str | int | None) -> str:
    """Return an address within the page; empty parameters are omitted."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


_TITLES = {
    403: "No permission",
    404: "Not found",
    400: "This cannot be shown",
    503: "Busy",
    504: "This took too long",
}


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    title: str
    message: str
    narrower: tuple[tuple[str, str], ...] = ()
    """Names and links of spans that can be read in time."""


def problem(status: int, message: str) -> PageAnswer:
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
