"""Pair a judge's verdicts with human labels."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from evaltap.evaluator.analysis.estimates.labels import Label
from evaltap.evaluator.analysis.stats.estimate import estimate_items
from evaltap.evaluator.analysis.stats.labelled import Figure, Judged, Labels, people
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

LEAST_LABELS: Final = 50
LEAST_OF_EACH: Final = 15
"""Fewer labels, in total or of each verdict, are inconclusive."""
TRUSTED_KAPPA: Final = 0.6
DOUBTED_KAPPA: Final = 0.4
TRUSTED_FALSE_PASSES: Final = 0.1
DOUBTED_FALSE_PASSES: Final = 0.3
MOST_LABELS: Final = 100_000
"""An upper bound on the number of labels that people would provide."""


class Trust(StrEnum):
    """A recommendation for using a judge's verdicts."""

    TRUST = "trust"
    CARE = "with care"
    DO_NOT = "do not"
    TOO_FEW = "too few labels"


class Table(NamedTuple):
    """Counts of labels by the verdicts of judge and person."""

    both_pass: int = 0
    false_pass: int = 0
    false_fail: int = 0
    both_fail: int = 0

    @property
    def total(self) -> int:
        """All labels."""
        return sum(self)

    @property
    def human_pass(self) -> int:
        """The number of labels that are pass."""
        return self.both_pass + self.false_fail

    @property
    def human_fail(self) -> int:
        """The number of labels that are fail."""
        return self.both_fail + self.false_pass


class Corrected(NamedTuple):
    """The pass rate that people would find, next to the judge's own."""

    observed: float | None
    judged: int
    """The number of verdicts behind the judge's rate, labelled or not."""
    rate: Rate | None


class Labelled(NamedTuple):
    """The verdicts of judge and person on one item, and its weight in the traffic."""

    judge_passes: bool
    person_passes: bool
    weight: float = 1.0
    session: Hashable = None
    """Its cluster; None: it has none."""


class Verdicts(NamedTuple):
    """All verdicts of a judge: counts, pass rate, and half the width of its 95 % interval."""

    passes: int
    fails: int
    rate: float
    half_width: float = 0.0


class Calibration(NamedTuple):
    """The result of comparing a judge with labels."""

    table: Table
    agreement: Rate | None
    """This and the following are None without labels, or if undefined."""
    kappa: Rate | None
    base_rate: Rate | None
    """The share that people would pass."""
    constant_baseline: float | None
    """The agreement of a judge that always gives the people's most frequent verdict."""
    false_pass_rate: Rate | None
    """As a share of the answers that people fail."""
    false_fail_rate: Rate | None
    """As a share of the answers that people pass."""
    corrected: Corrected
    trust: Trust
    reasons: tuple[str, ...]


def table_of(labels: Sequence[Labelled]) -> Table:
    """Count labels by the verdicts of judge and person."""
    counts = Counter((label.judge_passes, label.person_passes) for label in labels)
    return Table(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def calibrate(labels: Sequence[Labelled], verdicts: Verdicts) -> Calibration:
    """Return the calibration of a judge with these verdicts."""
    judged = Judged(
        verdicts.rate,
        verdicts.half_width,
        *(
            Labels.of(
                (place if one.session is None else one.session, one.weight, one.person_passes)
                for place, one in enumerate(labels)
                if one.judge_passes == verdict
            )
            for verdict in (True, False)
        ),
    )
    # Each verdict that the judge gives needs labels; otherwise, figures would be guesses.
    of_each = ((judged.passed, judged.rate), (judged.failed, 1 - judged.rate))
    known = all(labels.count or not share for labels, share in of_each)

    def figure(function: Figure, low: float = 0.0) -> Rate | None:
        return judged.rate_of(function, low) if known else None

    base, table = figure(people), table_of(labels)
    count = verdicts.passes + verdicts.fails
    corrected = Corrected(judged.rate, count, judged.rate_of(people))
    found = Calibration(
        table,
        figure(_agreement),
        figure(_kappa, -1.0),
        base,
        None if base is None else max(base.value, 1 - base.value),
        figure(_false_pass),
        figure(_false_fail),
        corrected if count else Corrected(None, 0, None),
        Trust.TOO_FEW,
        _missing(table, judged, verdicts),
    )
    if found.reasons:
        return found
    trust, reasons = _trust(found, judged, verdicts)
    return found._replace(trust=trust, reasons=reasons)


# The four shares of verdicts of judge and person follow from the judge's pass rate q and the shares
# g1 and g0 that people pass of what it passes and fails.  At its ends q may lie beyond 0 to 1.


def _agreement(q: float, g1: float, g0: float) -> float:
    return _cut(q) * g1 + (1 - _cut(q)) * (1 - g0)


def _kappa(q: float, g1: float, g0: float) -> float | None:
    """Cohen's kappa; undefined if judge or person gives only a single verdict."""
    judge = _cut(q)
    person = judge * g1 + (1 - judge) * g0
    by_chance = judge * person + (1 - judge) * (1 - person)
    if math.isclose(by_chance, 1.0):
        return None
    return (_agreement(q, g1, g0) - by_chance) / (1 - by_chance)


def _false_pass(q: float, g1: float, g0: float) -> float | None:
    return _part(_cut(q) * (1 - g1), (1 - _cut(q)) * (1 - g0))


def _false_fail(q: float, g1: float, g0: float) -> float | None:
    return _part((1 - _cut(q)) * g0, _cut(q) * g1)


def _part(one: float, other: float) -> float | None:
    return one / (one + other) if one + other > 0 else None


def _cut(rate: float) -> float:
    return min(max(rate, 0.0), 1.0)


def labels_needed(judged: Judged) -> tuple[str, int] | None:
    """Return the verdict that needs more labels to bound the false passes, and their number at today's rate.

    None if they are bounded already, or if no number of labels of one verdict suffices.
    """
    found = judged.rate_of(_false_pass)
    if found is None or found.interval.high <= TRUSTED_FALSE_PASSES:
        return None
    needed = [
        (more, verdict)
        for verdict, labels in (("passes", judged.passed), ("fails", judged.failed))
        if labels.count and (more := _more(judged, labels))
    ]
    return (min(needed)[1], min(needed)[0]) if needed else None


def _more(judged: Judged, labels: Labels) -> int | None:
    """Return how many more labels of a verdict suffice; None if no number does."""

    def bounded(more: int) -> bool:
        trials = labels.trials + more
        grown = Labels(labels.count + more, trials, trials, labels.share * trials)
        passes = labels is judged.passed
        with_more = replace(judged, passed=grown) if passes else replace(judged, failed=grown)
        found = with_more.rate_of(_false_pass)
        return found is not None and found.interval.high <= TRUSTED_FALSE_PASSES

    low, high = 0, MOST_LABELS
    if not bounded(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bounded(middle) else (middle, high)
    return high


def _trust(found: Calibration, judged: Judged, verdicts: Verdicts) -> tuple[Trust, tuple[str, ...]]:
    if against := _against(found):
        return Trust.DO_NOT, against
    if doubts := _doubts(found, judged, verdicts):
        return Trust.CARE, doubts
    return Trust.TRUST, ("kappa and false passes are within their bounds, intervals included",)


def _against(found: Calibration) -> tuple[str, ...]:
    """Return why the judge is not to be trusted, regardless of its intervals."""
    kappa, agreement = found.kappa, found.agreement
    false_pass, baseline = found.false_pass_rate, found.constant_baseline
    against: list[str] = []
    if kappa is None or kappa.value < DOUBTED_KAPPA:
        shown = "undefined" if kappa is None else f"{kappa.value:.2f}"
        against.append(f"kappa is {shown}, below {DOUBTED_KAPPA}")
    if agreement is not None and baseline is not None and agreement.value <= baseline:
        against.append(
            f"it agrees with people in {agreement.value:.1%}, no more than a judge that always says"
            f" the same ({baseline:.1%})"
        )
    if false_pass is not None and false_pass.value > DOUBTED_FALSE_PASSES:
        against.append(f"it passes {false_pass.value:.1%} of what people fail")
    return tuple(against)


def _doubts(found: Calibration, judged: Judged, verdicts: Verdicts) -> tuple[str, ...]:
    """Return the doubts that the intervals leave."""
    doubts = [
        f"the judge {verdict} only {given} of what it judged, fewer than {LEAST_OF_EACH}"
        for verdict, given in (("passes", verdicts.passes), ("fails", verdicts.fails))
        if given < LEAST_OF_EACH
    ]
    kappa, false_pass = found.kappa, found.false_pass_rate
    if kappa is not None and kappa.interval.low < TRUSTED_KAPPA:
        doubts.append(f"kappa may be as low as {kappa.interval.low:.2f}, below {TRUSTED_KAPPA}")
    if false_pass is not None and false_pass.interval.high > TRUSTED_FALSE_PASSES:
        needed = labels_needed(judged)
        hint = (
            f"; {needed[1]} more labels of what it {needed[0]} could rule that out"
            if needed
            else ""
        )
        doubts.append(
            f"it may pass up to {false_pass.interval.high:.1%} of what people fail, more than"
            f" {TRUSTED_FALSE_PASSES:.0%}{hint}"
        )
    return tuple(doubts)


def _missing(table: Table, judged: Judged, verdicts: Verdicts) -> tuple[str, ...]:
    """Return which labels are too few; for a rare verdict of the judge, all available labels suffice."""
    found = [
        (table.total, LEAST_LABELS, "labels"),
        (table.human_pass, 1, "labels that are pass"),
        (table.human_fail, 1, "labels that are fail"),
        (
            judged.passed.count,
            min(LEAST_OF_EACH, verdicts.passes),
            "labels of what the judge passes",
        ),
        (judged.failed.count, min(LEAST_OF_EACH, verdicts.fails), "labels of what the judge fails"),
    ]
    return tuple(
        f"{count} {what}, at least {least} {'is' if least == 1 else 'are'} needed: {least - count} more"
        for count, least, what in found
        if count < least
    )


Level: TypeAlias = Literal["cases", "turns", "rubrics"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One metric at one level, compared with its labels."""

    metric_name: str
    level: Level
    calibration: Calibration
    without_verdict: int
    """The number of labels without a verdict of the metric: not scored, not evaluated, or an error."""
    picked: int
    """The number of labels with a verdict that were picked, not drawn at random."""
    disagreements: tuple[tuple[str, str, str, bool], ...]
    """Eval id, invocation id, rubric id and the judge's verdict, for labels that disagree."""


class _Verdict(NamedTuple):
    """The judge's verdict on one item, if any, and its inclusion probability."""

    passes: bool | None
    probability: float


class _Place(NamedTuple):
    """Where a case is."""

    app_name: str
    eval_set_id: str


@dataclass(slots=True)
class _Verdicts:
    """The verdicts of one metric, by eval id, invocation id and rubric id, then by app and eval set."""

    by_key: dict[tuple[str, str, str], dict[_Place, _Verdict]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    given: dict[Level, list[tuple[tuple[_Place, str], _Verdict]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Those that were given, with their sessions."""

    def of(self, level: Level) -> Verdicts:
        """Return all verdicts of a level: their counts, the pass rate and half the width of its interval."""
        given = [
            (key, one.probability, float(one.passes is True)) for key, one in self.given[level]
        ]
        judged = estimate_items(given)
        passes = sum(score == 1 for _, _, score in given)
        if judged is None:
            return Verdicts(0, 0, 0.0)
        low, high = judged.rate.interval
        return Verdicts(passes, len(given) - passes, judged.rate.value, (high - low) / 2)


def calibrate_metric(
    store: StoreReader, metric: RunMetric, labels: Sequence[Label]
) -> list[Calibrated]:
    """Compare the latest verdicts of a metric with the labels about it, level by level.

    Raises InputError for a label of an item that was never scored, is in two eval sets, or has another label.
    """
    verdicts = _Verdicts()
    query = sql(__name__, "judged_verdicts")
    for app, eval_set, *key, passes, probability in store.rows(query, {"digest": metric.digest}):
        eval_id, invocation_id, rubric_id = key
        place, verdict = _Place(app, eval_set), _Verdict(passes, probability)
        verdicts.by_key[eval_id, invocation_id, rubric_id][place] = verdict
        if passes is not None:
            verdicts.given[_level(invocation_id, rubric_id)].append(((place, eval_id), verdict))
    name = metric.metric.metric_name
    mine = [label for label in labels if label.key.metric_name in ("", name)]
    by_level: dict[Level, list[tuple[Label, _Verdict]]] = defaultdict(list)
    lines: dict[int, int] = {}
    for label in mine:
        _, invocation_id, rubric_id, *_ = label.key
        level = _level(invocation_id, rubric_id)
        verdict = _verdict_on(label, verdicts, name)
        first = lines.setdefault(id(verdict), label.line)
        if first != label.line:
            raise InputError(f"line {label.line}: labels the same as line {first}; keep one")
        by_level[level].append((label, verdict))
    calibrated = []
    for level, found in by_level.items():
        judged = [
            (label, one.passes, (label.weight or 1.0) / one.probability)
            for label, one in found
            if one.passes is not None
        ]
        pairs = [
            Labelled(passes, label.passes, weight, label.key.eval_id)
            for label, passes, weight in judged
        ]
        differing = tuple(
            (*label.key[:3], passes) for label, passes, _ in judged if passes != label.passes
        )
        calibration = calibrate(pairs, verdicts.of(level))
        picked = sum(label.weight is None for label, *_ in judged)
        without_verdict = len(found) - len(pairs)
        calibrated.append(Calibrated(name, level, calibration, without_verdict, picked, differing))
    return calibrated


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
        if key.eval_set_id in ("", place.eval_set_id) and key.app_name in ("", place.app_name)
    ]
    if not chosen:
        about = " ".join(part for part in key[:3] if part)
        raise InputError(
            f"line {label.line}: {about!r} has no score under metric {metric_name} as it is now;"
            " score it first (`evaltap score`, with this judge), or correct the ids"
        )
    if len(chosen) > 1:
        raise InputError(
            f"line {label.line}: case {key.eval_id} is in {len(chosen)} eval sets or applications; name"
            " evalSetId or appName"
        )
    return chosen[0]


def _verdict_on(label: Label, verdicts: _Verdicts, metric_name: str) -> _Verdict:
    """Return the verdict; that on a turn of the store may be lacking: sampling left it out, say."""
    places = verdicts.by_key.get((*label.key[:2], ""), {})
    if label.stored and (label.key.app_name, label.key.eval_set_id) not in places:
        return _Verdict(None, 1.0)
    return _verdict(verdicts, label, metric_name)


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
        "picked": one.picked,
        "table": table._asdict(),
        "agreement": _share(found.agreement),
        "kappa": _share(found.kappa),
        "base_rate": _share(found.base_rate),
        "constant_baseline": found.constant_baseline,
        "false_pass_rate": _share(found.false_pass_rate),
        "false_fail_rate": _share(found.false_fail_rate),
        "corrected_pass_rate": {
            "observed": found.corrected.observed,
            "judged": found.corrected.judged,
            **_share(found.corrected.rate),
        },
        "trust": found.trust.value,
        "reasons": found.reasons,
        "disagreements": [
            dict(zip(("evalId", "invocationId", "rubricId", "judge_passes"), row, strict=True))
            for row in one.disagreements
        ],
    }


def _share(rate: Rate | None) -> dict[str, object]:
    return {"value": rate and rate.value, "interval": rate and rate.interval}
