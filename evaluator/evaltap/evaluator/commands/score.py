"""`evaltap score`: score eval cases from files, or what has landed in a DuckDB file."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from evaltap.evaluator.commands.engine import add_engine, check_engine
from evaltap.evaluator.commands.guarding import (
    add_guards,
    add_reports,
    add_selection,
    guarded_exit,
    selection_from,
    tell_selection,
    worst_differences,
    write_reports,
)
from evaltap.evaluator.commands.judging import judging
from evaltap.evaluator.commands.options import (
    add_columns,
    add_json,
    add_scoring,
    case_scorer,
    open_store,
    pending_scorer,
    positive,
    progress,
)
from evaltap.schemas.documents import write_document
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.bad_line import BadLine
    from evaltap.evaluator.batch import CaseIdentity
    from evaltap.evaluator.jobs import FilesScored
    from evaltap.evaluator.report import Difference, Summary
    from evaltap.evaluator.scoring import CaseScore, CaseScorer
    from evaltap.evaluator.store import Store
    from evaltap.schemas.case import CaseData
    from evaltap.schemas.result import EvalCaseResult

    _Scored: TypeAlias = tuple[FilesScored, Summary, int, list[Difference]]
    """A run over files, what its scores say, the exit code, the worst cases."""

SHOWN_BAD_LINES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap score cases.evalset.json --metrics metrics.json --db results.duckdb\n"
        "  evaltap score results.duckdb --metrics metrics.json     # landed cases without a score\n"
        "  evaltap score cases.jsonl --metrics metrics.json --report report.html --report junit.xml\n"
        "  evaltap score *.jsonl --metrics metrics.json --engine ray --db results.duckdb\n\n"
        "exit code: 0 all passed, 1 something failed, 2 bad input, 3 incomplete"
    )
    add = parser.add_argument
    add(
        "cases",
        nargs="+",
        type=Path,
        metavar="CASES",
        help=".evalset.json, JSON Lines of eval cases, data sets (.csv, .parquet, .arrow, a folder of"
        " Hugging Face datasets), or one DuckDB file with landed cases",
    )
    add_columns(parser)
    add_scoring(parser, metrics_help="the metrics file", required=True)
    add(
        "--db",
        type=Path,
        metavar="X.duckdb",
        help="where scores go (default: nowhere, only the summary is printed)",
    )
    add(
        "--result",
        type=Path,
        metavar="PATH",
        help="also write an .evalset_result.json: a .json file, or a folder",
    )
    add(
        "--retry",
        action="store_true",
        help="landed cases: score again what was not evaluated or in error",
    )
    add(
        "--workers",
        type=positive,
        metavar="N",
        help="processes for deterministic metrics (default: one a processor for large files)",
    )
    add_engine(parser)
    add_selection(parser)
    add_reports(parser)
    add_json(parser)
    add_guards(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score and print the summary; return the exit code."""
    from evaltap.evaluator.database_file import is_database

    databases = [path for path in options.cases if is_database(path)]
    if databases and len(options.cases) > 1:
        raise InputError(
            f"{databases[0]} is a DuckDB file and stands beside other inputs; score it alone"
        )
    check_engine(options, databases)
    with judging(options):
        scorer = case_scorer(options)
        if options.engine == "ray":
            return _score_files(options, scorer, ", ".join(map(str, options.cases)))
        if databases:
            return _score_landed(options, scorer, databases[0])
        from evaltap.evaluator.datasets.cases import as_case_files
        from evaltap.evaluator.datasets.columns import parse_columns

        source = ", ".join(map(str, options.cases))
        with as_case_files(options.cases, parse_columns(options.map)) as files:
            options.cases = files.paths
            return _score_files(options, scorer, source, files.bad_lines)


def _score_files(
    options: argparse.Namespace,
    scorer: "CaseScorer",
    source: str,
    bad_lines: "Sequence[BadLine]" = (),
) -> int:
    from evaltap.evaluator.batch import compares

    if options.references:
        raise InputError("--references: joins landed cases; eval case files hold their own")
    for path in options.cases:
        if not path.is_file():
            found = "is a folder" if path.is_dir() else "no such file"
            raise InputError(
                f"{path}: {found}; expected a file with eval cases"
                " (`evaltap convert` makes one of a data set)"
            )
    if options.engine == "ray":
        scored, summary, code, differences = _on_ray(options, scorer, source)
    else:
        scored, summary, code, differences = _here(options, scorer, source, bad_lines)
    _print(options, summary, code, differences, len(scored.bad_lines))
    comparing = [metric.metric_name for metric in scorer.metrics if compares(metric)]
    if scored.without_reference and comparing:
        from evaltap.evaluator.report import counted

        print(
            f"evaltap score: no reference (`conversation` beside `actualConversation`) in"
            f" {counted(scored.without_reference, 'case')}; {', '.join(comparing)} compared with"
            " nothing there: add one, or use metrics that need none",
            file=sys.stderr,
        )
    return _bad_input_exit(scored) or code


def _here(
    options: argparse.Namespace,
    scorer: "CaseScorer",
    source: str,
    bad_lines: "Sequence[BadLine]",
) -> "_Scored":
    """Score in this process and its workers; `bad_lines` are rows of tables that make no case."""
    from evaltap.evaluator.file_scoring import FileScorer

    kept = _KeptResults() if options.result else None
    selection = selection_from(options)
    files = FileScorer(
        scorer,
        options.cases,
        workers=options.workers,
        concurrency=options.concurrency,
        observe=kept.add if kept else None,
        selection=selection,
        bad_lines=bad_lines,
    )
    try:
        # Loaded while the workers score: they need no database.
        from evaltap.evaluator.jobs import score_files

        with open_store(options.db) as store, progress("cases scored") as report:
            scored = score_files(store, files, scorer, source, report)
            tell_selection(options, selection)
            judged = _judged(options, store, scored, options.cases)
    finally:
        files.close()
    if kept:
        kept.write(options.result)
    return judged


def _on_ray(options: argparse.Namespace, scorer: "CaseScorer", source: str) -> "_Scored":
    """Score on a Ray cluster; the results are Parquet files, which the DuckDB file reads."""
    from evaltap.evaluator.commands.engine import score_on_ray
    from evaltap.evaluator.datasets.cases import SUFFIXES

    with open_store(options.db) as store, progress("cases scored") as report:
        scored = score_on_ray(options, store, scorer, source, report)
        # The tables themselves, whose rows are no eval cases yet, are not read again.
        readable = [path for path in options.cases if path.suffix.lower() not in SUFFIXES]
        return _judged(options, store, scored, readable)


def _judged(
    options: argparse.Namespace, store: "Store", scored: "FilesScored", case_files: Sequence[Path]
) -> "_Scored":
    """Return the verdict on a run over files, with its reports written; `case_files` are read again."""
    from evaltap.evaluator.report import summarise

    run_id = scored.run.run_id
    summary = summarise(store, run_id=run_id)
    write_reports(options, store, run_id=run_id, case_files=case_files)
    code = guarded_exit(options, store, summary, case_files=case_files)
    differences = worst_differences(options, store, summary, case_files=case_files)
    return scored, summary, code, differences


def _score_landed(options: argparse.Namespace, scorer: "CaseScorer", path: Path) -> int:
    from evaltap.evaluator.report import counted, summarise
    from evaltap.evaluator.runs import end_run

    if options.db not in (None, path):
        raise InputError(f"--db {options.db}: scores of landed cases go into {path} itself")
    if options.result:
        raise InputError("--result: give it with eval case files; `evaltap export` makes one")
    with open_store(path, create=False) as store, progress("cases scored") as report:
        selection = selection_from(options)
        pending = pending_scorer(store, scorer, options, selection)
        started, cases = pending.score("landed", str(path), retry=options.retry, progress=report)
        if started is not None:
            end_run(store, started, cases)
        tell_selection(options, selection)
        digests = [metric.digest for metric in pending.metrics]
        summary = summarise(store, metrics=digests)
        write_reports(options, store, digests=digests)
        code = guarded_exit(options, store, summary, digests=digests)
        differences = worst_differences(options, store, summary, digests=digests)
    if not options.json:
        print(
            f"{counted(cases, 'case')} scored now; the summary covers the latest score of every case"
        )
    _print(options, summary, code, differences, 0)
    return code


def _print(
    options: argparse.Namespace,
    summary: "Summary",
    code: int,
    differences: "list[Difference]",
    bad_lines: int,
) -> None:
    from evaltap.evaluator.report import console, print_summary

    if options.json:
        print(
            json.dumps(
                {**summary.data(), "bad_lines": bad_lines, "not_run": options.not_run},
                ensure_ascii=False,
            )
        )
    else:
        print_summary(summary, console(), differences)


def _bad_input_exit(scored: "FilesScored") -> int:
    from evaltap.evaluator.report import counted

    lines = scored.bad_lines
    for line in lines[:SHOWN_BAD_LINES]:
        print(f"evaltap score: {line.message}", file=sys.stderr)
    if len(lines) > SHOWN_BAD_LINES:
        print(f"evaltap score: ... and {len(lines) - SHOWN_BAD_LINES:,} more", file=sys.stderr)
    if lines:
        print(
            f"evaltap score: not an eval case and not scored: {counted(len(lines), 'line')};"
            " with --db such lines are kept in dead_letters",
            file=sys.stderr,
        )
    if scored.repeated_ids:
        print(
            "evaltap score: several cases of one eval set have the same evalId"
            f" ({', '.join(scored.repeated_ids)}, …); give each its own, or put the turns of a"
            " session into one case",
            file=sys.stderr,
        )
    return 2 if lines or scored.repeated_ids else 0


class _KeptResults:
    """Keeps the result of every case, by eval set, for the result files."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], list[EvalCaseResult]] = {}

    def add(self, identity: "CaseIdentity", case: "CaseData", score: "CaseScore") -> None:
        from evaltap.evaluator.evaluation import case_result

        result = case_result(case, score, eval_set_id=identity.eval_set_id, run_id=1)
        self._results.setdefault((identity.app_name, identity.eval_set_id), []).append(result)

    def write(self, target: Path) -> None:
        from evaltap.evaluator.results import eval_set_result, result_path

        if target.suffix == ".json" and len(self._results) > 1:
            raise InputError(
                f"--result {target}: the cases belong to {len(self._results)} eval sets; name a folder"
            )
        for (app_name, eval_set_id), results in self._results.items():
            result = eval_set_result(
                eval_set_id, results, app_name=app_name, created_at=time.time()
            )
            write_document(result_path(target, result, app_name), result)
