"""What would leak: the places of a file in which the redactor would change something.

The redactor itself decides, value by value, so the check and the redaction cannot disagree.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from evaltap.recorder.redaction import PatternRedactor
from evaltap.recorder.sensitive_text import PSEUDONYM
from evaltap.schemas.errors import InputError
from evaltap.schemas.local_log import open_log

EXCERPT_CHARACTERS = 30
"""Shown on either side of what is masked."""
RECORDS_PER_READ = 500
_SQLITE = b"SQLite format 3\0"

Place = tuple[str, Any]
"""What a file is made of: the place of a part, and the part as a JSON value."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Something sensitive: where, of which kind, and the text around it with itself masked."""

    place: str
    kind: str
    excerpt: str


def leaks_in_file(path: Path, redactor: PatternRedactor) -> Iterator[Leak]:
    """Yield the leaks of an eval set, JSON Lines, a local log or any text; raise InputError."""
    for place, value in parts(path):
        yield from leaks_in(value, redactor, place)


def leaks_in(value: Any, redactor: PatternRedactor, place: str = "$") -> Iterator[Leak]:
    """Yield the leaks of a JSON value; places are JSON paths below `place`."""
    yield from _leaks("", value, redactor, place)


def _leaks(name: str, value: Any, redactor: PatternRedactor, place: str) -> Iterator[Leak]:
    if isinstance(value, dict) and not redactor.hides(name, value):
        for key, one in value.items():
            yield from _changed("", key, redactor, f"{place} (key)")
            yield from _leaks(key, one, redactor, f"{place}{_step(key, redactor)}")
    elif isinstance(value, list) and not redactor.hides(name, value):
        for index, one in enumerate(value):
            yield from _leaks(name, one, redactor, f"{place}[{index}]")
    else:
        yield from _changed(name, value, redactor, place)


def _changed(name: str, value: Any, redactor: PatternRedactor, place: str) -> Iterator[Leak]:
    redacted, report = redactor.named_value(name, value)
    if redacted == value:
        return
    for kind in sorted(report.replaced) or ["unreadable"]:
        yield Leak(place, kind, _excerpt(str(redacted), kind))


def _excerpt(redacted: str, kind: str) -> str:
    found = next((one for one in PSEUDONYM.finditer(redacted) if one[0][1:].startswith(kind)), None)
    if found is None:
        return redacted[: 2 * EXCERPT_CHARACTERS]
    start, end = found.span()
    before = redacted[max(0, start - EXCERPT_CHARACTERS) : start]
    return f"{before}<{kind}>{redacted[end : end + EXCERPT_CHARACTERS]}"


def _step(key: str, redactor: PatternRedactor) -> str:
    shown, _ = redactor.named_value("", key)
    return f".{shown}" if str(shown).isidentifier() else f"[{orjson.dumps(shown).decode()}]"


# -- files -----------------------------------------------------------------------------------------


def parts(path: Path) -> Iterator[Place]:
    """Yield a file's parts: the document, its lines, or the records of a log."""
    try:
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                file.close()
                yield from _records(path)
                return
            file.seek(0)
            document = _document(path, file)
            if document is not None:
                yield "$", document
                return
            file.seek(0)
            yield from _lines(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _document(path: Path, file: BinaryIO) -> Any:
    """Return the whole file as JSON, None when it is something else."""
    if path.suffix in (".jsonl", ".ndjson"):
        return None
    try:
        return orjson.loads(file.read())
    except ValueError:
        return None


def _lines(lines: Iterable[bytes]) -> Iterator[Place]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"line {number}: $", line_value(line)


def line_value(line: bytes) -> Any:
    """Return a line as the JSON value that it holds, or as text."""
    try:
        return orjson.loads(line)
    except ValueError:
        return line.decode("utf-8", "replace").rstrip("\r\n")


def _records(path: Path) -> Iterator[Place]:
    log = open_log(path, mode="read")
    try:
        offset = log.start_offset()
        while batch := log.read(offset, RECORDS_PER_READ):
            for number, record in batch:
                yield f"record {number}: key", (record.key or b"").decode("utf-8", "replace")
                yield f"record {number}: $", line_value(record.value or b"")
            offset = batch[-1][0] + 1
    finally:
        log.close()
