"""`evaltap report`: summarise scores by metric, with the worst and the unscored cases."""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_databases, add_json
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.options.page import add_trace_url, read_trace_url
from evaltap.cli.options.redaction import add_redact, report_redactor
from evaltap.cli.options.scoring import add_other_references, read_references
from evaltap.cli.options.verdict import (
    GuardOptions,
    Scope,
    add_guards,
    guarded_exit,
    worst_differences,
)
from evaltap.cli.parsing import counts, names, positive
from evaltap.evaluator.reports.formats import FORMATS, format_of, render
from evaltap.evaluator.reports.model import redacted
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from markupsafe import Markup

    from evaltap.evaluator.analysis.estimates.rates import SliceRate
    from evaltap.evaluator.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The scores to report, and the format."""

    db: tuple[Path, ...]
    run_id: str | None
    format: str | None
    out: Path | None
    cases: tuple[Path, ...]
    references: Path | None
    join: str
    redact: bool
    trace_url: str | None
    worst: int
    by: tuple[str, ...]
    pass_k: tuple[int, ...]
    baseline: str | None
    json: bool
    guards: GuardOptions
    chosen: FilterOptions


_EXAMPLES = (
    "examples:\n"
    "  evaltap report cases.duckdb            # the latest score of each case\n"
    "  evaltap report cases.duckdb --run 20261121-101500-ab12cd\n"
    "  evaltap report cases.duckdb --out report.html\n"
    "  evaltap report cases.duckdb --filter 'tool:refund since:7d'\n"
    "  evaltap report cases.duckdb --by version\n"
    "  evaltap report cases.duckdb --pass-k 1,3,5            # of repeated cases\n"
    "  evaltap report cases.duckdb --cases cases.evalset.json --out junit.xml\n"
    "  evaltap report cases.duckdb --baseline baseline.json --out report.html\n"
    '  evaltap report cases.duckdb --format markdown >> "$GITHUB_STEP_SUMMARY"\n\n'
    "exit code: 0 all passed, 1 something failed, 2 bad input, 3 incomplete"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _EXAMPLES
    add_databases(parser)
    add = parser.add_argument
    add("--run", dest="run_id", metavar="RUN", help="only this run (`evaltap runs` lists them)")
    add(
        "--format",
        choices=("console", *FORMATS),
        help="the format to print, or to write to --out (default: by the ending of --out, or console)",
    )
    add("--out", type=Path, metavar="FILE", help="write a report: .html, .md, .xml or .json")
    add(
        "--cases",
        type=Path,
        action="append",
        default=[],
        metavar="CASES",
        help="the files that were scored, to show what happened in their turns; may be repeated",
    )
    add_other_references(parser)
    add(
        "--worst",
        type=positive,
        default=10,
        metavar="N",
        help="list the N worst scores on the console (default: 10)",
    )
    _add_figures(add)
    add_redact(parser)
    add_trace_url(parser)
    add_filter(parser)
    add_json(parser)
    add_guards(parser)
    parser.set_defaults(run=run, options=ReportOptions)


def _add_figures(add: "Callable[..., object]") -> None:
    """Add the options for figures other than the metrics."""
    add(
        "--by",
        type=names,
        default=[],
        metavar="NAMES",
        help="also print pass rates of turns by version, environment, agent, tag, run, tool, model, hour,"
        " ...",
    )
    add(
        "--pass-k",
        type=counts,
        default=[],
        metavar="K,...",
        help="also print pass@k and pass^k of cases that were recorded several times (EVALTAP_RUN)",
    )
    add(
        "--baseline",
        metavar="BASE",
        help="add a section to the HTML report with what changed since these runs, as in `evaltap compare`",
    )


def run(options: ReportOptions) -> int:
    """Print or write the report; return the exit code."""
    wanted = options.format
    if options.out is not None:
        if wanted == "console" or options.json:
            raise InputError("--out: needs a file format; leave out --json and --format console")
        wanted = format_of(options.out, wanted)
    if wanted not in (None, "console") and (options.by or options.pass_k):
        raise InputError("--by, --pass-k: only for the console and --json; leave out --out")
    section = _compared(options, wanted)  # before the file is opened and locked
    from evaltap.evaluator.cases.datasets.trials import trials_apart

    with trials_apart(options.cases) as trials, options.chosen.open(options.db) as store:
        options = replace(options, cases=tuple(trials.files.paths))
        if wanted in (None, "console"):
            return _on_console(options, store)
        return _whole(options, store, wanted, section)


def _on_console(options: ReportOptions, store: "StoreReader") -> int:
    from evaltap.evaluator.reports.console import console, print_summary
    from evaltap.evaluator.reports.rates import print_rates
    from evaltap.evaluator.reports.repeats import print_pass_k, read_pass_k
    from evaltap.evaluator.reports.summary import check_run, summarise

    if options.run_id:
        check_run(store, options.run_id)
    summary = summarise(store, run_id=options.run_id, worst=options.worst)
    scope = Scope(
        case_files=options.cases, references=read_references(options.references, options.join)
    )
    code = guarded_exit(options.guards, store, summary, scope)
    differences = [] if options.json else worst_differences(store, summary, scope)
    if options.redact:
        clean = report_redactor()
        summary, differences = redacted(summary, clean), redacted(differences, clean)
    rates = _rates(options, store)
    repeats = read_pass_k(store, options.pass_k, run_id=options.run_id) if options.pass_k else []
    if options.json:
        more = {"by": [rate.data() for rate in rates]} if options.by else {}
        if options.pass_k:
            more["pass_k"] = [row.data() for row in repeats]
        print(json.dumps({**summary.data(), **more, "exit_code": code}, ensure_ascii=False))
    elif not summary.metrics:
        ((landed,),) = store.rows("SELECT count(*) FROM latest_cases")
        print(
            f"no scores yet ({landed:,} landed cases); score them with `evaltap score {options.db[0]}"
            " --metrics M.json`"
        )
    else:
        print_summary(summary, console(), differences, store=options.db[0])
        print_rates(rates, options.by, console())
        if options.pass_k:
            print_pass_k(repeats, console())
    return code


def _rates(options: ReportOptions, store: "StoreReader") -> "tuple[SliceRate, ...]":
    """Return the rates by the requested names; empty without `--by`."""
    from evaltap.evaluator.analysis.estimates.rates import estimate_rates
    from evaltap.evaluator.analysis.estimates.scope import Scope as Turns

    if not options.by:
        return ()
    return estimate_rates(store, Turns(run_id=options.run_id, files=True), by=options.by).rates


def _compared(options: ReportOptions, wanted: str | None) -> "Markup | None":
    """Return the section with the comparison; None without a baseline."""
    if options.baseline is None:
        return None
    store, *others = options.db
    if wanted != "html" or others:
        raise InputError(
            "--baseline: only for the HTML report of one DuckDB file; use `evaltap compare --report` for"
            " other formats"
        )
    from evaltap.evaluator.reports.compare.formats import comparison_section
    from evaltap.evaluator.reports.compare.model import Rules
    from evaltap.evaluator.reports.compare.reading import compare_sides

    head = f"{store}#{options.run_id}" if options.run_id else str(store)
    return comparison_section(compare_sides(options.baseline, head, Rules()))


def _whole(
    options: ReportOptions, store: "StoreReader", wanted: str, section: "Markup | None"
) -> int:
    from evaltap.evaluator.reports.html import html
    from evaltap.evaluator.reports.reader import read_report

    report = read_report(
        store,
        run_id=options.run_id,
        case_files=options.cases,
        references=read_references(options.references, options.join),
    )
    if options.redact:
        report = redacted(report, report_redactor())
    if wanted == "html":
        trace_url = read_trace_url(options.trace_url)
        text = html(report, sections=section, trace_url=trace_url)
    else:
        text = render(report, wanted)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_bytes(options.out, text.encode("utf-8", "replace"))
        print(f"evaltap report: {wanted} report written to {options.out}", file=sys.stderr)
    return guarded_exit(options.guards, store, report.summary, Scope(case_files=options.cases))
