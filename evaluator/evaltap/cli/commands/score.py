"""`evaltap score`: score eval cases from files, or the cases that have landed in a DuckDB file."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaltap.cli.interpreter import collecting_rarely, switching_often
from evaltap.cli.messages import say
from evaltap.cli.options.score import ScoreOptions
from evaltap.cli.progress import progress
from evaltap.cli.scored import observer, print_verdict, verdict_on
from evaltap.cli.scoring import (
    ChosenMetrics,
    case_scorer,
    judge_session,
    read_references,
    report_missing_references,
    report_selection,
    selection_of,
)
from evaltap.cli.verdict import Scope, Verdict
from evaltap.evaluator.cases.datasets.case_files import SUFFIXES, as_case_files, joined_files
from evaltap.evaluator.cases.datasets.columns import parse_columns
from evaltap.evaluator.cases.datasets.trials import TrialFiles, trials_apart
from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.pipeline.batch.run import FilesScored, score_files
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.reports.summary_notes import sampled_line
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.results.sinks import score_sinks
from evaltap.evaluator.store.database import open_store
from evaltap.evaluator.store.file_type import is_archive, is_store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.refused import no_such_file
from evaltap.schemas.text import counted

SHOWN_BAD_LINES: Final = 5
_OF_ONE_PROCESS_VARIABLES: Final = ("EVALTAP_JUDGE_RPM", "EVALTAP_JUDGE_TPM")


def run(options: ScoreOptions) -> int:
    """Score and print the summary; return the exit code."""
    if not options.cases:
        raise InputError("no CASES given; name files, or a DuckDB file with landed cases")
    databases = [path for path in options.cases if is_store(path)]
    if databases and len(options.cases) > 1:
        kind = "an archive" if is_archive(databases[0]) else "a DuckDB file"
        raise InputError(f"{databases[0]} is {kind}; score it alone, without other inputs")
    on_ray = options.where.engine == "ray"
    if on_ray:
        _check_ray(options, databases)
    for name, value in (("--ray-address", options.where.ray_address), ("--out", options.where.out)):
        if value is not None and not on_ray:
            raise InputError(f"{name}: only works with --engine ray; add it")
    with (
        judge_session("score", options.scoring.judges) as judges,
        collecting_rarely(),
        switching_often(),
    ):
        chosen = case_scorer("score", options.metrics, options.scoring, judges)
        if databases:
            # With all that finds what is due, which files do not need.
            from evaltap.cli.scoring_landed import score_landed

            return score_landed(options, chosen, databases[0], judges)
        judges.check_reachable(chosen.scorer.metrics, required=not on_ray)
        if on_ray:
            if options.scoring.expected.references:
                raise InputError(
                    "--references: does not work with --engine ray; score in one process instead"
                )
            _check_files(options.cases)
            return _score_on_ray(options, chosen, judges)
        with as_case_files(options.cases, parse_columns(options.map)) as files:
            _check_files(files.paths)
            with trials_apart(files.paths) as trials:
                return _score_case_files(options, chosen, files.bad_lines, trials)


def _check_ray(options: ScoreOptions, databases: Sequence[Path]) -> None:
    """Raise InputError for what a cluster does not support, such as limits of one process."""
    if databases:
        raise InputError(
            f"--engine ray scores files, and {databases[0]} is a DuckDB file; leave --engine ray out, or"
            " write its cases to a file with `evaltap set export`"
        )
    judges = options.scoring.judges
    limits = {
        "--result": options.result,
        "--sink": options.sink,
        "--workers": options.workers,
        "--tasks": options.selection.tasks,
        "--items": options.selection.items,
        "--budget-usd": judges.budget_usd,
        "--budget-tokens": judges.budget_tokens,
        "--budget-calls": judges.budget_calls,
        "--judge-rpm": judges.judge_rpm,
        "--judge-tpm": judges.judge_tpm,
        **{name: os.environ.get(name, "").strip() for name in _OF_ONE_PROCESS_VARIABLES},
    }
    if name := next((name for name, value in limits.items() if value), None):
        raise InputError(
            f"{name}: a limit of one process, which cannot be enforced across nodes; leave it out, also in"
            " the environment, or score without --engine ray"
        )
    if options.where.out is None and options.db is None:
        raise InputError(
            "--engine ray writes Parquet files; name a folder with --out DIR, or give --db"
        )


def _score_case_files(
    options: ScoreOptions, chosen: ChosenMetrics, bad_lines: Sequence[BadLine], trials: TrialFiles
) -> int:
    """Score files of cases, joined with the references if there are any."""
    paths, bad_lines = trials.files.paths, [*bad_lines, *trials.files.bad_lines]
    _report_trials(options, trials)
    if (references := read_references(options.scoring.expected)) is None:
        return _score_files(options, chosen, paths, bad_lines)
    with joined_files(paths, references) as (joined, count):
        code = _score_files(options, chosen, joined.paths, [*bad_lines, *joined.bad_lines])
        say("score", f"references: {count}")
        return code


def _report_trials(options: ScoreOptions, trials: TrialFiles) -> None:
    if not trials.repeated:
        return
    hint = f"; pass@k: evaltap report {options.db} --pass-k 1,{trials.most}" if options.db else ""
    say(
        "score",
        f"{counted(trials.repeated, 'case')} occurred up to {trials.most} times;"
        f" each occurrence is scored as a trial of its own{hint}",
    )


def _refuse_filter(options: ScoreOptions) -> None:
    if any(options.chosen.filter) or options.chosen.where:
        raise InputError(
            "--filter, --where: only work on the landed cases of a DuckDB file; for files, use --tasks and"
            " --items"
        )


def _score_files(
    options: ScoreOptions,
    chosen: ChosenMetrics,
    paths: Sequence[Path],
    bad_lines: Sequence[BadLine],
) -> int:
    """Score in this process and its workers; `bad_lines` are rows of tables that make no case."""
    _refuse_filter(options)
    kept = None
    if options.result:
        from evaltap.evaluator.scoring.results.result_file import KeptResults  # with asyncio

        kept = KeptResults()
    selection = selection_of(options.selection)
    with score_sinks(options.sink) as write:
        files = FileScorer(
            chosen.scorer,
            paths,
            workers=options.workers,
            concurrency=options.scoring.concurrency,
            observe=observer(kept, write),
            selection=selection,
            bad_lines=bad_lines,
        )
        with closing(files), open_store(options.db) as store, progress("cases scored") as report:
            scored = score_files(store, files, chosen.scorer, _source(options), report)
            report_selection(selection)
            verdict = _verdict_of_run(options, store, scored, paths)
    if kept and options.result:
        kept.write(options.result)
    return _finish(options, chosen, scored, verdict)


def _score_on_ray(options: ScoreOptions, chosen: ChosenMetrics, judges: JudgeSession) -> int:
    """Score on a Ray cluster; the results are Parquet files, which the DuckDB file reads."""
    # an optional package: ray
    from evaltap.evaluator.pipeline.batch.ray_scoring import RayFiles, score_files_on_ray

    _refuse_filter(options)
    folder = options.where.out or (options.db and options.db.with_suffix(".parquet"))
    assert folder is not None  # see _check_ray
    files = RayFiles(
        options.cases,
        _source(options),
        parse_columns(options.map),
        options.scoring.concurrency,
        judges.settings,
        folder,
        options.where.ray_address,
    )
    with open_store(options.db) as store, progress("cases scored") as report:
        scored = score_files_on_ray(files, store, chosen.scorer, report)
        # The tables themselves, whose rows are no eval cases yet, are not read again.
        readable = [path for path in options.cases if path.suffix.lower() not in SUFFIXES]
        verdict = _verdict_of_run(options, store, scored, readable)
    return _finish(options, chosen, scored, verdict)


def _source(options: ScoreOptions) -> str:
    """Return what the run was made from, as the tables name it."""
    return ", ".join(map(str, options.cases))


def _finish(
    options: ScoreOptions, chosen: ChosenMetrics, scored: FilesScored, verdict: Verdict
) -> int:
    print_verdict(options, verdict, chosen, len(scored.bad_lines))
    report_missing_references("score", scored.without_reference, chosen.scorer.metrics)
    return _bad_input_exit(scored) or verdict.exit_code


def _verdict_of_run(
    options: ScoreOptions, store: StoreReader, scored: FilesScored, paths: Sequence[Path]
) -> Verdict:
    """Return the verdict on a run over files, with its reports written; `paths` are read again."""
    summary = summarise(store, run_id=scored.run.run_id)
    if scored.sampled:
        summary = replace(summary, notes=(*summary.notes, sampled_line(scored.sampled)))
    scope = Scope(run_id=scored.run.run_id, case_files=tuple(paths))
    return verdict_on(options, store, summary, scope)


def _check_files(paths: Sequence[Path]) -> None:
    for path in paths:
        if not path.is_file():
            expected = "expected a file with eval cases"
            if path.is_dir():
                raise InputError(
                    f"{path}: is a folder; {expected} (`evaltap convert` makes one from a data set)"
                )
            raise InputError(no_such_file(path, expected))


def _bad_input_exit(scored: FilesScored) -> int:
    """Report lines that are not cases, and repeated ids; return exit code 2 if there are any, otherwise 0."""
    lines = scored.bad_lines
    for line in lines[:SHOWN_BAD_LINES]:
        say("score", line.message)
    if len(lines) > SHOWN_BAD_LINES:
        say("score", f"... and {len(lines) - SHOWN_BAD_LINES:,} more")
    if lines:
        say(
            "score",
            f"not scored because they are not eval cases: {counted(len(lines), 'line')};"
            " with --db they are kept in dead_letters",
        )
    if scored.repeated_ids:
        say(
            "score",
            "several cases of one eval set have the same evalId"
            f" ({', '.join(scored.repeated_ids)}, …), so their scores cannot be told apart; give each case"
            " its own id, put the turns of a session into one case, or name repeats in `source.run`",
        )
    return 2 if lines or scored.repeated_ids else 0
