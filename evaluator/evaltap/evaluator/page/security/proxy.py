"""Authentication by a proxy: when its headers are trusted, and what they contain."""

import hmac
import ipaddress
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from evaltap.evaluator.page.security.access import Person
from evaltap.schemas.errors import InputError

USER_HEADER: Final = "X-Forwarded-Email"
SECRET_HEADER: Final = "X-Evaltap-Proxy-Secret"
UNIX: Final = "unix"
"""Stands for peers of the page's Unix socket, instead of a network."""
_SHORTEST_SECRET: Final = 32
_WARNING_SECONDS: Final = 60.0
_LOG = logging.getLogger("evaltap.page")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Proxy:
    """The peers that are the proxy, its secret, and the header that names a person.

    The peer of the connection must be in one of `networks`; forwarding headers are ignored.
    """

    networks: tuple[Network, ...]
    secret: str
    user_header: str = USER_HEADER
    local_socket: bool = False
    """Whether peers of the Unix socket are the proxy."""

    def vouches(self, scope: Scope) -> bool:
        """Return whether a request is from the proxy, by both its peer and its secret."""
        sent = Headers(scope=scope).getlist(SECRET_HEADER)
        return (
            self._is_peer(scope)
            and len(sent) == 1
            and hmac.compare_digest(sent[0].encode(), self.secret.encode())
        )

    def _is_peer(self, scope: Scope) -> bool:
        client = scope.get("client")
        if not client or not client[0]:
            return self.local_socket
        try:
            peer = ipaddress.ip_address(client[0].partition("%")[0])
        except ValueError:
            return False
        mapped = peer.ipv4_mapped if isinstance(peer, ipaddress.IPv6Address) else None
        return any((mapped or peer) in network for network in self.networks)

    def user(self, headers: Headers) -> str:
        """Return the person that the proxy names; empty if it names nobody or several people."""
        named = headers.getlist(self.user_header)
        return named[0].strip() if len(named) == 1 else ""


def proxy_of(networks: Sequence[str], user_header: str, secret_file: Path) -> Proxy:
    """Return the proxy for some options; raise InputError for invalid ones."""
    if not user_header.replace("-", "").isalnum() or not user_header.isascii():
        raise InputError(f"--user-header {user_header!r}: expected the name of an HTTP header")
    try:
        secret = secret_file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"--proxy-secret-file {secret_file}: cannot read it ({error})") from None
    if len(secret) < _SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise InputError(
            f"--proxy-secret-file {secret_file}: expected {_SHORTEST_SECRET} or more printable ASCII"
            f" characters, found {len(secret)}; make one with `openssl rand -hex 32`"
        )
    found = tuple(_network(one) for one in networks if one != UNIX)
    return Proxy(found, secret, user_header, UNIX in networks)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InputError(
            f"--behind-proxy {text}: expected the proxy's address or network, e.g. 10.0.0.7/32, or {UNIX}"
            f" for --socket ({error})"
        ) from None


class ProxyGate:
    """Accepts the proxy's headers, and logs a warning about such headers from other peers."""

    def __init__(self, proxy: Proxy, person: Callable[[str], Person | None]) -> None:
        self._proxy = proxy
        self._person = person
        self._warned_at = -_WARNING_SECONDS

    def authenticated(self, scope: Scope) -> Scope:
        """Return the request with the proxy's person; unchanged if it is not from the proxy.

        `request.state.proxied` is the person that the proxy names, or None.  Raises StrangerError for a
        person who is not on the list.
        """
        headers = Headers(scope=scope)
        if not self._proxy.vouches(scope):
            if self._proxy.user_header in headers or SECRET_HEADER in headers:
                self._warn(scope)
            return scope
        name = self._proxy.user(headers)
        person = self._person(name) if name else None
        if name and person is None:
            raise StrangerError(name)
        made = {**scope, "state": {**scope.get("state", {}), "proxied": person}}
        if (scheme := headers.get("x-forwarded-proto")) in ("http", "https"):
            made["scheme"] = scheme
        if (host := headers.get("x-forwarded-host")) is not None:
            rest = [one for one in scope["headers"] if one[0] != b"host"]
            made["headers"] = [(b"host", host.encode("latin-1")), *rest]
        return made

    def _warn(self, scope: Scope) -> None:
        now = time.monotonic()
        if now - self._warned_at >= _WARNING_SECONDS:
            self._warned_at = now
            peer = (scope.get("client") or ("the Unix socket",))[0]
            _LOG.warning(
                "ignored the user named in a request from %s, which lacks the proxy's address or secret",
                peer,
            )


class StrangerError(Exception):
    """Report a person whom the proxy authenticated but who is not on the page's list."""
