"""`evaltap score` on a DuckDB file: the cases that have landed there, or those of an archive."""

from collections.abc import Sequence
from pathlib import Path

from evaltap.cli.messages import say
from evaltap.cli.options.score import ScoreOptions
from evaltap.cli.progress import progress
from evaltap.cli.scored import observer, print_verdict, verdict_on
from evaltap.cli.scoring import ChosenMetrics, read_references, report_selection, selection_of
from evaltap.cli.stores import choice_of, keys_of, open_chosen
from evaltap.cli.verdict import Scope
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.pipeline.batch.pending import PendingCases
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.maintenance.archiving import restore
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.results.sinks import score_sinks
from evaltap.evaluator.store.database import open_store
from evaltap.evaluator.store.file_type import is_archive
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted


def score_landed(
    options: ScoreOptions, chosen: ChosenMetrics, path: Path, judges: JudgeSession
) -> int:
    """Score the cases of a file that are due, and print the summary; return the exit code."""
    path = _restored(options, path)
    if options.db not in (None, path):
        raise InputError(
            f"--db {options.db}: scores of landed cases are stored in {path} itself; leave --db out"
        )
    if options.result:
        raise InputError(
            "--result: only works with eval case files; write one with `evaltap set export`"
        )
    references = read_references(options.scoring.expected)
    choice = choice_of(options.chosen)
    with (
        score_sinks(options.sink) as write,
        open_store(path, create=False) as store,
        progress("cases scored") as report,
    ):
        keys = keys_of(store, choice)
        selection = selection_of(options.selection, keys)
        pending = PendingScorer(
            store,
            chosen.scorer,
            references=references,
            threads=options.scoring.concurrency if chosen.scorer.waits else 1,
            selection=selection,
            observe=observer(None, write),
        )
        if pending.is_due(retry=options.retry):
            judges.check_reachable(chosen.scorer.metrics)
        _, cases = pending.score("landed", str(path), retry=options.retry, progress=report)
        report_selection(selection)
        kept = _report_left_alone(pending.cases, keys)
        digests = (*(metric.digest for metric in pending.metrics), *kept)
        scope = Scope(digests=digests, references=references)
        verdict = None
        if keys is None:
            verdict = verdict_on(options, store, summarise(store, metrics=digests), scope)
    if verdict is None:
        with open_chosen([path], choice, keys) as shown:
            verdict = verdict_on(options, shown, summarise(shown, metrics=digests), scope)
    if references is not None:
        say("score", f"references: {pending.joined}")
    if not options.json:
        print(
            f"{counted(cases, 'case')} scored now; the summary covers the latest score of every"
            f" {'case' if keys is None else 'chosen case'}"
        )
    print_verdict(options, verdict, chosen, 0)
    return verdict.exit_code


def _restored(options: ScoreOptions, path: Path) -> Path:
    """Return the DuckDB file to score: for an archive, which is only read, a new one with its rows."""
    if not is_archive(path):
        return path
    if options.db is None:
        raise InputError(
            f"{path}: is an archive, which is only read; name a new DuckDB file for its rows and their"
            " scores with --db"
        )
    restore(path, options.db)
    return options.db


def _report_left_alone(pending: PendingCases, keys: Sequence[CaseKey] | None) -> list[str]:
    """Report chosen runs of experiments that are left alone; return the digests of the scores they keep."""
    chosen = None if keys is None else set(keys)
    invalid = [why for key, why in pending.invalid().items() if chosen is None or key in chosen]
    if invalid:
        say(
            "score",
            f"left out: {counted(len(invalid), 'invalid run')} (no evidence, in no rate), e.g. {invalid[0]}",
        )
    compared = [one for one in pending.compared() if chosen is None or one[0] in chosen]
    if compared:
        names = ", ".join(sorted({name for _, name, _ in compared}))
        say(
            "score",
            f"{names}: {counted(len({key for key, *_ in compared}), 'run')} of experiments keep the scores"
            " that they got with the expected turns of their set; to score them again, add --references SET",
        )
    return sorted({digest for *_, digest in compared})
