"""`evaltap score`: score eval cases from files, or the cases that have landed in a DuckDB file."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.interpreter import collecting_rarely, switching_often
from evaltap.cli.options.common import add_columns, add_json, open_store, progress
from evaltap.cli.options.engine import (
    EngineOptions,
    RayFiles,
    add_engine,
    check_engine,
    score_on_ray,
)
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.options.judges import JudgeSession
from evaltap.cli.options.redaction import add_redact, report_redactor
from evaltap.cli.options.scoring import (
    ChosenMetrics,
    ScoringOptions,
    add_scoring,
    case_scorer,
    pending_scorer,
    report_joined,
    report_missing_references,
)
from evaltap.cli.options.selection import SelectionOptions, add_selection, report_selection
from evaltap.cli.options.verdict import (
    GuardOptions,
    Scope,
    add_guards,
    add_reports,
    guarded_exit,
    worst_differences,
    write_reports,
)
from evaltap.cli.parsing import positive
from evaltap.cli.scored_files import KeptResults, bad_input_exit, check_files
from evaltap.cli.settings import STORE, of_settings
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.cases.datasets.trials import TrialFiles
    from evaltap.evaluator.cases.identity import BadLine
    from evaltap.evaluator.pipeline.batch.run import FilesScored
    from evaltap.evaluator.reports.summary import Difference, Summary
    from evaltap.evaluator.scoring.scorer import CaseScorer
    from evaltap.evaluator.store.database import Store
    from evaltap.evaluator.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What to score, with what, and where the results go."""

    command: str
    cases: tuple[Path, ...]
    map: tuple[str, ...]
    db: Path | None
    result: Path | None
    retry: bool
    workers: int | None
    report: tuple[Path, ...]
    redact: bool
    json: bool
    scoring: ScoringOptions
    where: EngineOptions
    chosen: SelectionOptions
    filtered: FilterOptions
    guards: GuardOptions

    @property
    def source(self) -> str:
        """What the run was made from, as the tables name it."""
        return ", ".join(map(str, self.cases))

    def one_process_only(self) -> list[str]:
        """Return the options given that hold for one process only."""
        judges = self.scoring.judges
        given = {
            "--result": self.result,
            "--workers": self.workers,
            "--tasks": self.chosen.tasks,
            "--items": self.chosen.items,
            "--budget-usd": judges.budget_usd,
            "--budget-tokens": judges.budget_tokens,
            "--budget-calls": judges.budget_calls,
            "--judge-rpm": judges.judge_rpm,
            "--judge-tpm": judges.judge_tpm,
        }
        return [name for name, value in given.items() if value]

    @property
    def store(self) -> Path | None:
        """The DuckDB file with the scores, None where nothing is kept."""
        from evaltap.evaluator.store.file_type import is_database

        return self.cases[0] if is_database(self.cases[0]) else self.db


_EXAMPLES = (
    "examples:\n"
    "  evaltap score cases.evalset.json --metrics metrics.json --db cases.duckdb\n"
    "  evaltap score cases.duckdb --metrics metrics.json   # what has no score yet\n"
    "  evaltap score cases.duckdb --metrics metrics.json --filter tool:refund\n"
    "  evaltap score cases.jsonl --metrics metrics.json --report report.html\n"
    "  evaltap score *.jsonl --metrics metrics.json --engine ray --db cases.duckdb\n\n"
    "exit code: 0 all passed, 1 something failed, 2 bad input, 3 incomplete"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    cases = add(
        "cases",
        nargs="*",
        type=Path,
        metavar="CASES",
        help=".evalset.json, JSON Lines of eval cases, data sets (.csv, .parquet, .arrow, a folder of"
        " Hugging Face datasets), or one DuckDB file with landed cases (default: the store in"
        " evaltap.toml, or ./cases.duckdb)",
    )
    of_settings(cases, STORE)
    add_columns(parser)
    add_scoring(parser, metrics_help="the metrics file", required=True)
    add(
        "--db",
        type=Path,
        metavar="X.duckdb",
        help="store the scores in this file (default: only print the summary)",
    )
    add(
        "--result",
        type=Path,
        metavar="PATH",
        help="also write an .evalset_result.json to this file or folder",
    )
    add(
        "--retry",
        action="store_true",
        help="for landed cases: score again those that were not evaluated or had an error",
    )
    add(
        "--workers",
        type=positive,
        metavar="N",
        help="number of processes for deterministic metrics (default: one for each processor if files are"
        " large)",
    )
    add_engine(parser)
    add_selection(parser)
    add_filter(parser)
    add_reports(parser)
    add_redact(parser)
    add_json(parser)
    add_guards(parser)
    parser.set_defaults(run=run, options=ScoreOptions)


def run(options: ScoreOptions) -> int:
    """Score and print the summary; return the exit code."""
    from evaltap.evaluator.store.file_type import is_database

    if not options.cases:
        raise InputError("no CASES given; name files, or a DuckDB file with landed cases")
    databases = [path for path in options.cases if is_database(path)]
    if databases and len(options.cases) > 1:
        raise InputError(f"{databases[0]} is a DuckDB file; score it alone, without other inputs")
    check_engine(options.where, options.one_process_only(), databases)
    with JudgeSession(options.scoring.judges) as judges, collecting_rarely(), switching_often():
        chosen = case_scorer(options.scoring, judges)
        if databases:
            return _score_landed(options, chosen, databases[0], judges)
        judges.check_reachable(chosen.scorer.metrics, required=not options.where.on_ray)
        if options.where.on_ray:
            if options.scoring.references:
                raise InputError(
                    "--references: does not work with --engine ray; score in one process instead"
                )
            check_files(options.cases)
            return _score_files(options, chosen, options.cases)
        from evaltap.evaluator.cases.datasets.cases import as_case_files
        from evaltap.evaluator.cases.datasets.columns import parse_columns
        from evaltap.evaluator.cases.datasets.trials import trials_apart

        with as_case_files(options.cases, parse_columns(options.map)) as files:
            check_files(files.paths)
            with trials_apart(files.paths) as trials:
                return _score_case_files(options, chosen, files.bad_lines, trials)


def _score_case_files(
    options: ScoreOptions,
    chosen: ChosenMetrics,
    bad_lines: "Sequence[BadLine]",
    trials: "TrialFiles",
) -> int:
    """Score files of cases, joined with the references if there are any."""
    paths, bad_lines = trials.files.paths, [*bad_lines, *trials.files.bad_lines]
    _report_trials(options, trials)
    references = options.scoring.read_references()
    if references is None:
        return _score_files(options, chosen, paths, bad_lines)
    from evaltap.evaluator.cases.datasets.joined import joined_files

    with joined_files(paths, references) as joined:
        code = _score_files(options, chosen, joined.paths, [*bad_lines, *joined.bad_lines])
        report_joined(options.command, joined.count)
        return code


def _report_trials(options: ScoreOptions, trials: "TrialFiles") -> None:
    from evaltap.schemas.text import counted

    if not trials.repeated:
        return
    hint = f"; pass@k: evaltap report {options.db} --pass-k 1,{trials.most}" if options.db else ""
    print(
        f"evaltap {options.command}: {counted(trials.repeated, 'case')} occurred up to {trials.most} times;"
        f" each occurrence is scored as a trial of its own{hint}",
        file=sys.stderr,
    )


def _score_files(
    options: ScoreOptions,
    chosen: ChosenMetrics,
    paths: Sequence[Path],
    bad_lines: "Sequence[BadLine]" = (),
) -> int:
    """Score eval case files; `bad_lines` are rows of tables that make no case."""
    if options.filtered.choice():
        raise InputError(
            "--filter, --where: only work on the landed cases of a DuckDB file; for files, use --tasks and"
            " --items"
        )
    if options.where.on_ray:
        scored, verdict = _on_ray(options, chosen.scorer, paths)
    else:
        scored, verdict = _here(options, chosen.scorer, paths, bad_lines)
    _print(options, verdict, chosen, len(scored.bad_lines))
    report_missing_references(options.command, scored.without_reference, chosen.scorer.metrics)
    return bad_input_exit(scored) or verdict.exit_code


def _here(
    options: ScoreOptions,
    scorer: "CaseScorer",
    paths: Sequence[Path],
    bad_lines: "Sequence[BadLine]",
) -> "tuple[FilesScored, _Verdict]":
    """Score in this process and its workers."""
    from evaltap.evaluator.pipeline.batch.files import FileScorer

    kept = KeptResults() if options.result else None
    selection = options.chosen.selection()
    files = FileScorer(
        scorer,
        paths,
        workers=options.workers,
        concurrency=options.scoring.concurrency,
        observe=kept.add if kept else None,
        selection=selection,
        bad_lines=bad_lines,
    )
    try:
        # Loaded while the workers score: they need no database.
        from evaltap.evaluator.pipeline.batch.run import score_files

        with open_store(options.db) as store, progress("cases scored") as report:
            scored = score_files(store, files, scorer, options.source, report)
            report_selection(options.command, selection)
            verdict = _verdict_of_run(options, store, scored, paths)
    finally:
        files.close()
    if kept and options.result:
        kept.write(options.result)
    return scored, verdict


def _on_ray(
    options: ScoreOptions, scorer: "CaseScorer", paths: Sequence[Path]
) -> "tuple[FilesScored, _Verdict]":
    """Score on a Ray cluster; the results are Parquet files, which the DuckDB file reads."""
    from evaltap.evaluator.cases.datasets.cases import SUFFIXES

    scoring = options.scoring
    files = RayFiles(tuple(paths), options.source, options.map, scoring.concurrency, scoring.judges)
    with open_store(options.db) as store, progress("cases scored") as report:
        scored = score_on_ray(options.where, files, store, scorer, report)
        # The tables themselves, whose rows are no eval cases yet, are not read again.
        readable = [path for path in paths if path.suffix.lower() not in SUFFIXES]
        return scored, _verdict_of_run(options, store, scored, readable)


def _verdict_of_run(
    options: ScoreOptions, store: "Store", scored: "FilesScored", paths: Sequence[Path]
) -> "_Verdict":
    """Return the verdict on a run over files, with its reports written; `paths` are read again."""
    from evaltap.evaluator.reports.summary import summarise
    from evaltap.evaluator.reports.text import sampled_line

    summary = summarise(store, run_id=scored.run.run_id)
    if scored.sampled:
        summary = replace(summary, notes=(*summary.notes, sampled_line(scored.sampled)))
    scope = Scope(run_id=scored.run.run_id, case_files=tuple(paths))
    return _verdict(options, store, summary, scope)


def _score_landed(
    options: ScoreOptions, chosen: ChosenMetrics, path: Path, judges: JudgeSession
) -> int:
    from evaltap.evaluator.reports.summary import summarise
    from evaltap.evaluator.scoring.results.runs import end_run
    from evaltap.schemas.text import counted

    if options.db not in (None, path):
        raise InputError(
            f"--db {options.db}: scores of landed cases are stored in {path} itself; leave --db out"
        )
    if options.result:
        raise InputError(
            "--result: only works with eval case files; write one with `evaltap export`"
        )
    references = options.scoring.read_references()
    with open_store(path, create=False) as store, progress("cases scored") as report:
        keys = options.filtered.keys(store)
        selection = options.chosen.selection(keys)
        pending = pending_scorer(
            store,
            chosen.scorer,
            options.scoring.concurrency,
            references=references,
            selection=selection,
        )
        if pending.is_due(retry=options.retry):
            judges.check_reachable(chosen.scorer.metrics)
        started, cases = pending.score("landed", str(path), retry=options.retry, progress=report)
        if started is not None:
            end_run(store, started, cases)
        report_selection(options.command, selection)
        digests = tuple(metric.digest for metric in pending.metrics)
        scope = Scope(digests=digests, references=references)
        verdict = None
        if keys is None:
            verdict = _verdict(options, store, summarise(store, metrics=digests), scope)
    if verdict is None:
        with options.filtered.open([path], keys) as shown:
            verdict = _verdict(options, shown, summarise(shown, metrics=digests), scope)
    if references is not None:
        report_joined(options.command, pending.joined)
    if not options.json:
        print(
            f"{counted(cases, 'case')} scored now; the summary covers the latest score of every"
            f" {'case' if keys is None else 'chosen case'}"
        )
    _print(options, verdict, chosen, 0)
    return verdict.exit_code


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the scores say, the exit code, and how the worst cases differ from what was expected."""

    summary: "Summary"
    exit_code: int
    differences: "Sequence[Difference]"


def _verdict(
    options: ScoreOptions, store: "StoreReader", summary: "Summary", scope: Scope
) -> _Verdict:
    from evaltap.evaluator.reports.model import redacted

    clean = report_redactor() if options.redact else None
    write_reports(options.command, options.report, store, scope, clean=clean)
    code = guarded_exit(options.guards, store, summary, scope)
    differences = [] if options.json else worst_differences(store, summary, scope)
    if clean is not None:
        summary, differences = redacted(summary, clean), redacted(differences, clean)
    return _Verdict(summary, code, differences)


def _print(options: ScoreOptions, verdict: _Verdict, chosen: ChosenMetrics, bad_lines: int) -> None:
    from evaltap.evaluator.reports.console import console, print_summary

    if options.json:
        data = {**verdict.summary.data(), "bad_lines": bad_lines, "not_run": chosen.not_run}
        print(json.dumps(data, ensure_ascii=False))
    else:
        print_summary(verdict.summary, console(), verdict.differences, store=options.store)
