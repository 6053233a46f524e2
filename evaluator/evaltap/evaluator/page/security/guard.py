"""Check every request and set the headers of every response: hosts, origins, limits and the policy."""

import logging
import secrets
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evaltap.evaluator.page.security.proxy import ProxyGate, StrangerError
from evaltap.evaluator.page.security.site import Site, refusal
from evaltap.evaluator.reports.safe_text import visible

MOST_BODY: Final = 1_000_000
MOST_HEADER_BYTES: Final = 16_384
_LOG = logging.getLogger("evaltap.page")
_FIXED: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """ASGI middleware: rejects requests from other sites, limits bodies, sets the policy.

    `request.state.nonce` is the nonce of the response.
    """

    def __init__(self, app: ASGIApp, *, site: Site, gate: ProxyGate | None = None) -> None:
        self._app = app
        self._site = site
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope, stranger = self._proxied(scope)
        scope.setdefault("state", {})["nonce"] = nonce
        started = False

        async def send_with_policy(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy(nonce)
                headers.setdefault("Cache-Control", "no-store")
                for name, value in _FIXED.items():
                    headers[name] = value
            await send(message)

        if (answer := stranger or self._refused(scope)) is not None:
            await answer(scope, receive, send_with_policy)
            return
        try:
            await self._app(scope, limited(receive, MOST_BODY), send_with_policy)
        except TooLargeError:
            answer = PlainTextResponse("The request is larger than 1 MB.", 413)
            await answer(scope, receive, send_with_policy)
        except Exception:
            # A bug: details are only written to the log.
            _LOG.exception("a page failed")
            if not started:
                answer = PlainTextResponse(
                    "This page failed; see evaltap's log for the reason.", 500
                )
                await answer(scope, receive, send_with_policy)

    def _proxied(self, scope: Scope) -> tuple[Scope, PlainTextResponse | None]:
        """Return the request with the proxy's person, or the response for an unlisted person."""
        if self._gate is None:
            return scope, None
        try:
            return self._gate.authenticated(scope), None
        except StrangerError as error:
            _LOG.warning("refused: %s is not on the list of people", visible(str(error))[:100])
            return scope, PlainTextResponse(
                "You are not on this page's list of people; an admin can add you in its settings.",
                403,
            )

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        proxied = "proxied" in scope["state"]
        if len(hosts) != 1 or not self._site.serves(hosts[0], any_port=proxied):
            return PlainTextResponse(
                f"This page is at {self._site.address}; to allow other host names, use --allow-host.",
                421,
            )
        if why := refusal(scope["method"], headers, scope["scheme"]):
            _LOG.warning("refused: %s", why)
            return PlainTextResponse(f"Refused: {why}.", 403)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
            return PlainTextResponse("The headers of the request are larger than 16 KB.", 431)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_BODY:
            return PlainTextResponse("The request is larger than 1 MB.", 413)
        return None


class TooLargeError(Exception):
    """Report a body with too many bytes."""


def limited(receive: Receive, most: int) -> Receive:
    """Return `receive` for a body of at most `most` bytes; it raises TooLargeError beyond."""
    seen = 0

    async def received() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise TooLargeError
        return message

    return received


def policy(nonce: str) -> str:
    """Return the content security policy of a response: own files, and scripts with its nonce."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types htmx"
    )
