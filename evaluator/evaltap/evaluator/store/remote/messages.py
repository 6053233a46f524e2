"""The socket of a database file, and the messages on it: msgpack, each preceded by its length."""

import hashlib
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec.msgpack import Ext

from evaltap.evaluator.store.database import SCHEMA_VERSION
from evaltap.evaluator.store.errors import StoreError

PROTOCOL: Final = f"evaltap-1-{SCHEMA_VERSION}"
"""Both ends must send the same value, because statements and tables belong to one layout."""
STATEMENT_SECONDS: Final = 600.0
"""The maximum duration of a statement."""
MOST_BYTES: Final = 1 << 30
_LENGTH: Final = struct.Struct("!I")


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """The first message, from both ends."""

    protocol: str
    lands: bool = False
    """Sent by the process that holds the store: whether it lands turns in the store."""


class Run(msgspec.Struct, tag="run", array_like=True):
    """Run a statement for at most `seconds`, and answer with its first rows."""

    statement: str
    values: Any
    size: int
    seconds: float


class More(msgspec.Struct, tag="more", array_like=True):
    """Answer with more rows of the previous statement."""

    size: int


class Append(msgspec.Struct, tag="append", array_like=True):
    """Append rows to a temporary table."""

    table: str
    rows: list[Any]


class Rows(msgspec.Struct, tag="rows", array_like=True):
    """Some rows; `more` means that others may follow."""

    names: list[str]
    rows: list[Any]
    more: bool


class Failed(msgspec.Struct, tag="failed", array_like=True):
    """The exception that the statement raised."""

    kind: str
    message: str


Request: TypeAlias = Hello | Run | More | Append
Answer: TypeAlias = Hello | Rows | Failed


class Channel:
    """One end of a connection, used by one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def expect(self, seconds: float) -> None:
        """Set how long this end waits for the other one, before an OSError."""
        self._connection.settimeout(seconds)

    def send(self, message: Request | Answer) -> None:
        """Send a message; raise OSError if the other end has closed."""
        body = msgspec.msgpack.encode(message)
        self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def request(self) -> Request | None:
        """Return the next request; None at the end of the connection."""
        return msgspec.msgpack.decode(body, type=Request) if (body := self._read()) else None

    def answer(self) -> Answer | None:
        """Return the next answer; None at the end of the connection."""
        return msgspec.msgpack.decode(body, type=Answer) if (body := self._read()) else None

    def _read(self) -> bytes:
        if not (length := self._exactly(_LENGTH.size)):
            return b""
        (size,) = _LENGTH.unpack(length)
        if size > MOST_BYTES:
            raise StoreError(f"a message of {size:,} bytes; expected at most {MOST_BYTES:,}")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        """Return `size` bytes; empty if the connection ended before."""
        parts: list[bytes] = []
        while size:
            if not (part := self._connection.recv(min(size, 1 << 20))):
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the connection for both ends."""
        with suppress(OSError):  # already closed
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


_AS_THEY_ARE: Final = frozenset({str, int, float, bool, bytes, type(None)})
_LARGEST: Final = 1 << 63


def packed(value: Any) -> Any:
    """Return a DuckDB value in a form that msgpack supports; `unpacked` reverses this."""
    kind = type(value)
    if kind in _AS_THEY_ARE and (kind is not int or -_LARGEST <= value < _LARGEST):
        return value
    if kind in (list, tuple):
        items = [packed(one) for one in value]
        return items if kind is list else _ext("tuple", items)
    if kind is dict:
        return _ext("dict", [[packed(key), packed(one)] for key, one in value.items()])
    if kind is timedelta:
        return _ext("timedelta", [value.days, value.seconds, value.microseconds])
    if kind in (datetime, date, time):
        return _ext(kind.__name__, value.isoformat())
    if kind in (int, Decimal, UUID):
        return _ext(kind.__name__, str(value))
    raise TypeError(f"a {kind.__name__} cannot be sent")


def _ext(name: str, value: object) -> Ext:
    return Ext(_NAMES.index(name), msgspec.msgpack.encode(value))


def unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [unpacked(one) for one in value]
    if isinstance(value, Ext):
        name, content = _NAMES[value.code], msgspec.msgpack.decode(value.data)
        return _READ[name](content)
    return value


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "tuple": lambda items: tuple(map(unpacked, items)),
    "dict": lambda items: {unpacked(key): unpacked(one) for key, one in items},
    "timedelta": lambda parts: timedelta(*parts),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "int": int,
    "Decimal": Decimal,
    "UUID": UUID,
}
_NAMES: Final = [*_READ]


LONGEST: Final = 100
"""The maximum length in bytes of a socket's path on all systems (Linux 107, macOS 103)."""


def can_serve() -> bool:
    """Return whether this system has Unix sockets."""
    return hasattr(socket, "AF_UNIX") and os.name == "posix"


def socket_path(database: Path) -> Path:
    """Return the path of a file's socket: next to the file, or in a user folder if that path is too long."""
    file = database.resolve()
    beside = file.with_name(file.name + ".sock")
    if len(os.fsencode(beside)) <= LONGEST:
        return beside
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:32]
    return _folder() / f"{digest}.sock"


def _folder() -> Path:
    """Return a folder that only this user can access."""
    folder = (
        Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"evaltap-{os.getuid()}"
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise OSError(f"{folder}: is accessible to other users")
    return folder
