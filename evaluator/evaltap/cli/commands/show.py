"""`evaltap show`: show one case, turn by turn, with feedback, scores and reasons."""

from evaltap.cli.messages import print_json
from evaltap.cli.options.inspect import ShowOptions
from evaltap.cli.stores import open_stores
from evaltap.evaluator.reports.case import case_lines, find_case, print_line, read_case
from evaltap.evaluator.reports.console import console


def run(options: ShowOptions) -> int:
    """Print the case."""
    with open_stores(options.db) as store:
        data = read_case(store, find_case(store, options.case, options.app))
    if options.json:
        print_json(data)
        return 0
    out = console()
    for line in case_lines(data):
        print_line(line, out)
    return 0
