"""Pair a judge's verdicts with human labels."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from evaltap.evaluator.analysis.estimates.labels import Label
from evaltap.evaluator.analysis.stats.estimate import estimate
from evaltap.evaluator.analysis.stats.sample import Cell, Profile
from evaltap.evaluator.curation.calibration.statistics import (
    Calibration,
    Labelled,
    Share,
    Verdicts,
    calibrate,
)
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

Level: TypeAlias = Literal["cases", "turns", "rubrics"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One metric at one level, compared with its labels."""

    metric_name: str
    level: Level
    calibration: Calibration
    without_verdict: int
    """The number of labels without a verdict of the metric: not evaluated, or an error."""
    disagreements: tuple[tuple[str, str, str, bool], ...]
    """Eval id, invocation id, rubric id and the judge's verdict, for labels that disagree."""


class _Verdict(NamedTuple):
    """The judge's verdict on one item, if any, and its inclusion probability."""

    passes: bool | None
    probability: float


@dataclass(slots=True)
class _Verdicts:
    """The verdicts of one metric, by eval id, invocation id and rubric id, then by app and eval set."""

    by_key: dict[tuple[str, str, str], dict[str, _Verdict]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    by_session: dict[Level, dict[tuple[str, str], list[_Verdict]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def of(self, level: Level) -> Verdicts:
        """Return all verdicts of a level: their counts, the pass rate and half the width of its interval."""
        given = [one for found in self.by_session[level].values() for one in found]
        judged = estimate(_profile(found) for found in self.by_session[level].values())
        passes = sum(one.passes is True for one in given)
        if judged is None:
            return Verdicts(0, 0, 0.0)
        half_width = (judged.process.high - judged.process.low) / 2
        return Verdicts(passes, len(given) - passes, judged.rate, half_width)


def _profile(verdicts: Iterable[_Verdict]) -> Profile:
    """Return a session's verdicts in the form that estimators need."""
    cells: defaultdict[float, list[bool]] = defaultdict(list)
    for one in verdicts:
        cells[one.probability].append(one.passes is True)
    return Profile(tuple(Cell(p, len(found), sum(found), sum(found)) for p, found in cells.items()))


def calibrate_metric(
    store: StoreReader, metric: RunMetric, labels: Sequence[Label]
) -> list[Calibrated]:
    """Compare the latest verdicts of a metric with the labels about it, level by level.

    Raises InputError for a label of an item that was never scored, or that is in two eval sets.
    """
    verdicts = _Verdicts()
    query = sql(__name__, "judged_verdicts")
    for app, eval_set, *key, passes, probability in store.rows(query, {"digest": metric.digest}):
        eval_id, invocation_id, rubric_id = key
        place, verdict = f"{app}/{eval_set}", _Verdict(passes, probability)
        verdicts.by_key[eval_id, invocation_id, rubric_id][place] = verdict
        if passes is not None:
            sessions = verdicts.by_session[_level(invocation_id, rubric_id)]
            sessions[place, eval_id].append(verdict)
    name = metric.metric.metric_name
    mine = [label for label in labels if label.key.metric_name in ("", name)]
    by_level: dict[Level, list[tuple[Label, _Verdict]]] = defaultdict(list)
    for label in mine:
        _, invocation_id, rubric_id, *_ = label.key
        level = _level(invocation_id, rubric_id)
        by_level[level].append((label, _verdict(verdicts, label, name)))
    return [_calibrated(name, level, found, verdicts) for level, found in by_level.items()]


def _calibrated(
    name: str, level: Level, found: Sequence[tuple[Label, _Verdict]], verdicts: _Verdicts
) -> Calibrated:
    labels, differing = [], []
    for label, verdict in found:
        if verdict.passes is None:
            continue
        labels.append(Labelled(verdict.passes, label.passes, 1 / verdict.probability))
        if verdict.passes != label.passes:
            key = label.key
            differing.append((key.eval_id, key.invocation_id, key.rubric_id, verdict.passes))
    calibration = calibrate(labels, verdicts.of(level))
    return Calibrated(name, level, calibration, len(found) - len(labels), tuple(differing))


def _verdict(verdicts: _Verdicts, label: Label, metric_name: str) -> _Verdict:
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


def calibration_data(one: Calibrated) -> dict[str, object]:
    """Return a comparison with labels as JSON data."""
    found = one.calibration
    table = found.table
    return {
        "metric_name": one.metric_name,
        "level": one.level,
        "labels": table.total,
        "without_verdict": one.without_verdict,
        "table": table._asdict(),
        "agreement": _share(found.agreement),
        "kappa": _share(found.kappa),
        "base_rate": _share(found.base_rate),
        "constant_baseline": found.constant_baseline,
        "false_pass_rate": _share(found.false_pass_rate),
        "false_fail_rate": _share(found.false_fail_rate),
        "corrected_pass_rate": found.corrected._asdict(),
        "trust": found.trust.value,
        "reasons": found.reasons,
        "disagreements": [
            dict(zip(("evalId", "invocationId", "rubricId", "judge_passes"), row, strict=True))
            for row in one.disagreements
        ],
    }


def _share(share: Share) -> dict[str, object]:
    return {"value": share.value, "interval": share.interval}
