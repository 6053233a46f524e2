"""What a page is asked for and what it answers: plain data, so that views need no server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.page.security.access import Person


def now_utc() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a page: its parameters, who asks, and when."""

    parameters: Mapping[str, str]
    person: Person
    store_path: Path
    live: bool = False
    """Whether turns are being landed while the page is open."""
    references: References | None = None
    """Expected turns that did not land with their cases."""
    now: datetime = field(default_factory=now_utc)
    sets: tuple[Path, ...] = ()
    """Eval sets that traffic is compared with."""

    def __getitem__(self, name: str) -> str:
        return self.parameters.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a view found: data for its template, which is also the JSON of the page."""

    template: str
    title: str
    data: Any
    status: int = 200


def link(path: str, **parameters: str | int | None) -> str:
    """Return an address within the page; parameters that are empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
