"""Log in with a one-time code, and log out."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evaltap.evaluator.page.security.access import IDLE_SECONDS, Access, Session
from evaltap.evaluator.page.security.site import Site, is_loopback, split_host

_EACH: Final = 5
_ALL: Final = 30
_WINDOW_SECONDS: Final = 60.0


class Attempts:
    """Limits wrong codes: five per minute from an address, thirty in total."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: deque[tuple[float, str]] = deque()

    def allow(self, address: str) -> bool:
        """Count an attempt; return whether it is allowed."""
        now = self._clock()
        while self._made and now - self._made[0][0] > _WINDOW_SECONDS:
            self._made.popleft()
        if len(self._made) >= _ALL or sum(one == address for _, one in self._made) >= _EACH:
            return False
        self._made.append((now, address))
        return True


def session_of(request: Request, access: Access, site: Site) -> Session | None:
    """Return the session of the person that a proxy names, otherwise that of the request's cookie."""
    if (person := getattr(request.state, "proxied", None)) is not None:
        now = time.time()
        return Session("", person, now, now)
    for name in (f"__Host-evaltap-{site.port}", f"evaltap-{site.port}"):
        if (secret := request.cookies.get(name)) and (found := access.session(secret)):
            return found
    return None


def with_cookie(response: Response, request: Request, site: Site, secret: str) -> None:
    """Set the cookie with the secret of the session."""
    secure = keeps_secure_cookies(request, site)
    response.set_cookie(
        f"{'__Host-' if secure else ''}evaltap-{site.port}",
        secret,
        max_age=int(IDLE_SECONDS),
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def without_cookie(response: Response, site: Site) -> None:
    """Delete the session's cookie."""
    for prefix, secure in (("__Host-", True), ("", False)):
        response.delete_cookie(
            f"{prefix}evaltap-{site.port}", path="/", secure=secure, httponly=True, samesite="lax"
        )


def keeps_secure_cookies(request: Request, site: Site) -> bool:
    """Return whether the browser stores a Secure cookie for this address.

    Without TLS, most browsers do for addresses of this machine; Safari does not.
    """
    if "https" in (site.scheme, request.url.scheme):
        return True
    name, _ = split_host(request.headers.get("host", ""))
    agent = request.headers.get("user-agent", "")
    safari = "Safari/" in agent and "Chrome/" not in agent and "Chromium/" not in agent
    return is_loopback(name or "") and not safari


def to_login(request: Request) -> Response:
    """Redirect a reader who is not logged in; scripts and fragments only get the status."""
    if request.query_params.get("format") == "json" or request.query_params.get("part"):
        return Response("Log in first.", 401, media_type="text/plain")
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    address = request.url.replace(path="/login", query="", fragment="")
    target = "/login" if path == "/" else str(address.include_query_params(next=path))
    if path != "/":  # a path instead of an address preserves the host name that the reader used
        target = f"/login?{target.partition('?')[2]}"
    return RedirectResponse(target, 303)
