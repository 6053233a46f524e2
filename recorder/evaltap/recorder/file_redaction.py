"""A file redacted into another one: eval sets, JSON Lines of cases, any JSON, any text."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from evaltap.recorder.leaks import line_value
from evaltap.recorder.redaction import Redactor
from evaltap.schemas import canonical
from evaltap.schemas.documents import read_bytes, write_bytes
from evaltap.schemas.errors import InputError

_CASE_LISTS = ("evalCases", "eval_cases")


def redact_file(path: Path, out: Path, redactor: Redactor) -> None:
    """Write the redacted form of `path` to `out`; raise InputError when it cannot be done.

    Cases of an eval set are redacted by the redactor's policy, both conversations alike; what is no
    case counts as content.
    """
    content = read_bytes(path)
    if content.startswith(b"SQLite format 3\0"):
        raise InputError(
            f"{path}: a log or database; what a recorder writes is redacted before. To take somebody"
            " out of it, use `evaltap erase`"
        )
    document = None if path.suffix in (".jsonl", ".ndjson") else _json(content)
    if document is None:
        write_bytes(out, b"".join(_redacted_lines(content, redactor)))
    else:
        write_bytes(out, canonical.dumps(redacted_value(document, redactor)))
    os.chmod(out, path.stat().st_mode & 0o777)


def redacted_value(value: Any, redactor: Redactor) -> Any:
    """Return a case, an eval set or any other JSON value redacted."""
    if not isinstance(value, dict):
        return _content(value, redactor)
    for name in _CASE_LISTS:
        if isinstance(cases := value.get(name), list):
            rest = _content({k: v for k, v in value.items() if k != name}, redactor)
            redacted = [redacted_value(case, redactor) for case in cases]
            # In the order of the file, so that a reader finds the cases where they were.
            return {k: redacted if k == name else rest[k] for k in value if k == name or k in rest}
    finished = redactor(value)
    if finished is None:
        raise InputError("the redactor drops this case; take it out of the file first")
    return finished[0]


def _content(value: Any, redactor: Redactor) -> Any:
    finished = redactor({"content": value})
    return None if finished is None else finished[0]["content"]


def _redacted_lines(content: bytes, redactor: Redactor) -> Iterator[bytes]:
    for line in content.splitlines(keepends=True):
        value = line_value(line)
        if isinstance(value, str) and not line.lstrip().startswith(b'"'):
            ending = line[len(line.rstrip(b"\r\n")) :]
            yield str(_content(value, redactor)).encode() + ending
        else:
            yield orjson.dumps(redacted_value(value, redactor)) + b"\n"


def _json(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except ValueError:
        return None
