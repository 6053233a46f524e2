"""Baseline files for git: how often each case passed each metric, one case per line, without times."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Final

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.sides import (
    Counts,
    MetricKey,
    MetricSide,
    Recording,
    Side,
    contents_of,
)
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import write_bytes
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.baseline import BaselineCase, BaselineFile, BaselineMetric
from evaltap.schemas.formats.model import Json

FORMAT: Final = "evaltap.baseline/1"
_TRIAL: Final = "baseline"


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
            raise FormatError(
                f"{case.eval_id!r} occurs twice; expected each case once",
                path=str(path),
                place=where,
            )
        recordings[key] = [Recording(_TRIAL, case.content, "", case.cost_usd, case.latency_ms)]
        for name, counts in _counts(case, path, where).items():
            if name not in metrics:
                raise FormatError(
                    f"metric {name!r} is not listed in `metrics`; add it there",
                    path=str(path),
                    place=where,
                )
            found[name][key] = counts
    sides = {
        (name, metric.digest): _metric(metric, found[name]) for name, metric in metrics.items()
    }
    return Side(str(path), file.runs, sides, recordings, contents_of(recordings))


def write_baseline(path: Path, side: Side) -> None:
    """Write a side as a baseline with sorted cases; the same scores produce the same bytes."""
    newest = dict(side.metrics)  # the newest version of each name is last
    versions = {name: (name, digest) for name, digest in newest}
    metrics = [_written(name, newest[key]) for name, key in sorted(versions.items())]
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


def _written(name: str, metric: MetricSide) -> Mapping[str, Json]:
    threshold = min(metric.thresholds) if len(metric.thresholds) == 1 else None
    model = BaselineMetric(metric_name=name, digest=metric.digest, threshold=threshold)
    return model.model_dump(by_alias=True)


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
        cost_usd=_mean([one.cost_usd for one in recordings], 6),
        latency_ms=_mean([one.latency_ms for one in recordings], 0),
    ).model_dump(by_alias=True)


def _mean(values: Sequence[float | None], digits: int) -> float | None:
    known = [value for value in values if value]
    return round(geometric_mean(known), digits) if known else None


def _metric(metric: BaselineMetric, cases: Mapping[CaseKey, Counts]) -> MetricSide:
    thresholds = frozenset(() if metric.threshold is None else (metric.threshold,))
    graded = any(counts.scores for counts in cases.values())
    return MetricSide(metric.digest, thresholds, cases, graded)


def _counts(case: BaselineCase, path: Path, place: str) -> Mapping[str, Counts]:
    found = {}
    for name, text in case.passed.items():
        numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        passes, trials = (int(numbers[1]), int(numbers[2])) if numbers else (1, 0)
        if passes > trials or not trials:
            raise FormatError(
                f"{name!r} is {text!r}; expected `passes/trials`, e.g. 4/5",
                path=str(path),
                place=place,
            )
        found[name] = Counts(passes, trials)
    for name, scores in case.scores.items():
        found[name] = Counts(0, len(scores), scores=tuple(scores))
    return found
