"""Files of eval cases as bytes: reading, replacing, lines, and what their names say.

A file is written beside its place and renamed, so a reader never sees a partial file; missing folders
are created, and new files have mode 0600.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.private import private_file
from evaltap.schemas.files.refused import is_sqlite, log_instead, no_such_file, refuse_device

LINES_ENDINGS = (".jsonl", ".ndjson")
CASE_FORMS = "an .evalset.json file, or JSON Lines with one eval case per line"


def read_bytes(path: Path) -> bytes:
    """Return a file's content; raises InputError with the reason when it cannot be read."""
    try:
        refuse_device(path)
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(no_such_file(path, "check the path")) from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; expected a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check permissions") from None


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically (write directly to a device or pipe); raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            # Write to a device or a pipe instead of replacing it by a file.
            path.write_bytes(content)
            return
        with private_file(path) as file:
            file.write(content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def iter_case_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) of the non-blank lines of a JSON Lines file, without loading it."""
    try:
        refuse_device(path)
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise InputError(no_such_file(path, f"expected {CASE_FORMS}")) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def is_json_lines(path: Path) -> bool:
    """Return whether a file is JSON Lines: its first line alone is a complete JSON object of a case."""
    if path.suffix in LINES_ENDINGS:
        return True
    try:
        refuse_device(path)
        with path.open("rb") as file:
            first = file.readline(1 << 20).strip()
    except FileNotFoundError:
        raise InputError(no_such_file(path, f"expected {CASE_FORMS}")) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if is_sqlite(first):
        raise InputError(log_instead(path))
    try:
        data = canonical.loads(first)
    except FormatError:
        return False
    return isinstance(data, dict) and has_key(data, "evalId")


def is_lines_name(path: Path) -> bool:
    """Return whether a file's suffix means JSON Lines rather than an eval set.

    Raises InputError for any other suffix.
    """
    if path.suffix in LINES_ENDINGS:
        return True
    check_set_name(path, "an eval set (.evalset.json) or JSON Lines (.jsonl)")
    return False


def check_set_name(path: Path, expected: str = "an eval set (.evalset.json)") -> None:
    """Raise InputError if the file to write lacks the suffix of an eval set; devices are allowed."""
    if path.suffix != ".json" and not (path.exists() and not path.is_file()):
        raise InputError(f"{path}: found {path.suffix or 'no ending'}; expected {expected}")


def eval_set_name(path: Path) -> str:
    """Return the eval set id for a file without one: its name without known extensions."""
    name = path.name
    for ending in (".json", ".jsonl", ".ndjson", ".evalset", ".test"):
        name = name.removesuffix(ending)
    return name


def has_key(data: Mapping[str, object], *names: str) -> bool:
    """Return whether an object has a key, however it is capitalised."""
    folded = {key.casefold() for key in data}
    return any(name.casefold() in folded for name in names)
