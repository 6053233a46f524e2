"""`evaltap set diff`: show how two eval sets differ."""

from evaltap.cli.messages import print_json
from evaltap.cli.options.set import DiffOptions
from evaltap.evaluator.cases.evalsets.difference import difference
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.reports.set_difference import print_difference


def run(options: DiffOptions) -> int:
    """Print the differences between the sets."""
    before, after = read_set(options.before), read_set(options.after)
    found = difference(before.cases, after.cases, only_content=options.content)
    if options.json:
        print_json({**found.data(), "exit_code": int(bool(found))})
    else:
        print_difference(found)
    return int(bool(found))
