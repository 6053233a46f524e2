"""Human labels of cases, turns or rubrics, from JSON Lines or CSV."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import read_bytes
from evaltap.schemas.formats.model import Json

_PASS: Final = frozenset({"pass", "passed", "true", "yes", "1", "1.0"})
_FAIL: Final = frozenset({"fail", "failed", "false", "no", "0", "0.0"})
_FIELDS: Final = ("evalId", "invocationId", "rubricId", "metricName", "evalSetId")
_FORM: Final = (
    "expected evalId and label (pass or fail), optionally invocationId, rubricId, metricName,"
    " evalSetId"
)


class LabelKey(NamedTuple):
    """The subject of a label; an empty part means any, or the whole."""

    eval_id: str
    invocation_id: str = ""
    rubric_id: str = ""
    metric_name: str = ""
    eval_set_id: str = ""


class Label(NamedTuple):
    """A person's verdict, and its line in the file."""

    key: LabelKey
    passes: bool
    line: int


def read_labels(path: Path) -> list[Label]:
    """Read labels, one per line; raise FormatError for an invalid or repeated label.

    For a DuckDB file, return the verdicts of its reviews.
    """
    if path.suffix == ".duckdb":
        return _reviewed(path)
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _json_rows(path)
    labels: dict[LabelKey, Label] = {}
    for line, row in rows:
        label = _label(row, line, path)
        if label.key in labels:
            raise _bad(path, line, f"repeats the ids of line {labels[label.key].line}; keep one")
        labels[label.key] = label
    if not labels:
        raise FormatError(f"contains no labels; {_FORM}", path=str(path))
    return list(labels.values())


def _reviewed(path: Path) -> list[Label]:
    with open_to_read(path) as store:
        labels = reviewed_labels(store)
    if not labels:
        raise FormatError(
            "nothing has been reviewed here yet; use `evaltap review`", path=str(path)
        )
    return labels


def reviewed_labels(store: StoreReader) -> list[Label]:
    """Return the verdicts of reviewers about turns."""
    rows = store.rows(
        "SELECT eval_id, invocation_id, eval_set_id, bool_and(verdict = 'good') FROM v_review_items"
        " WHERE verdict IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    return [
        Label(LabelKey(eval_id, turn, eval_set_id=name), passes, number)
        for number, (eval_id, turn, name, passes) in enumerate(rows, start=1)
    ]


def _label(row: Mapping[str, Json], line: int, path: Path) -> Label:
    unknown = [name for name in row if name not in (*_FIELDS, "label", "note")]
    if unknown:
        raise _bad(path, line, f"found {', '.join(map(str, unknown))}; {_FORM}, note")
    texts = [row.get(name) for name in _FIELDS]
    if any(text is not None and not isinstance(text, str) for text in texts):
        raise _bad(path, line, f"an id is not a string; {_FORM}")
    key = LabelKey(*(text or "" for text in texts))
    if not key.eval_id:
        raise _bad(path, line, f"no evalId; {_FORM}")
    given = str(row.get("label", "")).strip().lower()
    if given not in _PASS | _FAIL:
        raise _bad(path, line, f"label is {row.get('label')!r}; expected pass or fail")
    return Label(key, given in _PASS, line)


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Json]]]:
    for number, text in enumerate(read_bytes(path).splitlines(), start=1):
        if not text.strip():
            continue
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise _bad(path, number, f"not JSON ({error}); {_FORM}") from None
        if not isinstance(row, dict):
            raise _bad(path, number, f"not a JSON object; {_FORM}")
        yield number, row


def _csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Json]]]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"is not UTF-8 ({error.reason})", path=str(path)) from None
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="more columns")
    for row in reader:
        yield reader.line_num, row


def _bad(path: Path, line: int, message: str) -> FormatError:
    return FormatError(message, path=str(path), place=f"line {line}")
