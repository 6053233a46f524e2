"""`evaltap set drift`: test whether the mix of traffic changed between two periods."""

from pathlib import Path

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.set import DriftOptions
from evaltap.cli.stores import open_stores
from evaltap.cli.values import PeriodOrSet
from evaltap.evaluator.analysis.traffic import told_of_runs
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.cases.language import without_classifier
from evaltap.evaluator.curation.drift import Drift, drift
from evaltap.evaluator.curation.values import (
    NothingSeenError,
    Period,
    Seen,
    check_app,
    check_dimensions,
    seen_in,
    seen_of_set,
)
from evaltap.evaluator.reports.safe_text import named_value
from evaltap.evaluator.store.queries import StoreReader

SHOWN = 5


def run(options: DriftOptions) -> int:
    """Compare the periods and print the result."""
    with open_stores(options.db) as store:
        check_dimensions(options.by)
        check_app(store, options.app)
        before = _seen(store, options.before, options.app)
        after = _seen(store, options.after, options.app)
        apart = told_of_runs(store)
    found = drift(options.by, before, after)
    if options.json:
        print_json([one.data() for one in found])
    else:
        _print(found)
    if "language" in options.by and (missing := without_classifier()):
        say("set drift", f"language: {missing}")
    if apart:
        say("set drift", apart)
    for name in options.by:
        if name not in {one.by for one in found}:
            say("set drift", f"{name}: not compared; one side has none that is known")
    return 0 if found else 3


def _seen(store: StoreReader, period: PeriodOrSet, app: str) -> list[Seen]:
    if isinstance(period, Path):
        found = seen_of_set(read_set(period).cases, store, app)
        name = str(period)
    else:
        found = seen_in(store, Period(*period, app))
        name = f"{period[0]:%Y-%m-%d %H:%M} to {period[1]:%Y-%m-%d %H:%M}"
    if not found:
        raise NothingSeenError(f"{name}: contains no turns; choose another period")
    return found


def _print(found: list[Drift]) -> None:
    for one in found:
        verdict = "changed" if one.q_value <= 0.05 else "no significant change"
        if not one.can_change:
            verdict = "too few sessions to find a change"
        print(
            f"{one.by}: {verdict}; distance {one.distance:.3f}, {one.expected:.3f} expected,"
            f" p {one.p_value:.4f}, q {one.q_value:.4f}"
            f" ({one.sessions[0]:,} and {one.sessions[1]:,} sessions)"
        )
        for shift in one.shifts[:SHOWN] if one.q_value <= 0.05 else ():
            value = named_value(one.by, shift.value)
            new = ", new" if not shift.before else ""
            print(
                f"  {value}: {shift.before:.1%} -> {shift.after:.1%}"
                f" (change {shift.low:+.1%} to {shift.high:+.1%}{new})"
            )
