"""Notify browsers of changes: at most one version per second, as server-sent events."""

from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

MOST_STREAMS: Final = 32
_EVERY_SECONDS: Final = 1.0


class Live(Protocol):
    """Reports changes; called from the page's thread."""

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        ...


class Ticker:
    """Streams the version to browsers, one stream for each browser."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._streams = 0

    def answer(self, request: Request) -> Response:
        """Return a stream, or 503 if there are too many."""
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many streams", 503, {"Retry-After": "5"})
        return StreamingResponse(self._versions(request), media_type="text/event-stream")

    async def _versions(self, request: Request) -> AsyncIterator[str]:
        self._streams += 1
        try:
            ends: Callable[[], bool] = request.app.state.ends
            while not ends() and not await request.is_disconnected():
                yield f"data: {self._live.version}\n\n"
                await anyio.sleep(_EVERY_SECONDS)
        finally:
            self._streams -= 1
