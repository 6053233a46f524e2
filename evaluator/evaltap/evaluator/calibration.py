"""How far a judge can be trusted: its verdicts against the labels of people.

Pure statistics over four counts.  "Positive" is pass: a *false pass* is a judge's pass of what a person
fails, the fault that lets bad answers through.
"""

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from evaltap.evaluator.intervals import Interval, wilson

LEAST_LABELS: Final = 50
LEAST_OF_EACH: Final = 15
"""Fewer labels than these, of both kinds together and of each, say nothing."""
TRUSTED_KAPPA: Final = 0.6
DOUBTED_KAPPA: Final = 0.4
TRUSTED_FALSE_PASSES: Final = 0.1
DOUBTED_FALSE_PASSES: Final = 0.3

_Z95: Final = 1.959963984540054


class Trust(StrEnum):
    """What to do with a judge's verdicts."""

    TRUST = "trust"
    CARE = "with care"
    DO_NOT = "do not"
    TOO_FEW = "too few labels"


class Table(NamedTuple):
    """Cases by what judge and person say."""

    both_pass: int = 0
    false_pass: int = 0
    false_fail: int = 0
    both_fail: int = 0

    @property
    def total(self) -> int:
        """All cases."""
        return sum(self)

    @property
    def human_pass(self) -> int:
        """Cases that people pass."""
        return self.both_pass + self.false_fail

    @property
    def human_fail(self) -> int:
        """Cases that people fail."""
        return self.both_fail + self.false_pass

    @property
    def judge_pass(self) -> int:
        """Cases that the judge passes."""
        return self.both_pass + self.false_pass


class Share(NamedTuple):
    """A proportion with its 95 % interval; None where nothing was counted."""

    value: float | None
    interval: Interval | None


class Corrected(NamedTuple):
    """A pass rate freed from the judge's known faults (Rogan and Gladen)."""

    observed: float | None
    judged: int
    """Cases whose pass rate is corrected: all that were judged, labelled or not."""
    value: float | None
    """None where the judge is no better than chance, so that nothing can be concluded from it."""
    interval: Interval | None
    clipped: bool
    """Value or interval fell outside of 0 to 1 and was cut there: the labels are few, or not a sample."""


class Calibration(NamedTuple):
    """What labels say about a judge."""

    table: Table
    agreement: Share
    kappa: Share
    base_rate: Share
    """Share of the labels that are pass."""
    constant_baseline: float | None
    """Agreement of a judge that always says what people say most."""
    false_pass_rate: Share
    """Among what people fail."""
    false_fail_rate: Share
    """Among what people pass."""
    corrected: Corrected
    trust: Trust
    reasons: tuple[str, ...]


def table_of(pairs: Sequence[tuple[bool, bool]]) -> Table:
    """Count pairs of (judge passes, person passes)."""
    counts = Counter(pairs)
    return Table(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def calibrate(table: Table, judge_passes: int, judged: int) -> Calibration:
    """Return what a table says; `judge_passes` of `judged` cases in all passed by the judge."""
    base = _share(table.human_pass, table.total)
    rate = base.value
    agreement = _share(table.both_pass + table.both_fail, table.total)
    kappa = Share(cohen_kappa(table), kappa_interval(table))
    false_pass = _share(table.false_pass, table.human_fail)
    baseline = None if rate is None else max(rate, 1 - rate)
    trust, reasons = _trust(table, agreement, kappa, baseline, false_pass)
    return Calibration(
        table,
        agreement,
        kappa,
        base,
        baseline,
        false_pass,
        _share(table.false_fail, table.human_pass),
        corrected_rate(table, judge_passes, judged),
        trust,
        reasons,
    )


def cohen_kappa(table: Sequence[float]) -> float | None:
    """Return Cohen's kappa; None where one of both gives a single label only, so that it is undefined."""
    both_pass, false_pass, false_fail, both_fail = table
    total = both_pass + false_pass + false_fail + both_fail
    if not total:
        return None
    judge, person = (both_pass + false_pass) / total, (both_pass + false_fail) / total
    by_chance = judge * person + (1 - judge) * (1 - person)
    if math.isclose(by_chance, 1.0):
        return None
    return ((both_pass + both_fail) / total - by_chance) / (1 - by_chance)


def kappa_error(table: Sequence[float]) -> float:
    """Return the asymptotic standard error of kappa (Fleiss, Cohen and Everitt, 1969)."""
    total = sum(table)
    (pp, pf), (fp, ff) = (
        (table[0] / total, table[1] / total),
        (table[2] / total, table[3] / total),
    )
    judge, person = (pp + pf, fp + ff), (pp + fp, pf + ff)
    by_chance = judge[0] * person[0] + judge[1] * person[1]
    kappa = (pp + ff - by_chance) / (1 - by_chance)
    agreeing = sum(
        share * (1 - (judge[i] + person[i]) * (1 - kappa)) ** 2 for i, share in ((0, pp), (1, ff))
    )
    differing = (1 - kappa) ** 2 * sum(
        share * (person[i] + judge[j]) ** 2 for i, j, share in ((0, 1, pf), (1, 0, fp))
    )
    rest = (kappa - by_chance * (1 - kappa)) ** 2
    return math.sqrt(max(agreeing + differing - rest, 0.0) / total) / (1 - by_chance)


def kappa_interval(table: Table) -> Interval | None:
    """Return a 95 % interval of kappa.

    Half a case is added to each cell: without it, ten cases in full agreement would prove perfection.
    """
    kappa = cohen_kappa(table)
    if kappa is None:
        return None
    smoothed = [count + 0.5 for count in table]
    centre = cohen_kappa(smoothed)
    assert centre is not None  # no cell is empty
    reach = _Z95 * kappa_error(smoothed)
    return Interval(max(-1.0, min(centre - reach, kappa)), min(1.0, max(centre + reach, kappa)))


def corrected_rate(table: Table, judge_passes: int, judged: int) -> Corrected:
    """Return the pass rate that people would find, by the judge's rates of false passes and fails.

    The interval is that of the delta method over smoothed counts; it takes the labelled cases for a
    fair sample of the judged ones.
    """
    observed = judge_passes / judged if judged else None
    right_passes = _plain(table.both_pass, table.human_pass)
    right_fails = _plain(table.both_fail, table.human_fail)
    unknown = Corrected(observed, judged, None, None, clipped=False)
    if observed is None or right_passes is None or right_fails is None:
        return unknown
    power = right_passes + right_fails - 1
    if power <= 0:
        return unknown
    value = (observed + right_fails - 1) / power
    low, high = _corrected_ends(table, judge_passes, judged)
    clipped = not (0 <= value <= 1 and low >= 0 and high <= 1)
    value = min(max(value, 0.0), 1.0)
    interval = Interval(min(max(low, 0.0), value), max(min(high, 1.0), value))
    return Corrected(observed, judged, value, interval, clipped=clipped)


def _corrected_ends(table: Table, judge_passes: int, judged: int) -> tuple[float, float]:
    square = _Z95 * _Z95
    rate = (judge_passes + square / 2) / (judged + square)
    passes, fails = table.human_pass + 2, table.human_fail + 2
    right_passes, right_fails = (table.both_pass + 1) / passes, (table.both_fail + 1) / fails
    power = right_passes + right_fails - 1
    if power <= 0:
        return 0.0, 1.0
    value = (rate + right_fails - 1) / power
    variance = (
        rate * (1 - rate) / (judged + square)
        + value**2 * right_passes * (1 - right_passes) / passes
        + (1 - value) ** 2 * right_fails * (1 - right_fails) / fails
    ) / power**2
    reach = _Z95 * math.sqrt(variance)
    return value - reach, value + reach


def labels_needed(table: Table) -> int:
    """Return how many more labels of fails would bound the false passes, if they go on as before.

    0 when they are bounded already, or when they are too many for any number of labels.
    """
    fails, false_passes = table.human_fail, table.false_pass
    if not fails or false_passes / fails >= TRUSTED_FALSE_PASSES:
        return 0
    more = 0
    while True:
        seen = fails + more
        bound = wilson(round(false_passes * seen / fails), seen)
        if bound is None or bound.high <= TRUSTED_FALSE_PASSES:
            return more
        more += 1


def _trust(
    table: Table, agreement: Share, kappa: Share, baseline: float | None, false_pass: Share
) -> tuple[Trust, tuple[str, ...]]:
    missing = _missing(table)
    if missing:
        return Trust.TOO_FEW, missing
    against: list[str] = []
    if kappa.value is None or kappa.value < DOUBTED_KAPPA:
        against.append(f"kappa is {_shown(kappa.value)}, below {DOUBTED_KAPPA}")
    if agreement.value is not None and baseline is not None and agreement.value <= baseline:
        against.append(
            f"it agrees with people in {agreement.value:.1%}, no more than a judge that always says"
            f" the same ({baseline:.1%})"
        )
    if false_pass.value is not None and false_pass.value > DOUBTED_FALSE_PASSES:
        against.append(f"it passes {false_pass.value:.1%} of what people fail")
    if against:
        return Trust.DO_NOT, tuple(against)
    doubts: list[str] = []
    if kappa.interval is not None and kappa.interval.low < TRUSTED_KAPPA:
        doubts.append(f"kappa may be as low as {kappa.interval.low:.2f}, below {TRUSTED_KAPPA}")
    if false_pass.interval is not None and false_pass.interval.high > TRUSTED_FALSE_PASSES:
        more = labels_needed(table)
        hint = f"; {more} more labels of fails could rule that out" if more else ""
        doubts.append(
            f"it may pass up to {false_pass.interval.high:.1%} of what people fail, more than"
            f" {TRUSTED_FALSE_PASSES:.0%}{hint}"
        )
    if doubts:
        return Trust.CARE, tuple(doubts)
    return Trust.TRUST, ("kappa and false passes are within their bounds, intervals included",)


def _missing(table: Table) -> tuple[str, ...]:
    found = [
        (table.total, LEAST_LABELS, "labels"),
        (table.human_pass, LEAST_OF_EACH, "labels of passes"),
        (table.human_fail, LEAST_OF_EACH, "labels of fails"),
    ]
    return tuple(
        f"{count} {what}, at least {least} are needed: {least - count} more"
        for count, least, what in found
        if count < least
    )


def _share(count: int, total: int) -> Share:
    return Share(_plain(count, total), wilson(count, total))


def _plain(count: int, total: int) -> float | None:
    return count / total if total else None


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
