"""Files readable only by their owner, since evaltap's files contain conversations."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from evaltap.schemas.files.refused import HEAD_BYTES, is_duckdb, is_sqlite


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that replaces `path` atomically when the block ends without an exception.

    A new file has mode 0600; a replaced one keeps its mode, which may have been widened on purpose.
    Until then the content is in a file with a fresh name next to `path`, so no one can have planted
    a link there. Raises OSError, also rather than replace a store or a log.
    """
    if _is_database(path):
        raise FileExistsError(errno.EEXIST, "it is a database; name another file")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_database(path: Path) -> bool:
    if path.suffix == ".duckdb":
        return path.exists()  # not opened: closing it would release this process's lock on it
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return is_sqlite(head) or is_duckdb(head)
