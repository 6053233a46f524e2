"""`evaltap set coverage`: show what occurs in production but not in eval sets."""

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.set import CoverageOptions
from evaltap.cli.progress import progress
from evaltap.cli.settings import named_in_hints
from evaltap.cli.stores import choice_of, open_chosen, open_stores
from evaltap.evaluator.analysis.traffic import told_of_runs
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.cases.language import without_classifier
from evaltap.evaluator.curation.coverage import Coverage, coverage
from evaltap.evaluator.curation.values import (
    NothingSeenError,
    Period,
    check_app,
    check_dimensions,
    seen_in,
    seen_of_set,
)
from evaltap.evaluator.reports.safe_text import named_value, visible
from evaltap.schemas.text import counted


def run(options: CoverageOptions) -> int:
    """Compare the sets with the traffic and print the result; without sets, what occurs in it."""
    check_dimensions(options.by)
    sets = [read_set(path).cases for path in options.sets]
    with open_stores(options.db) as store:  # cases may come from turns that the filter excludes
        check_app(store, options.app)
        cases = [turn for of_set in sets for turn in seen_of_set(of_set, store, options.app)]
    with open_chosen(options.db, choice_of(options.chosen)) as store:
        seen = seen_in(store, Period(options.period.since, options.period.until, options.app))
        apart = told_of_runs(store)
    if not seen:
        raise NothingSeenError("no turn has landed that matches; choose another period or --filter")
    found = []
    with progress("values of turns compared") as compared:
        for name in options.by:
            found.append(coverage(name, seen, cases, fewest=options.min, fold=options.fold))
            compared(len(found) * len(seen))
    if "language" in options.by and (missing := without_classifier()):
        say("set coverage", f"language: {missing}")
    if apart:
        say("set coverage", apart)
    if options.json:
        print_json([one.data() for one in found])
        return 0
    if not sets:
        print("without --set, this is what a first eval set could contain")
    _print(found, "missing " if sets else "")
    if not sets:
        print(f"next: evaltap curate {named_in_hints(options.db[0])}--out golden.evalset.json")
    return 0


def _head(one: Coverage, lacks: str) -> str:
    if one.covered is None:
        return f"{one.by}: none {'known ' if one.unknown else ''}in this traffic"
    rate = one.covered.rate
    size = counted(rate.n, one.unit)
    if one.unknown:
        size += f"; unknown of {one.unknown:,} more"
    if not lacks:
        return f"{one.by} ({size})"
    return f"{one.by}: {rate.value:.1%} of the traffic is covered ({rate.interval:.1%}, {size})"


def _print(found: list[Coverage], lacks: str) -> None:
    """Print the shares by dimension; `lacks` stands before the values that no set has."""
    for one in found:
        print(_head(one, lacks))
        for gap in one.gaps:
            value, share = named_value(one.by, gap.value), gap.share
            print(
                f"  {lacks}{value}: {share.value:.1%} ({share.interval:.1%}),"
                f" for example {visible(gap.examples[0].name)}"
            )
        if one.more_gaps:
            print(f"  ... {one.more_gaps:,} more")
        if one.unseen:
            shown = ", ".join(named_value(one.by, value) for value in one.unseen[:5])
            if len(one.unseen) > 5:
                shown += f" and {len(one.unseen) - 5:,} more"
            print(f"  in the sets, but not in this traffic: {shown}")
