"""Limits connections: ten seconds to send the headers, and room for honest senders when full."""

import asyncio
import enum
import ssl
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS: Final = 10.0
"""From the connection, or the first byte of a later request, to the end of the headers."""
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"retry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class _Stage(enum.Enum):
    """What a connection waits for."""

    HEADERS = enum.auto()
    BODY = enum.auto()
    ANSWER = enum.auto()


class LimitedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with limits for senders that are slow or send nothing.

    uvicorn counts every connection towards `limit_concurrency`, so a few hundred silent ones are enough
    to have it answer 503 to all others. This protocol closes the connections that keep the server
    waiting, oldest first, so that uvicorn's limit is reached only by complete requests. Those beyond it
    get a 503.

    The protocol also encrypts, because asyncio creates it before a TLS handshake but does not call it
    until the handshake is done: 2,000 stalled handshakes would hold 360 MB for a minute, uncounted.
    """

    tls: ssl.SSLContext | None = None
    most: int = 500
    """Connections at the same time, the new one included; reached only by complete requests."""
    _handshake: asyncio.Task[None] | None = None
    _received_early: bytes = b""
    _timer: asyncio.TimerHandle | None = None
    _waiting_since: float = 0.0

    def connection_made(self, transport: Any) -> None:  # uvicorn narrows the type
        """Make room for the connection, and start the timeout for headers."""
        super().connection_made(transport)
        self._make_room()
        self._wait()
        if self.tls is not None:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._encrypt(transport, self.tls))

    async def _encrypt(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        """Continue over TLS; a handshake that fails ends the connection."""
        encrypted = None
        try:
            if not plain.is_closing():
                encrypted = await self.loop.start_tls(
                    plain, self, context, server_side=True, ssl_handshake_timeout=HEADER_SECONDS
                )
        except OSError as error:  # includes ssl.SSLError, and connections that are closed meanwhile
            # The traceback is part of a reference cycle that holds the 256 KiB of the TLS buffer.
            error.__traceback__ = None
        self._handshake = None
        if encrypted is None:  # asyncio does not report the loss of a connection in its handshake
            self.connection_lost(None)
            return
        self.transport, self.flow, self.scheme = encrypted, FlowControl(encrypted), "https"
        early, self._received_early = self._received_early, b""
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Keep the timeout until a request has started."""
        if (
            self._handshake is not None
        ):  # asyncio hands over the first bytes before `start_tls` returns
            self._received_early += data
            return
        was_busy = self._busy()
        super().data_received(data)
        if self._busy():
            self._stop()
            if not was_busy:
                self._waiting_since = self.loop.time()
        elif self._timer is None:
            self._wait()

    def on_response_complete(self) -> None:
        """Remember since when the connection has been idle."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._stop()
        super().connection_lost(exc)

    @property
    def _stage(self) -> _Stage:
        if self.cycle is None or self.cycle.response_complete:
            return _Stage.HEADERS
        return _Stage.BODY if self.cycle.more_body else _Stage.ANSWER

    @property
    def _stalls(self) -> bool:
        """Whether the client does not read its answer."""
        return self.flow is not None and self.flow.write_paused

    def _busy(self) -> bool:
        return self._stage is not _Stage.HEADERS

    def _make_room(self) -> None:
        """Close the connections that have kept the server waiting longest, until the limit is kept."""
        while len(self.connections) >= self.most:
            waiting = [
                other
                for other in self.connections
                if isinstance(other, LimitedConnection)
                and other is not self
                and (other._stage is not _Stage.ANSWER or other._stalls)
            ]
            if not waiting:
                return
            min(waiting, key=lambda other: other._waiting_since)._close()

    def _close(self) -> None:
        self.connections.discard(self)
        if self._stalls:
            self.transport.abort()  # closing would wait until the answer is read
            return
        if self._stage is _Stage.BODY:
            self.transport.write(_BUSY)  # an exporter reads it and sends the request again
        self.transport.close()

    def _wait(self) -> None:
        self._waiting_since = self.loop.time()
        self._timer = self.loop.call_later(HEADER_SECONDS, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self._busy() and not self.transport.is_closing():
            self.transport.close()


def limited_connections(most: int, tls: ssl.SSLContext | None = None) -> type[LimitedConnection]:
    """Return a server's protocol for at most `most` connections, with TLS if a context is given."""
    return type("LimitedConnection", (LimitedConnection,), {"most": most, "tls": tls})


def connection_settings(most: int, tls: ssl.SSLContext | None = None) -> dict[str, Any]:
    """Return a uvicorn server's settings for at most `most` connections."""
    accepted_at_once = min(100, most // 2)
    return {
        "http": limited_connections(most, tls),
        # uvicorn also counts the requests of connections that were closed a moment ago.
        "limit_concurrency": most + 3 * accepted_at_once,
        # Also the number of connections accepted at once: with more than the limit, a sender could be
        # closed before its request is read.
        "backlog": accepted_at_once,
    }
