"""Find leaks: the places in a file that the redactor would change.

The redactor itself decides, value by value, so check and redaction cannot disagree.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.redactor import PatternRedactor, Redactor
from evaltap.schemas.errors import InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import LINES_ENDINGS, read_bytes, write_bytes
from evaltap.schemas.files.refused import HEAD_BYTES, is_sqlite, refuse_device
from evaltap.schemas.log.local import open_log

EXCERPT_CHARACTERS = 30
"""Context shown on either side of the masked part."""

Place = tuple[str, Any]
"""A part of a file: its location, and its JSON value."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A sensitive part: where, of which kind, and the surrounding text with the part masked."""

    place: str
    kind: str
    excerpt: str


def leaks_in_file(
    path: Path, redactor: PatternRedactor, on_invalid_json: Callable[[str], None]
) -> Iterator[Leak]:
    """Yield the leaks of an eval set, JSON Lines, a local log or any text; raises InputError.

    `on_invalid_json` is called with the name of each part that should be JSON, but is searched as text.
    """
    for place, value in parts(path, on_invalid_json):
        try:
            yield from leaks_in(value, redactor, place)
        except RecursionError:
            raise InputError(
                f"{path}: {place}: nested too deeply; expected at most 250 levels"
            ) from None


def leaks_in(value: object, redactor: PatternRedactor, place: str = "$") -> Iterator[Leak]:
    """Yield the leaks of a JSON value; locations are JSON paths below `place`."""
    yield from _leaks("", value, redactor, place)


def _leaks(name: str, value: object, redactor: PatternRedactor, place: str) -> Iterator[Leak]:
    if isinstance(value, dict) and not redactor.hides(name, value):
        for key, one in value.items():
            yield from _changed("", key, redactor, f"{place} (key)")
            yield from _leaks(key, one, redactor, f"{place}{_step(key, redactor)}")
    elif isinstance(value, list) and not redactor.hides(name, value):
        for index, one in enumerate(value):
            yield from _leaks(name, one, redactor, f"{place}[{index}]")
    else:
        yield from _changed(name, value, redactor, place)


def _changed(name: str, value: object, redactor: PatternRedactor, place: str) -> Iterator[Leak]:
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


def parts(path: Path, on_invalid_json: Callable[[str], None]) -> Iterator[Place]:
    """Yield a file's parts: the document, its lines, or the records of a log."""
    try:
        refuse_device(path)
        with path.open("rb") as file:
            if is_sqlite(file.read(HEAD_BYTES)):
                file.close()
                yield from _records(path, on_invalid_json)
                return
            file.seek(0)
            if (document := _document(path, file, on_invalid_json)) is not None:
                yield "$", document
                return
            file.seek(0)
            yield from _lines(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _document(path: Path, file: BinaryIO, on_invalid_json: Callable[[str], None]) -> Any:
    """Return the whole file as JSON, or None when it is not."""
    if path.suffix in LINES_ENDINGS:
        return None
    try:
        return orjson.loads(file.read())
    except ValueError:
        if path.suffix == ".json":
            on_invalid_json("the file")
        return None


def _lines(lines: Iterable[bytes]) -> Iterator[Place]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"line {number}: $", line_value(line)


def line_value(line: bytes) -> Any:
    """Return a line as a JSON value, else as text."""
    try:
        return orjson.loads(line)
    except ValueError:
        return line.decode("utf-8", "replace").rstrip("\r\n")


def _records(path: Path, on_invalid_json: Callable[[str], None]) -> Iterator[Place]:
    with closing(open_log(path, mode="read")) as log:
        for number, record in log.records():
            yield f"record {number}: key", (record.key or b"").decode("utf-8", "replace")
            value = line_value(record.value or b"")
            if isinstance(value, str) and value:
                on_invalid_json(f"record {number}")
            yield f"record {number}: $", value


_CASE_LISTS = ("evalCases", "eval_cases")


def redact_file(path: Path, out: Path, redactor: Redactor) -> None:
    """Write the redacted form of `path` to `out`; raises InputError when that fails.

    Cases of an eval set are redacted by the redactor's policy, both conversations alike; other
    values count as content.
    """
    content = read_bytes(path)
    if is_sqlite(content):
        raise InputError(
            f"{path}: a log or database, whose records are already redacted. To delete somebody"
            " from it, use `evaltap store erase`"
        )
    document = None if path.suffix in LINES_ENDINGS else _json(content)
    if document is None:
        write_bytes(out, b"".join(_redacted_lines(path, content, redactor)))
    else:
        write_bytes(out, canonical.dumps(redacted_value(document, redactor)))


def redacted_value(value: object, redactor: Redactor) -> Any:
    """Return a case, an eval set or any other JSON value redacted."""
    if not isinstance(value, dict):
        return _content(value, redactor)
    for name in _CASE_LISTS:
        if isinstance(cases := value.get(name), list):
            rest = _content({k: v for k, v in value.items() if k != name}, redactor)
            redacted = [redacted_value(case, redactor) for case in cases]
            # Keep the order of the file, so that cases stay where they were.
            return {k: redacted if k == name else rest[k] for k in value if k == name or k in rest}
    if (finished := redactor(value)) is None:
        raise InputError("the redactor drops this case; remove it from the file first")
    return finished[0]


def _content(value: object, redactor: Redactor) -> Any:
    finished = redactor({"content": value})
    return None if finished is None else finished[0]["content"]


def _redacted_lines(path: Path, content: bytes, redactor: Redactor) -> Iterator[bytes]:
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        value = line_value(line)
        if isinstance(value, str) and not line.lstrip().startswith(b'"'):
            ending = line[len(line.rstrip(b"\r\n")) :]
            yield str(_content(value, redactor)).encode() + ending
        else:
            redacted = redacted_value(value, redactor)
            try:
                yield orjson.dumps(redacted) + b"\n"
            except TypeError:
                raise InputError(
                    f"{path}: line {number}: nested too deeply; expected at most 250 levels"
                ) from None


def _json(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except ValueError:
        return None
