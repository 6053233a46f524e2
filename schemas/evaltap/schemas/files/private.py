"""Files that only their owner may read: what evaltap writes holds conversations."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that replaces `path` in one step when the block ends without an exception.

    A new file has mode 0600; one that is replaced keeps its mode, which somebody may have widened on
    purpose.  Until then it is a file of a new name beside `path`, so nobody can have put a link there.
    Raises OSError.
    """
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
