"""Serve the application: limits of uvicorn, and a shutdown that closes open streams."""

import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from evaltap.evaluator.page.security.guard import MOST_HEADER_BYTES
from evaltap.evaluator.page.security.site import Site
from evaltap.schemas.files.private import private_file

MOST_CONNECTIONS: Final = 64
GRACE_SECONDS: Final = 3


class PageServer:
    """Serves an application, in its own thread or in the caller's.

    `connections` are uvicorn's settings for connections and TLS; by default, a slow client holds one of
    the `MOST_CONNECTIONS` for as long as it likes.  `when_ending` is called on the event loop when the server
    begins to stop.
    """

    def __init__(
        self,
        app: Starlette,
        listener: socket.socket,
        *,
        when_ending: Callable[[], None] = lambda: None,
        **connections: Any,
    ) -> None:
        self._listener = listener
        self._server = _Server(
            when_ending,
            uvicorn.Config(
                app,
                # Its own configuration would close the handlers of all other loggers.
                log_config=None,
                log_level="error",
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MOST_HEADER_BYTES,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=GRACE_SECONDS,
                **{"limit_concurrency": MOST_CONNECTIONS, **connections},
            ),
        )
        app.state.ends = lambda: self._server.should_exit
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        with self._listener:
            self._server.run(sockets=[self._listener])

    def start(self, when_ended: Callable[[], None] = lambda: None) -> None:
        """Serve from another thread until `stop`."""

        def serve() -> None:
            try:
                self._server.run(sockets=[self._listener])
            finally:
                when_ended()

        self._thread = threading.Thread(target=serve, name="evaltap-page", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, even before it has begun; running requests get three seconds."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(GRACE_SECONDS + 2)
            self._listener.close()


class _Server(uvicorn.Server):
    def __init__(self, when_ending: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._when_ending = when_ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._when_ending()
        await super().shutdown(sockets)


@contextmanager
def announced(store: Path, site: Site) -> Iterator[None]:
    """Write the page's address to `<store>.page.json` while the block runs; the file contains no secret."""
    file = _file(store)
    with private_file(file) as written:
        written.write(json.dumps({"address": site.address, "process": os.getpid()}).encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def running_address(store: Path) -> str:
    """Return the address of the running page of a file; empty if none is running."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(_file(store).read_text("utf-8"))
        os.kill(int(found["process"]), 0)  # raises if that process has ended
        return str(found["address"])
    return ""


def _file(store: Path) -> Path:
    return store.with_name(f"{store.name}.page.json")


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
