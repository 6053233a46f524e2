"""Serve the application: limits of uvicorn, and a shutdown that closes open streams."""

import socket
import threading
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

MOST_CONNECTIONS: Final = 64
MOST_HEADER_BYTES: Final = 16_384
GRACE_SECONDS: Final = 3


class PageServer:
    """Serves an application, in its own thread or in the caller's.

    `connections` are uvicorn's settings for connections and TLS; by default, a slow client holds one of
    the `MOST_CONNECTIONS` for as long as it likes.
    """

    def __init__(self, app: Starlette, listener: socket.socket, **connections: Any) -> None:
        self._listener = listener
        self._server = uvicorn.Server(
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
            )
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
