"""Error messages for missing files; they suggest a similar name, since most are misspelt."""

from itertools import islice
from pathlib import Path

from evaltap.schemas.text import nearest

_NAMES = 1_000
"""Maximum number of names in a folder to compare."""


def no_such_file(path: Path, expected: str) -> str:
    """Return the message for a missing file, with a similar name or, if there is none, `expected`."""
    if path.exists() and not path.is_dir():
        return f"{path}: is a device or a pipe; {expected}"
    return f"{path}: no such file; {similar_file(path) or expected}"


def similar_file(path: Path) -> str:
    """Return a question suggesting a file with a similar name in the same folder, empty without one."""
    try:
        names = [one.name for one in islice(path.absolute().parent.iterdir(), _NAMES)]
    except OSError:
        return ""
    name = nearest(path.name, names)  # of whole paths, the folder alone would make all similar
    return f"did you mean '{path.with_name(name)}'?" if name else ""
