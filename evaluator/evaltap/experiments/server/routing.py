"""Routes by the segments of a path, so that an escaped slash belongs to a name."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from evaltap.schemas.data import json_bytes

Names: TypeAlias = dict[str, str]
"""The segments that a path's `{name}`s stand for."""
Handler: TypeAlias = Callable[[Request, Names], Awaitable[Response]]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Route:
    """A path, such as `/sets/{set_id}`, and what answers its methods."""

    path: str
    methods: Mapping[str, Handler]

    def names(self, segments: Sequence[str]) -> Names | None:
        """Return the names in the segments of another path; None if it does not match."""
        wanted = self.path.strip("/").split("/")
        if len(wanted) != len(segments):
            return None
        pairs = [*zip(wanted, segments, strict=True)]
        if any(one != two for one, two in pairs if not one.startswith("{")):
            return None
        return {one[1:-1]: two for one, two in pairs if one.startswith("{")}


class Routes:
    """An ASGI application that answers by its routes, the first that matches.

    A path with another method is answered by 405 with Allow, also for HEAD; one with a slash at its end by
    308 to that without.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
        path = raw.partition(b"?")[0].decode("ascii", "replace")
        trimmed = path.removesuffix("/")
        segments = [unquote(one) for one in trimmed.removeprefix("/").split("/")]
        for route in self._routes:
            if (names := route.names(segments)) is None:
                continue
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"Allow": ", ".join(route.methods)})
            if trimmed != path:
                query = f"?{request.url.query}" if request.url.query else ""
                return RedirectResponse(f"{trimmed}{query}", 308)
            if (handler := route.methods.get(request.method)) is not None:
                return await handler(request, names)
            refused = answer({"error": "method not allowed"}, 405)
            refused.headers["Allow"] = ", ".join(route.methods)
            return refused
        return Response("not found", 404, media_type="text/plain")


def answer(data: Any, status: int = 200) -> Response:  # JSON
    """Return a response with JSON."""
    return Response(json_bytes(data), status, media_type="application/json")


async def off_loop(function: Callable[..., Result], *arguments: Any) -> Result:  # the function's
    """Call a function that waits for files or a database, on a thread."""
    return await anyio.to_thread.run_sync(partial(function, *arguments))
