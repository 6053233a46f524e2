"""`evaltap cases`: list the landed cases that match a filter, as a table."""

from dataclasses import replace

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.inspect import CasesOptions
from evaltap.cli.stores import choice_of, open_stores
from evaltap.evaluator.analysis.filters.choice import told_of_left_out
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.analysis.filters.restricted import unknown_values
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.reports.cases import print_cases
from evaltap.evaluator.reports.console import console


def run(options: CasesOptions) -> int:
    """List the cases."""
    choice = replace(choice_of(options.chosen), traffic=True)
    with open_stores([options.db]) as store:
        catch_up(store)
        found = list_page(store, choice, options.limit)
        left_out = told_of_left_out(store, choice)
        unknown = [] if found.matched else [*unknown_values(store, choice.filter)]
    if left_out:
        say("cases", f"{options.db}: {left_out}")
    if options.json:
        print_json([case.data() for case in found.cases])
        return 0
    print_cases(found, console())
    if not found.matched:
        fits = f"no case matches {choice.text}" if choice else "no case has landed yet"
        fits = "; ".join([fits, *unknown])
        say("cases", f"{options.db}: {fits}")
    return 0
