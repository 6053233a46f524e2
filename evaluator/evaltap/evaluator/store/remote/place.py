"""The path of the socket for a database file."""

import hashlib
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

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
