"""Scores as JSON Lines, one score per line, sorted and without times, so that they are suitable for git."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import orjson

from evaltap.evaluator.reports.compare.sides import (
    VERDICTS,
    WITHOUT_VERDICT,
    ScoreRow,
    Side,
    metrics_of,
)
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import iter_case_lines, write_bytes
from evaltap.schemas.formats.model import Json

_NEEDED: Final = ("runId", "evalId", "metricName")
_STATUSES: Final = (*VERDICTS, *WITHOUT_VERDICT)


def read_score_lines(path: Path) -> Side:
    """Return the scores of a file: `{"runId","evalSetId","evalId","metricName","metricDigest","score",
    "status","threshold"}`, and optionally `appName` and `reason`; each run id is a trial.

    A line without status passes if its score reaches its threshold.  If it has no threshold either, the
    metric has only scores.  Raises FormatError with the line number.
    """
    rows = [
        _row(canonical.loads(line, path=str(path), place=f"line {number}"), str(path), number)
        for number, line in iter_case_lines(path)
    ]
    if not rows:
        raise FormatError("contains no scores; expected at least one", path=str(path))
    return Side(str(path), len({row.trial for row in rows}), metrics_of(rows), rows=rows)


def write_score_lines(path: Path, rows: Iterable[ScoreRow]) -> None:
    """Write sorted scores; the same scores produce the same bytes."""
    write_bytes(path, b"".join(sorted(_lines(rows))))


def _lines(rows: Iterable[ScoreRow]) -> Iterator[bytes]:
    for row in rows:
        app, eval_set, eval_id = row.case
        line = {
            "runId": row.trial,
            **({"appName": app} if app else {}),
            "evalSetId": eval_set,
            "evalId": eval_id,
            "metricName": row.metric,
            "metricDigest": row.digest,
            "score": row.score,
            "status": row.status,
            "threshold": row.threshold,
        }
        yield orjson.dumps(line) + b"\n"


def _row(data: Json, path: str, number: int) -> ScoreRow:
    place = f"line {number}"
    if not isinstance(data, dict):
        raise FormatError(
            f"found {type(data).__name__}; expected a score as an object", path=path, place=place
        )

    def text(name: str) -> str:
        value = data.get(name)
        if value is None and name not in _NEEDED:
            return ""
        if isinstance(value, int) and not isinstance(value, bool) and name == "runId":
            return str(value)
        if not isinstance(value, str) or (name in _NEEDED and not value):
            found = "nothing" if value is None else repr(value)
            raise FormatError(f"`{name}` is {found}; expected a text", path=path, place=place)
        return value

    def amount(name: str) -> float | None:
        value = data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FormatError(f"`{name}` is {value!r}; expected a number", path=path, place=place)
        return float(value)

    score, threshold, status = amount("score"), amount("threshold"), text("status") or None
    if status is None and threshold is not None:
        if score is None:
            raise FormatError(
                "found neither `status` nor `score`; expected at least one of them",
                path=path,
                place=place,
            )
        status = "passed" if score >= threshold else "failed"
    if status is None and score is None:
        raise FormatError(
            "found neither `status` nor `score`; expected at least one of them",
            path=path,
            place=place,
        )
    if status is not None and status not in _STATUSES:
        raise FormatError(
            f"`status` is {status!r}; expected one of {', '.join(_STATUSES)}",
            path=path,
            place=place,
        )
    case = (text("appName"), text("evalSetId"), text("evalId"))
    names = (text("runId"), text("metricName"), text("metricDigest"))
    return ScoreRow(case, *names, status, score, threshold, text("reason"))
