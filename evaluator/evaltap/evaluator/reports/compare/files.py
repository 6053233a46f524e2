"""Scores as files for git, sorted and without times.

A baseline says how often each case passed each metric, one case per line; score lines are JSON Lines with one
score each.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Final

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.sides import (
    VERDICTS,
    WITHOUT_VERDICT,
    Counts,
    MetricKey,
    MetricSide,
    Recording,
    ScoreRow,
    Side,
    contents_of,
    metrics_of,
)
from evaltap.schemas.data import Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import iter_case_lines, write_bytes
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.baseline import BaselineCase, BaselineFile, BaselineMetric

FORMAT: Final = "evaltap.baseline/2"
_TRIAL: Final = "baseline"

_NEEDED: Final = ("runId", "evalId", "metricName")
_STATUSES: Final = (*VERDICTS, *WITHOUT_VERDICT)


def read_baseline(data: Json, path: Path) -> Side:
    """Return a side from the content of a baseline file; raise FormatError with the position."""
    file = parse(BaselineFile, data, path=str(path))
    if file.format != FORMAT:
        raise FormatError(
            f"`format` is {file.format!r}; expected {FORMAT!r}; write the file again with this version of"
            " evaltap",
            path=str(path),
        )
    metrics = {metric.metric_name: metric for metric in file.metrics}
    found: dict[str, dict[CaseKey, Counts]] = {name: {} for name in metrics}
    recordings: dict[CaseKey, Sequence[Recording]] = {}
    for place, case in enumerate(file.cases):
        key = (case.app_name, case.eval_set_id, case.eval_id)
        where = f"cases[{place}]"
        if key in recordings:
            message = f"{case.eval_id!r} occurs twice; expected each case once"
            raise FormatError(message, path=str(path), place=where)
        recordings[key] = [Recording(_TRIAL, case.content, "", case.cost_usd, case.latency_ms)]
        counted = _counts(case, path, where)
        if unlisted := sorted(counted.keys() - metrics.keys()):
            message = f"metric {unlisted[0]!r} is not listed in `metrics`; add it there"
            raise FormatError(message, path=str(path), place=where)
        for name in metrics:
            found[name][key] = counted.get(name, Counts(0, 0))  # in base, without a verdict
    sides = {}
    for name, metric in metrics.items():
        thresholds = frozenset(() if metric.threshold is None else (metric.threshold,))
        graded = any(counts.scores for counts in found[name].values())
        side = MetricSide(metric.digest, thresholds, found[name], graded)
        sides[name, metric.digest] = side
    return Side(str(path), file.runs, sides, recordings, contents_of(recordings))


def write_baseline(path: Path, side: Side) -> None:
    """Write a side as a baseline with sorted cases; the same scores produce the same bytes."""
    newest = dict(side.metrics)  # the newest version of each name is last
    versions = {name: (name, digest) for name, digest in newest}
    metrics = []
    for name, version in sorted(versions.items()):
        metric = newest[version]
        threshold = min(metric.thresholds) if len(metric.thresholds) == 1 else None
        model = BaselineMetric(metric_name=name, digest=metric.digest, threshold=threshold)
        metrics.append(model.model_dump(by_alias=True))
    keys = sorted({case for key in versions.values() for case in newest[key].cases})
    cases = [_case(key, side, versions) for key in keys]
    head = {"format": FORMAT, "runs": side.runs}
    lines = [
        *(f'"{name}": {orjson.dumps(value).decode()},' for name, value in head.items()),
        f'"metrics": [\n{_lines(metrics)}\n],',
        f'"cases": [\n{_lines(cases)}\n]',
    ]
    write_bytes(path, ("{\n" + "\n".join(lines) + "\n}\n").encode())


def _lines(values: Sequence[Mapping[str, Json]]) -> str:
    return ",\n".join("  " + orjson.dumps(value).decode() for value in values)


def _case(key: CaseKey, side: Side, versions: Mapping[str, MetricKey]) -> Mapping[str, Json]:
    passed: dict[str, str] = {}
    scores: dict[str, list[float]] = {}
    for name, version in sorted(versions.items()):
        counts = side.metrics[version].cases.get(key)
        if counts is None or not counts.trials:
            continue
        if side.metrics[version].graded:
            scores[name] = sorted(counts.scores)
        else:
            passed[name] = f"{counts.passes}/{counts.trials}"
    recordings = side.recordings.get(key, ())
    app, eval_set, eval_id = key
    return BaselineCase(
        app_name=app,
        eval_set_id=eval_set,
        eval_id=eval_id,
        content=side.contents.get(key, ""),
        passed=passed,
        scores=scores,
        cost_usd=_mean([one.cost_usd for one in recordings]),
        latency_ms=_mean([one.latency_ms for one in recordings]),
    ).model_dump(by_alias=True)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    return float(f"{geometric_mean(known):.10g}") if known else None


def _counts(case: BaselineCase, path: Path, place: str) -> Mapping[str, Counts]:
    found = {}
    for name, text in case.passed.items():
        numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        passes, trials = (int(numbers[1]), int(numbers[2])) if numbers else (1, 0)
        if passes > trials or not trials:
            message = f"{name!r} is {text!r}; expected `passes/trials`, e.g. 4/5"
            raise FormatError(message, path=str(path), place=place)
        found[name] = Counts(passes, trials)
    for name, scores in case.scores.items():
        found[name] = Counts(0, len(scores), scores=tuple(scores))
    return found


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
    lines = []
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
        lines.append(orjson.dumps(line) + b"\n")
    write_bytes(path, b"".join(sorted(lines)))


def _row(data: Json, path: str, number: int) -> ScoreRow:
    def wrong(message: str) -> FormatError:
        return FormatError(message, path=path, place=f"line {number}")

    if not isinstance(data, dict):
        raise wrong(f"found {type(data).__name__}; expected a score as an object")

    def text(name: str) -> str:
        value = data.get(name)
        if value is None and name not in _NEEDED:
            return ""
        if isinstance(value, int) and not isinstance(value, bool) and name == "runId":
            return str(value)
        if not isinstance(value, str) or (name in _NEEDED and not value):
            found = "nothing" if value is None else repr(value)
            raise wrong(f"`{name}` is {found}; expected a text")
        return value

    def amount(name: str) -> float | None:
        if (value := data.get(name)) is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"`{name}` is {value!r}; expected a number")
        return float(value)

    score, threshold, status = amount("score"), amount("threshold"), text("status") or None
    if status is None:
        if score is None:
            raise wrong("found neither `status` nor `score`; expected at least one of them")
        if threshold is not None:
            status = "passed" if score >= threshold else "failed"
    elif status not in _STATUSES:
        raise wrong(f"`status` is {status!r}; expected one of {', '.join(_STATUSES)}")
    case = (text("appName"), text("evalSetId"), text("evalId"))
    names = (text("runId"), text("metricName"), text("metricDigest"))
    return ScoreRow(case, *names, status, score, threshold, text("reason"))
