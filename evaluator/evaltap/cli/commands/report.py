"""`evaltap report`: summarise scores by metric, with the worst and the unscored cases."""

import sys
from dataclasses import replace

from markupsafe import Markup

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.inspect import ReportOptions
from evaltap.cli.redaction import report_redactor, told
from evaltap.cli.scoring import read_references
from evaltap.cli.settings import named_in_hints
from evaltap.cli.stores import choice_of, open_chosen
from evaltap.cli.verdict import Scope, guarded_exit, worst_differences
from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.analysis.estimates.scope import Scope as Turns
from evaltap.evaluator.cases.datasets.trials import trials_apart
from evaltap.evaluator.reports.compare.formats import cleaned
from evaltap.evaluator.reports.compare.html import comparison_section
from evaltap.evaluator.reports.compare.model import Rules
from evaltap.evaluator.reports.compare.reading import compare_sides
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.reports.formats import format_of, render
from evaltap.evaluator.reports.html.report import html
from evaltap.evaluator.reports.rates import print_rates
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.reports.redaction import redacted
from evaltap.evaluator.reports.repeats import print_pass_k, read_pass_k
from evaltap.evaluator.reports.scope import check_run
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.reports.terminal import print_summary
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import write_bytes


def run(options: ReportOptions) -> int:
    """Print or write the report; return the exit code."""
    wanted: str | None = options.format
    if options.out is not None:
        if wanted == "console" or options.json:
            raise InputError("--out: needs a file format; leave out --json and --format console")
        wanted = format_of(options.out, wanted)
    if wanted not in (None, "console") and (options.by or options.pass_k):
        raise InputError("--by, --pass-k: only for the console and --json; leave out --out")
    if options.redact and options.no_redact:
        raise InputError("--redact, --no-redact: use one of them")
    section = _compared(options, wanted)  # before the file is opened and locked
    with (
        trials_apart(options.cases) as trials,
        open_chosen(options.db, choice_of(options.chosen)) as store,
    ):
        options = replace(options, cases=tuple(trials.files.paths))
        if wanted in (None, "console"):
            return _on_console(options, store)
        return _whole(options, store, wanted, section)


def _on_console(options: ReportOptions, store: StoreReader) -> int:
    if options.run_id:
        check_run(store, options.run_id)
    summary = summarise(store, run_id=options.run_id, worst=options.worst)
    scope = Scope(case_files=options.cases, references=read_references(options.expected))
    code = guarded_exit("report", options.guards, store, summary, scope)
    differences = [] if options.json else worst_differences(store, summary, scope)
    if options.redact:
        clean = report_redactor()
        summary, differences = redacted(summary, clean), redacted(differences, clean)
    of_run = Turns(run_id=options.run_id, files=True)
    rates = estimate_rates(store, of_run, by=options.by).rates if options.by else ()
    repeats = read_pass_k(store, options.pass_k, run_id=options.run_id) if options.pass_k else []
    if options.json:
        more = {"by": [rate.data() for rate in rates]} if options.by else {}
        if options.pass_k:
            more["pass_k"] = [row.data() for row in repeats]
        print_json({**summary.data(), **more, "exit_code": code})
    elif not summary.metrics:
        ((landed,),) = store.rows("SELECT count(*) FROM latest_cases")
        print(
            f"no scores yet ({landed:,} landed cases); score them with `evaltap score"
            f" {named_in_hints(options.db[0])}--metrics M.json`"
        )
    else:
        print_summary(summary, console(), differences, store=named_in_hints(options.db[0]))
        print_rates(rates, options.by, console())
        if options.pass_k:
            print_pass_k(repeats, console())
    return code


def _compared(options: ReportOptions, wanted: str | None) -> Markup | None:
    if options.baseline is None:
        return None
    store, *others = options.db
    if wanted != "html" or others:
        raise InputError(
            "--baseline: only for the HTML report of one DuckDB file; use `evaltap compare --report` for"
            " other formats"
        )
    head = f"{store}#{options.run_id}" if options.run_id else str(store)
    found = compare_sides(options.baseline, head, Rules())
    return comparison_section(cleaned(found, report_redactor()) if _redacts(options) else found)


def _redacts(options: ReportOptions) -> bool:
    return options.redact or (options.out is not None and not options.no_redact)


def _whole(options: ReportOptions, store: StoreReader, wanted: str, section: Markup | None) -> int:
    report = read_report(
        store,
        run_id=options.run_id,
        case_files=options.cases,
        references=read_references(options.expected),
    )
    if clean := _redacts(options):
        report = redacted(report, report_redactor())
    if wanted == "html":
        trace_url = TraceUrl(options.trace_url) if options.trace_url else None
        text = html(report, sections=section, trace_url=trace_url)
    else:
        text = render(report, wanted)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_bytes(options.out, text.encode("utf-8", "replace"))
        say("report", f"{wanted} report written to {options.out}{told(clean)}")
    return guarded_exit(
        "report", options.guards, store, report.summary, Scope(case_files=options.cases)
    )
