"""`evaltap compare`: show what changed between two runs, and whether it is worse."""

from dataclasses import asdict

from evaltap.cli.interpreter import collecting_rarely
from evaltap.cli.messages import print_json, say
from evaltap.cli.options.score import CompareOptions
from evaltap.cli.redaction import report_redactor, told
from evaltap.evaluator.reports.compare.console import print_comparison
from evaltap.evaluator.reports.compare.formats import write_comparison
from evaltap.evaluator.reports.compare.model import Rules, comparison_data
from evaltap.evaluator.reports.compare.reading import compare_sides


def run(options: CompareOptions) -> int:
    """Compare the sides, print the result and write the reports; return the exit code."""
    with collecting_rarely():
        found = compare_sides(options.base, options.head, Rules(**asdict(options.rules)))
    if options.json:
        print_json(comparison_data(found))
    else:
        print_comparison(found)
    clean = report_redactor() if options.report and not options.no_redact else None
    for path in options.report:
        write_comparison(found, path, clean)
        say("compare", f"report written to {path}{told(clean is not None)}")
    return 0 if options.fail_on == "never" else found.exit_code
