"""The identity of the page: its names, its port, and the requests that belong to it."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_PORT: Final = len(":65535")


def is_loopback(host: str) -> bool:
    """Return whether an address is only reachable from this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Site:
    """The address at which the page is served."""

    host: str
    port: int
    name: str = ""
    """A unique name below `localhost`, so that its cookies do not reach other pages on this machine."""
    names: frozenset[str] = frozenset()
    """Additional names, such as that of the machine."""
    scheme: str = "http"

    @property
    def local(self) -> bool:
        """Whether the page is only reachable from this machine."""
        return is_loopback(self.host)

    @property
    def address(self) -> str:
        """The address to open."""
        host = self.name or (f"[{self.host}]" if ":" in self.host else self.host)
        return f"{self.scheme}://{host}:{self.port}"

    def serves(self, host: str, *, any_port: bool = False) -> bool:
        """Return whether a Host header names this page; `any_port` also accepts the port of a proxy."""
        name, port = split_host(host)
        if name is None or (port not in (None, self.port) and not any_port):
            return False
        known = {self.host.lower(), self.name.lower(), *self.names} - {""}
        return name in (known | LOCAL_NAMES if self.local else known)


def by_number(address: str, host: str) -> str:
    """Return a page's address with the bound `host` instead of a name below `localhost`; empty without one.

    Not every system resolves such names.  Cookies of this address reach other ports of the machine, too.
    """
    scheme, _, rest = address.partition("://")
    name, _, port = rest.rpartition(":")
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}" if name.endswith(".localhost") else ""


def split_host(written: str) -> tuple[str | None, int | None]:
    """Return the name in lower case without a trailing dot, and the port; no name if it is not a host."""
    text = written.strip().lower()
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None, None
    else:
        name, colon, rest = text.partition(":")
        rest = colon + rest
    if rest and not (rest[1:].isdecimal() and len(rest) <= _LONGEST_PORT):
        return None, None
    name = name.removesuffix(".")
    return (name or None), (int(rest[1:]) if rest else None)


def refusal(method: str, headers: Mapping[str, str], scheme: str) -> str:
    """Return why a request from another site is rejected; empty if it is accepted.

    Browsers state the requesting site in Sec-Fetch-Site; other ports of this machine count as `same-site` and
    are rejected too.  Without this header, the origin must match.
    """
    fetch_site = headers.get("sec-fetch-site", "")
    if method in SAFE_METHODS:
        foreign = fetch_site in ("cross-site", "same-site")
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return f"a {fetch_site} request that is not a navigation"
        return ""
    if fetch_site:
        return "" if fetch_site == "same-origin" else f"a {fetch_site} request"
    if not (origin := headers.get("origin", "")):
        return "a request without Sec-Fetch-Site and Origin"
    own = f"{scheme}://{headers.get('host', '').strip().lower()}"
    return "" if origin.lower() == own else f"a request of {origin[:100]}"
