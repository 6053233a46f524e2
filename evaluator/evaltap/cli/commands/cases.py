"""`evaltap cases`: list the landed cases that match a filter, as a table."""

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.inspect import CasesOptions
from evaltap.cli.stores import choice_of, open_stores
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.analysis.filters.restricted import unknown_values
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.reports.cases import print_cases
from evaltap.evaluator.reports.console import console


def run(options: CasesOptions) -> int:
    """List the cases."""
    choice = choice_of(options.chosen)
    with open_stores([options.db]) as store:
        catch_up(store)
        found = list_page(store, choice, options.limit)
        unknown = [] if found.matched else [*unknown_values(store, choice.filter)]
    if options.json:
        print_json([case.data() for case in found.cases])
        return 0
    print_cases(found, console())
    if not found.matched:
        fits = f"no case matches {choice.text}" if choice else "no case has landed yet"
        fits = "; ".join([fits, *unknown])
        say("cases", f"{options.db}: {fits}")
    return 0
