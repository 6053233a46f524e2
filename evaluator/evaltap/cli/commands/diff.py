"""`evaltap set diff`: show how two eval sets differ."""

from evaltap.cli.messages import print_json
from evaltap.cli.options.set import DiffOptions
from evaltap.evaluator.cases.evalsets.difference import difference, only_content
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.reports.set_difference import print_difference


def run(options: DiffOptions) -> int:
    """Print the differences between the sets."""
    found = difference(read_set(options.before).cases, read_set(options.after).cases)
    if options.content:
        found = only_content(found)
    if options.json:
        print_json({**found.data(), "exit_code": int(bool(found))})
    else:
        print_difference(found)
    return int(bool(found))
