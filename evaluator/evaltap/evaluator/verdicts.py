"""A judge's verdicts beside the labels of people: which label is about which verdict."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evaltap.evaluator.calibration import Calibration, calibrate, table_of
from evaltap.evaluator.labels import Label
from evaltap.evaluator.runs import RunMetric
from evaltap.evaluator.store import Store, sql
from evaltap.schemas.errors import InputError

Level: TypeAlias = Literal["cases", "turns", "rubrics"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One metric at one level against its labels."""

    metric_name: str
    level: Level
    calibration: Calibration
    without_verdict: int
    """Labels of what the metric has no verdict on: not evaluated, or in error."""
    disagreements: tuple[tuple[str, str, str, bool], ...]
    """Eval id, invocation id, rubric id and whether the judge passes it, where people say otherwise."""


@dataclass(slots=True)
class _Verdicts:
    """The verdicts of one metric, by eval id, invocation id and rubric id."""

    by_key: dict[tuple[str, str, str], dict[str, bool | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    passes: dict[Level, list[bool]] = field(default_factory=lambda: defaultdict(list))


def calibrate_metric(store: Store, metric: RunMetric, labels: Sequence[Label]) -> list[Calibrated]:
    """Compare the latest verdicts of a metric with the labels about it, level by level.

    Raises InputError for a label of something that was never scored, or of two eval sets at once.
    """
    verdicts = _Verdicts()
    query = sql("judged_verdicts")
    for app, eval_set, *key, passes in store.rows(query, {"digest": metric.digest}):
        eval_id, invocation_id, rubric_id = key
        verdicts.by_key[eval_id, invocation_id, rubric_id][f"{app}/{eval_set}"] = passes
        if passes is not None:
            verdicts.passes[_level(invocation_id, rubric_id)].append(passes)
    name = metric.metric.metric_name
    mine = [label for label in labels if label.key.metric_name in ("", name)]
    by_level: dict[Level, list[tuple[Label, bool | None]]] = defaultdict(list)
    for label in mine:
        _, invocation_id, rubric_id, *_ = label.key
        level = _level(invocation_id, rubric_id)
        by_level[level].append((label, _verdict(verdicts, label, name)))
    return [_calibrated(name, level, found, verdicts) for level, found in by_level.items()]


def _calibrated(
    name: str, level: Level, found: Sequence[tuple[Label, bool | None]], verdicts: _Verdicts
) -> Calibrated:
    pairs = [(verdict, label.passes) for label, verdict in found if verdict is not None]
    passes = verdicts.passes[level]
    differing = tuple(
        (label.key.eval_id, label.key.invocation_id, label.key.rubric_id, verdict)
        for label, verdict in found
        if verdict is not None and verdict != label.passes
    )
    calibration = calibrate(table_of(pairs), sum(passes), len(passes))
    return Calibrated(name, level, calibration, len(found) - len(pairs), differing)


def _verdict(verdicts: _Verdicts, label: Label, metric_name: str) -> bool | None:
    key = label.key
    named = verdicts.by_key.get((key.eval_id, key.invocation_id, key.rubric_id), {})
    if key.rubric_id and not key.invocation_id:
        found = [
            (invocation, by_set)
            for (eval_id, invocation, rubric), by_set in verdicts.by_key.items()
            if (eval_id, rubric) == (key.eval_id, key.rubric_id)
        ]
        if len(found) > 1:
            raise InputError(
                f"line {label.line}: rubric {key.rubric_id} of case {key.eval_id} is judged in"
                f" {len(found)} turns; name the turn by invocationId"
            )
        named = found[0][1] if found else {}
    chosen = [
        verdict
        for place, verdict in named.items()
        if not key.eval_set_id or place.partition("/")[2] == key.eval_set_id
    ]
    if not chosen:
        about = " ".join(part for part in key[:3] if part)
        raise InputError(
            f"line {label.line}: {about!r} has no score under metric {metric_name} as it is now;"
            " score it first (`evaltap score`), or correct the ids"
        )
    if len(chosen) > 1:
        raise InputError(
            f"line {label.line}: case {key.eval_id} is in {len(chosen)} eval sets; name evalSetId"
        )
    return chosen[0]


def _level(invocation_id: str, rubric_id: str) -> Level:
    if rubric_id:
        return "rubrics"
    return "turns" if invocation_id else "cases"
