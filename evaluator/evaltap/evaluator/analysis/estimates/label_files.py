"""Human labels from JSON Lines or CSV, or from the reviews in a DuckDB file."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from evaltap.evaluator.analysis.estimates.labels import Label, LabelKey, reviewed_labels
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.data import Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.content import read_bytes

_PASS: Final = frozenset({"pass", "passed", "true", "yes", "1", "1.0"})
_FAIL: Final = frozenset({"fail", "failed", "false", "no", "0", "0.0"})
_FIELDS: Final = ("evalId", "invocationId", "rubricId", "metricName", "evalSetId", "appName")
_FORM: Final = (
    "expected evalId and label (pass or fail), optionally invocationId, rubricId, metricName,"
    " evalSetId, appName, weight"
)


class GivenLabels(NamedTuple):
    """The labels of a file, and what there is to say of those that it lacks."""

    labels: Sequence[Label] = ()
    note: str = ""


def read_labels(path: Path) -> GivenLabels:
    """Read labels, one per line; raise FormatError for an invalid or repeated label.

    For a DuckDB file, return the verdicts of its reviews; the note says on how many turns reviewers disagree.
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
    return GivenLabels([*labels.values()])


def _reviewed(path: Path) -> GivenLabels:
    with open_to_read(path) as store:
        labels = reviewed_labels(store)
        ((count,),) = store.rows("SELECT count(*) FROM v_review_items WHERE state = 'disagreed'")
    if not labels:
        raise FormatError(
            "nothing has been reviewed here yet; use `evaltap review`", path=str(path)
        )
    whose = "turns on which reviewers disagree, the hard ones, have no label until somebody settles them"
    return GivenLabels(labels, f"{whose} (`evaltap review`): {count:,}" if count else "")


def _label(row: Mapping[str, Json], line: int, path: Path) -> Label:
    unknown = [name for name in row if name not in (*_FIELDS, "label", "weight", "note")]
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
    return Label(key, given in _PASS, line, _weight(row.get("weight"), line, path))


def _weight(given: Json, line: int, path: Path) -> float:
    """Return how many turns a label stands for; in CSV it is a text."""
    if given in (None, ""):
        return 1.0
    try:
        weight = float(str(given))  # no bool and no list
    except ValueError:
        weight = math.nan
    if not 1 <= weight < math.inf:
        raise _bad(path, line, f"weight is {given!r}; expected a number of turns, at least 1")
    return weight


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
