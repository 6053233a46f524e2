"""`evaltap estimate`: estimate the pass rate of all traffic from the turns that sampling kept."""

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.inspect import EstimateOptions
from evaltap.cli.stores import open_stores
from evaltap.evaluator.analysis.estimates.label_files import GivenLabels, read_labels
from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.analysis.estimates.scope import Scope
from evaltap.evaluator.analysis.traffic import told_of_runs
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.reports.rates import print_rates
from evaltap.schemas.errors import InputError


def run(options: EstimateOptions) -> int:
    """Estimate and print the rates; return 3 when there is no turn to estimate from."""
    if options.labels and options.signal != "pass_rate":
        raise InputError(f"--labels corrects the pass rate, not --signal {options.signal}")
    if (
        options.period.since
        and options.period.until
        and options.period.since >= options.period.until
    ):
        raise InputError("--until: expected a time after --since")
    labels, unsettled = read_labels(options.labels) if options.labels else GivenLabels()
    scope = Scope(
        metric=options.metric,
        since=options.period.since,
        until=options.period.until,
        where=options.where,
        traffic="environment" not in options.by,
    )
    with open_stores(options.db) as store:
        found = estimate_rates(store, scope, by=options.by, signal=options.signal, labels=labels)
        left_out = told_of_runs(store, scope.where) if scope.traffic else ""
    if options.json:
        print_json([rate.data() for rate in found.rates])
    else:
        print_rates(found.rates, options.by, console())
    for note in filter(None, (*found.notes, unsettled, left_out)):
        say("estimate", note)
    if any(rate.estimate for rate in found.rates):
        return 0
    say(
        "estimate",
        f"{', '.join(map(str, options.db))}: no landed turn is relevant for"
        f" {options.signal}; land and score some with `evaltap consume`, or widen the selection",
    )
    return 3
