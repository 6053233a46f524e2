"""Who may ask the server: names of the host, origins, the token, and the size of a request."""

import hmac
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evaltap.evaluator.page.security.guard import TooLargeError, limited
from evaltap.evaluator.page.security.site import Site
from evaltap.evaluator.reports.safe_text import visible
from evaltap.experiments.server.routing import answer

MOST_BODY: Final = 16_000_000
_LOG = logging.getLogger("evaltap.serve")
_METHODS: Final = "GET, POST, PUT, DELETE, OPTIONS"


@dataclass(frozen=True, slots=True)
class Entrance:
    """What a request must have."""

    site: Site
    token: str = field(default="", repr=False)
    """The bearer token; none is required if it is empty."""
    origins: Collection[str] = ()
    """The origins of pages whose scripts may ask, e.g. `https://evals.example.com`; `*` for all."""

    def refusal(self, scope: Scope) -> Response | None:
        """Return the response to a request that is not allowed."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.site.serves(hosts[0]):
            return _refused(
                421, f"this server is {self.site.address}; allow other names with --allow-host"
            )
        if why := self._foreign(headers, scope["scheme"], hosts[0]):
            return _refused(403, why)
        if scope["method"] == "OPTIONS":
            return None  # says nothing but which methods there are; browsers ask without a token
        kind, _, given = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if self.token and not (is_right and kind.lower() == "bearer"):
            refused = _refused(401, "no valid token; send Authorization: Bearer TOKEN")
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_BODY:
            return _too_large()
        return None

    def _foreign(self, headers: Headers, scheme: str, host: str) -> str:
        """Return why a request of a web page is refused: browsers name the page's origin, others none."""
        origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "none")
        if "*" in self.origins or origin in self.origins:
            return ""
        if origin and origin.lower() != f"{scheme}://{host.strip().lower()}":
            return f"a page of {origin[:100]} may not ask; allow it with --allow-origin"
        if not origin and site not in ("none", "same-origin"):
            return "a page of another site may not ask; allow it with --allow-origin"
        return ""

    def shared_with(self, headers: Headers) -> dict[str, str]:
        """Return the headers that let a page's script read the answer."""
        origin = "*" if "*" in self.origins else headers.get("origin", "")
        if not origin or origin not in self.origins:
            return {}
        asked = "Authorization, Content-Type" if self.token else "Content-Type"
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": asked,
            **({} if origin == "*" else {"Vary": "Origin"}),
        }


class Guarded:
    """ASGI middleware: lets in what the entrance allows, and hides the causes of faults."""

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        shared = self._entrance.shared_with(Headers(scope=scope))
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
                headers.update(shared)
            await send(message)

        if (refused := self._entrance.refusal(scope)) is not None:
            await refused(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, limited(receive, MOST_BODY), send_with_headers)
        except TooLargeError:
            await _too_large()(scope, receive, send_with_headers)
        except Exception:  # a bug: details are only written to the log
            _LOG.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                failed = answer({"error": "internal server error"}, 500)
                await failed(scope, receive, send_with_headers)


def _refused(status: int, why: str) -> Response:
    if status != 401:
        _LOG.warning("refused: %s", visible(why))
    return answer({"error": why}, status)


def _too_large() -> Response:
    return answer({"error": f"the request is larger than {MOST_BODY:,} bytes"}, 413)
