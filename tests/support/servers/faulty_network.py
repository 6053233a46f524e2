"""A faulty network between Kafka clients and a broker: it can delay, cut, drop and refuse.

A proxy on a separate port reads whole requests and answers, so that a fault can target a kind of request;
answers with the broker's address are changed to the proxy's.
"""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Literal

from support.servers.broker import free_port

HOST = "127.0.0.1"
PRODUCE, FETCH, METADATA, COORDINATOR = 0, 1, 3, 10


class Fate(Enum):
    """What becomes of a request or an answer."""

    PASS = "is handed on"
    SWALLOW = "is never seen again; the connection stays"
    CUT = "is lost, and the connection is reset"
    HALF = "is handed on in part, then the connection is reset"


Way = Literal["request", "answer"]
Rule = Callable[[Way, int], Fate]
"""Decides by direction and kind of request (its API key) what becomes of a message."""


def well(way: Way, kind: int) -> Fate:
    """Hand everything on."""
    return Fate.PASS


def black_hole(way: Way, kind: int) -> Fate:
    """Take connections and requests, and answer nothing."""
    return Fate.SWALLOW


def acknowledgements_lost(way: Way, kind: int) -> Fate:
    """Let the broker append, and lose what it says to that, with the connection."""
    return Fate.CUT if way == "answer" and kind == PRODUCE else Fate.PASS


class Proxy:
    """Stands before the broker at `upstream`; set `rule` and `delay_seconds` at any time."""

    def __init__(self, upstream: int) -> None:
        self.port = free_port()
        self.rule: Rule = well
        self.delay_seconds = 0.0
        self.seen: Counter[tuple[Way, int]] = Counter()
        self.last: dict[tuple[Way, int], bytes] = {}
        self.connections = 0
        self._upstream = upstream
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self._listener: socket.socket | None = None

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{HOST}:{self.port}"

    def listen(self) -> None:
        """Take connections, from now on or again."""
        self._listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Take no connections any more, and reset those that there are."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            # Closing alone would leave a thread in `accept`, which takes one more.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            _reset(connection)

    def close(self) -> None:
        """End it."""
        self._pause.set()
        self.refuse()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                # One that came just before `refuse` would outlive it, and nobody would connect again.
                if self._listener is not listener:
                    _reset(client)
                    return
                self.connections += 1
                server = socket.socket()
                self._open |= {client, server}
            if server.connect_ex((HOST, self._upstream)) != 0:
                self._end(client, server)
                continue
            kinds: dict[int, int] = {}
            for way, source, target in (
                ("request", client, server),
                ("answer", server, client),
            ):
                threading.Thread(
                    target=self._relay, args=(way, source, target, kinds), daemon=True
                ).start()

    def _relay(
        self, way: Way, source: socket.socket, target: socket.socket, kinds: dict[int, int]
    ) -> None:
        with suppress(OSError):
            for message in _messages(source):
                if way == "request":
                    kind, _, number = struct.unpack_from(">hhi", message, 4)
                    kinds[number] = kind
                else:
                    kind = kinds.pop(struct.unpack_from(">i", message, 4)[0])
                self.seen[way, kind] += 1
                self.last[way, kind] = message
                if self.delay_seconds:
                    self._pause.wait(self.delay_seconds)
                fate = self.rule(way, kind)
                if fate in (Fate.CUT, Fate.HALF):
                    target.sendall(message[: len(message) // 2] if fate is Fate.HALF else b"")
                    break
                if fate is Fate.PASS:
                    target.sendall(self._renamed(message) if way == "answer" else message)
        self._end(source, target)

    def _renamed(self, message: bytes) -> bytes:
        """Put this proxy where an answer names the broker: the names are of one length."""
        theirs, ours = (HOST.encode() + struct.pack(">i", p) for p in (self._upstream, self.port))
        return message.replace(theirs, ours)

    def _end(self, *connections: socket.socket) -> None:
        for connection in connections:
            _reset(connection)
        with self._lock:
            self._open -= set(connections)


@contextmanager
def proxied(upstream: int) -> Iterator[Proxy]:
    """Give a proxy that listens before the broker on a port."""
    proxy = Proxy(upstream)
    proxy.listen()
    try:
        yield proxy
    finally:
        proxy.close()


def _messages(source: socket.socket) -> Iterator[bytes]:
    """Yield requests or answers whole, each with the four bytes of its length."""
    with source.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            body = stream.read(struct.unpack(">i", head)[0])
            yield head + body


def _reset(connection: socket.socket) -> None:
    """Close with a reset, as a machine does that was restarted; a waiting thread wakes up."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
